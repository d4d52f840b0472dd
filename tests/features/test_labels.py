"""Labels against plain loops."""

from __future__ import annotations

import pyarrow as pa
import pytest
from cases import cases
from hypothesis import given
from hypothesis import strategies as st
from labels_oracle import expected
from worlds import random_worlds, tables_of

from features import labels


@cases(5, thorough=200)
@given(seed=st.integers(0, 10**6))
def test_labels_equal_plain_loops(seed: int) -> None:
    worlds = random_worlds(seed, n_worlds=10)
    spec = worlds.spec
    accesses, _ = tables_of(worlds)
    until_s = worlds.start + 16 * spec.cycle_s + 1800
    dids = sorted({r.did for r in worlds.reads} | {"w0:unread"})
    reads = labels.Reads(accesses.select(list(labels.COLUMNS)), until_s=until_s)
    for k in (-30, 0, 1, 7, 14, 15, 16, 500):
        as_of_s = worlds.start + k * spec.cycle_s
        found = reads.labels(pa.array(dids), as_of_s, spec)
        assert found.column_names == spec.labels_table.column_names
        assert {row.pop("did"): row for row in found.to_pylist()} == {
            did: expected(worlds, did, as_of_s, until_s) for did in dids
        }


def test_without_a_read_nothing_is_read() -> None:
    worlds = random_worlds(1, n_worlds=1)
    accesses, _ = tables_of(worlds)
    reads = labels.Reads(accesses.slice(0, 0).select(list(labels.COLUMNS)), until_s=worlds.start)
    (row,) = reads.labels(pa.array(["a:b"]), worlds.start - worlds.spec.cycle_s * 9, worlds.spec).to_pylist()
    assert {row[name] for name in worlds.spec.label_columns} == {0}
    assert row["next_access_s"] is None


def test_a_horizon_is_at_most_63_days() -> None:
    worlds = random_worlds(1, n_worlds=1, cycle_s=86400)
    accesses, _ = tables_of(worlds)
    reads = labels.Reads(accesses.select(list(labels.COLUMNS)), until_s=worlds.start)
    long = type(worlds.spec)(**{**vars(worlds.spec), "horizons_s": (64 * 86400,), "history_s": 100 * 86400})
    with pytest.raises(ValueError, match="at most 63 days, got 64d"):
        reads.labels(pa.array(["a:b"]), worlds.start, long)
