"""Traces from arrays and from Arrow tables."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.errors import InputError, SchemaError
from replay.arrow import from_arrow
from replay.trace import Trace

START = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)


def accesses(*rows):
    """Rows (seconds after START, did, size_bytes, n_reads, event_id)."""
    columns = list(zip(*rows, strict=True)) or [[]] * 5
    return pa.table(
        {
            "accessed_at": pa.array(
                [START + dt.timedelta(seconds=s) for s in columns[0]], pa.timestamp("us", tz="UTC")
            ),
            "did": pa.array(columns[1], pa.string()),
            "size_bytes": pa.array(columns[2], pa.int64()),
            "n_reads": pa.array(columns[3], pa.int64()),
            "event_id": pa.array(columns[4], pa.string()),
        }
    )


def test_rows_are_ordered_by_time_and_event():
    table = accesses((5, "b", 2, 1, "y"), (5, "a", 1, 1, "x"), (1.5, "b", 2, 2, "z"))
    trace, dropped = from_arrow(table)
    assert (trace.time_s - int(START.timestamp())).tolist() == [1, 1, 5, 5]
    assert [trace.names[i].as_py() for i in trace.item] == ["b", "b", "a", "b"]
    assert dropped == 0


def test_a_size_is_the_first_stated_then_the_catalogues_then_unknown():
    table = accesses(
        (1, "a", None, 1, "1"),
        (2, "a", 7, 1, "2"),
        (3, "a", 9, 1, "3"),
        (4, "b", None, 1, "4"),
        (5, "c", None, 1, "5"),
    )
    files = pa.table({"did": ["d", "b", "a"], "size_bytes": [4, 2, 1]})
    trace, dropped = from_arrow(table, files=files)
    assert dict(zip(trace.names.to_pylist(), trace.size_bytes.tolist(), strict=True)) == {
        "a": 7,
        "b": 2,
        "d": 4,
    }
    assert (dropped, trace.item.tolist(), trace.footprint_bytes) == (1, [0, 0, 0, 1], 9)


@pytest.mark.parametrize(
    ("table", "error", "match"),
    [
        (accesses((1, "a", 1, 1, "x")).drop(["n_reads"]), SchemaError, "n_reads"),
        (accesses((1, "a", 1, 1, "x"), (2, "a", -3, 1, "y")), InputError, "row 1 has size_bytes -3"),
        (accesses((1, "a", 1, 0, "x")), InputError, "row 0 has n_reads 0"),
        (accesses((1, "a", 1, 1, "x"), (2, None, 1, 1, "y")), InputError, "row 1 has no did"),
        (accesses(), InputError, "no row"),
        (accesses((1, "a", None, 1, "x")), InputError, "known size"),
    ],
)
def test_faults_are_named(table, error, match):
    with pytest.raises(error, match=match):
        from_arrow(table)


def test_a_catalogue_with_a_file_twice_is_refused():
    files = pa.table({"did": ["a", "a"], "size_bytes": [1, 1]})
    with pytest.raises(InputError, match="twice"):
        from_arrow(accesses((1, "a", 1, 1, "x")), files=files)


@pytest.mark.parametrize(
    ("time_s", "item", "size", "match"),
    [
        ([], [], [1], "no access"),
        ([1, 0], [0, 0], [1], "access 1 is earlier"),
        ([1], [3], [1], "access 0 reads item 3"),
        ([1], [0], [-1], "item 0 has -1 bytes"),
        ([1, 2], [0], [1], "2 times"),
    ],
)
def test_arrays_that_are_no_trace(time_s, item, size, match):
    with pytest.raises(InputError, match=match):
        Trace(np.array(time_s, np.int64), np.array(item, np.int32), np.array(size, np.int64))


@given(st.lists(st.integers(0, 5), min_size=1, max_size=40))
def test_following_equals_a_search(items):
    trace = Trace(np.arange(len(items)), np.array(items), np.ones(6, np.int64))
    for i, found in enumerate(trace.following.tolist()):
        assert found == next((j for j in range(i + 1, len(items)) if items[j] == items[i]), len(items))
