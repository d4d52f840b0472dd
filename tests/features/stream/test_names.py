"""Names and numbers as sets and sorted lists have them; rows divided among workers equal the whole."""

import datetime as dt
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import coded, random_worlds, tables_of

from features.schema import ACCESSES, arrow_schema
from features.stream import events
from features.stream.facts import CATALOGUE, Stored
from features.stream.names import absent, divided, merged, part_of
from features.stream.region import Region, dataset_parts

READS = pa.schema([arrow_schema(ACCESSES).field(name).with_nullable(True) for name in events.COLUMNS])
NAMES = pa.chunked_array([["a", "b", "", "a"], [], ["ä", "b"]], pa.string())


def test_a_part_depends_on_the_name_alone() -> None:
    plain = part_of(NAMES, 7)
    assert plain.tolist() == [part_of(pa.array([name]), 7)[0] for name in NAMES.to_pylist()]
    assert plain.tolist() == part_of(NAMES.dictionary_encode(), 7).tolist()
    assert plain[3:].tolist() == part_of(NAMES.combine_chunks().slice(3), 7).tolist()
    assert part_of(pa.array([], pa.string()), 7).size == 0
    many = part_of(pa.array([f"s:file-{k}" for k in range(10_000)]), 8)
    assert np.bincount(many, minlength=8).min() > 1000


def test_a_hash_of_a_read_is_of_all_that_features_use_and_of_nothing_else() -> None:
    rows = coded(tables_of(random_worlds(1, n_worlds=1))[0].select(events.COLUMNS))[:1]
    first = {name: rows[name][0].as_py() for name in rows.column_names}
    others = {"did": "w0:x", "size_bytes": 0, **dict.fromkeys(("dataset", "tier", "campaign"), "")}
    others |= {"user": "", "task": ""}
    reads = [first | dict.fromkeys(others), first | others]
    reads += [first | dict.fromkeys(others) | {name: value} for name, value in others.items()]
    reads += [
        first | {"user": "u", "task": None},
        first | {"user": None, "task": "u"},
        first | {"n_reads": 77},
    ]
    later = {name: first[name] + dt.timedelta(microseconds=1) for name in ("accessed_at", "known_at")}
    reads += [first | {name: time} for name, time in later.items()]
    table = pa.Table.from_pylist(reads, READS)
    hashes = events.read_hashes(coded(table))
    assert len(set(hashes.tolist())) == len(reads)
    backwards = events.read_hashes(coded(table.take(list(range(len(reads)))[::-1])))
    assert backwards.tolist() == hashes[::-1].tolist()
    assert events.read_hashes(coded(table[:0])).size == 0


def halves(
    reads: pa.Table, files: pa.Table, stored: Stored, n_parts: int, cycle_s: int
) -> list[tuple[pa.Table, pa.Table, Stored]]:
    """What is known, divided by dataset."""
    of_dataset = dataset_parts(reads, files, stored, n_parts, cycle_s=cycle_s)
    tables = zip((reads, files, stored.rows), of_dataset, strict=True)
    parts = [dict(divided(rows, part, n_parts)) for rows, part in tables]
    empty = (reads.slice(0, 0), files.slice(0, 0), stored.rows.slice(0, 0))
    each = [[some.get(k, none) for some, none in zip(parts, empty, strict=True)] for k in range(n_parts)]
    return [(r, f, Stored.of_rows(s)) for r, f, s in each]


@pytest.mark.parametrize("seed", range(4))
def test_parts_by_dataset_have_the_features_and_the_state_of_the_whole(seed: int) -> None:
    worlds = random_worlds(seed, n_worlds=12)
    spec = worlds.spec
    first, second = (worlds.start + k * spec.cycle_s for k in (7, 14))
    accesses, files = (coded(table) for table in tables_of(worlds))
    files = files.select(list(CATALOGUE))
    from_s = events.usable(accesses, cycle_s=spec.cycle_s)

    def computed(
        known: tuple[pa.Table, pa.Table, Stored], as_of_s: int
    ) -> tuple[dict[str, Any], dict[tuple[str, str], str], Stored]:
        region = Region(*known, spec)
        features = {row["did"]: row for row in region.features(as_of_s).to_pylist()}
        stored = region.stored(as_of_s)
        return features, {(row["kind"], row["entity"]): repr(row) for row in stored.rows.to_pylist()}, stored

    stored = Stored.empty()
    for as_of_s, is_new in ((first, from_s <= first), (second, (from_s > first) & (from_s <= second))):
        known = accesses.filter(pa.array(is_new)).select(list(events.COLUMNS)), files, stored
        features, states, stored = computed(known, as_of_s)
        together: tuple[dict[str, Any], dict[Any, str]] = ({}, {})
        for part in halves(*known, 3, spec.cycle_s):
            some, parents, _ = computed(part, as_of_s)
            assert not together[0].keys() & some.keys()
            assert not together[1].keys() & parents.keys()
            together[0].update(some)
            together[1].update(parents)
        assert features
        assert repr(sorted(together[0].items())) == repr(sorted(features.items()))
        assert together[1] == states


SETS = st.sets(st.text("ab\u00e9\U0001f4be\x00", max_size=4), max_size=12)


@settings(deadline=None)
@given(first=SETS, others=st.tuples(SETS, SETS), seed=st.integers(0, 99), is_sorted=st.booleans())
def test_every_name_has_its_place_among_all(
    first: set[str], others: tuple[set[str], set[str]], seed: int, is_sorted: bool
) -> None:
    rng = random.Random(seed)
    lists = [sorted(first, key=str.encode), *([*some, *some] for some in others)]
    for names in lists if not is_sorted else lists[1:]:
        rng.shuffle(names)
    columns = [pa.chunked_array([pa.array(["a", *lists[0]], pa.string())[1:]])]
    columns += [pa.chunked_array([pa.array(names, pa.string()).dictionary_encode()]) for names in lists[1:]]
    every, numbers = merged(columns)
    expected = sorted(first.union(*others), key=str.encode)
    assert every.to_pylist() == expected
    for names, codes in zip(lists, numbers, strict=True):
        assert [expected[k] for k in codes] == names
        assert codes.dtype == np.int32


@settings(deadline=None)
@given(expected=SETS, there=SETS, cut=st.integers(0, 12))
def test_names_that_are_not_in_a_column(expected: set[str], there: set[str], cut: int) -> None:
    known = sorted(there, key=str.encode)
    column = pa.chunked_array([pa.array(known[:cut], pa.string()), pa.array(known[cut:][::-1], pa.string())])
    missing = absent(pa.array(sorted(expected), pa.string()), column)
    assert missing.to_pylist() == [name for name in sorted(expected) if name not in there]
