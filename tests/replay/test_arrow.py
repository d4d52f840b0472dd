"""Traces from arrays and from the house's tables in memory; their datasets, kinds and readers."""

import datetime as dt
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.common.errors import InputError, SchemaError
from replay.access_context import CONTEXT, MOST_KINDS, context_of, extension, extensions, kind_numbers
from replay.read import read_trace
from replay.read.assemble import from_arrow
from replay.trace import Trace

START = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)


def accesses(*rows: tuple[Any, ...]) -> pa.Table:
    """Rows (seconds after START, did, size_bytes, n_reads, event_id)."""
    columns: list[Any] = list(zip(*rows, strict=True)) or [[]] * 5
    return pa.table(
        {
            "accessed_at": times(columns[0]),
            "did": pa.array(columns[1], pa.string()),
            "size_bytes": pa.array(columns[2], pa.int64()),
            "n_reads": pa.array(columns[3], pa.int64()),
            "event_id": pa.array(columns[4], pa.string()),
        }
    )


def times(seconds: Any) -> pa.Array:
    at = [None if s is None else START + dt.timedelta(seconds=s) for s in seconds]
    return pa.array(at, pa.timestamp("us", tz="UTC"))


def since_start(values: Any) -> list[int]:
    return [int(value) - int(START.timestamp()) for value in values]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.text("ab", min_size=1, max_size=2)), min_size=1, max_size=20))
def test_any_order_of_rows_gives_the_same_trace(rows: Any) -> None:
    table = accesses(*((at, f"f{i}", i + 1, 1, f"{event}{i}") for i, (at, event) in enumerate(rows)))
    expected = sorted((at, f"{event}{i}", f"f{i}") for i, (at, event) in enumerate(rows))
    chunks = pa.concat_tables([table.slice(i, 3) for i in range(0, len(rows), 3)])
    for form in (table, chunks, table.take(list(range(len(rows)))[::-1])):
        trace = from_arrow(form).trace
        assert since_start(trace.time_s) == [at for at, _, _ in expected]
        assert [trace.names[i].as_py() for i in trace.item] == [name for _, _, name in expected]


def test_a_size_is_the_catalogues_then_what_most_rows_state_then_unknown() -> None:
    table = accesses(
        (1, "a", None, 1, "1"),
        (2, "a", 7, 1, "2"),
        (3, "a", 9, 1, "3"),
        (3, "a", 9, 1, "6"),
        (4, "b", None, 1, "4"),
        (5, "c", None, 1, "5"),
    )
    files = pa.table({"did": ["d", "b", "a"], "size_bytes": [4, 2, 0]})
    loaded = from_arrow(table, files=files)
    trace = loaded.trace
    assert dict(zip(trace.names.to_pylist(), trace.size_bytes.tolist(), strict=True)) == {
        "a": 9,
        "b": 2,
        "d": 4,
    }
    assert (trace.item.tolist(), trace.footprint_bytes) == ([0, 0, 0, 0, 1], 11)
    assert loaded.notes == (
        "rows left out, since no source knows their file's size: 1",
        "rows that state another size than the catalogue or most rows, which counts: 1 (2 B off)",
    )


def test_closes_and_reads_are_taken_where_stated() -> None:
    table = accesses((1, "a", 10, 1, "1"), (2, "a", 10, 1, "2"), (3, "a", 10, 2, "3"), (4, "a", 10, 1, "4"))
    table = table.append_column("closed_at", times([5, None, 2, 4]))
    table = table.append_column("read_bytes", pa.array([4, None, 18, 11]))
    loaded = from_arrow(table)
    assert since_start(loaded.trace.close_s) == [5, 2, 3, 3, 4]
    assert loaded.trace.read_bytes.tolist() == [4, 10, 9, 9, 10]
    assert loaded.notes == (
        "accesses that close before they open, taken as closed at once: 2",
        "accesses that read more than their file's size, taken as read whole: 1",
    )


def test_a_site_is_chosen_before_sizes_are_looked_for() -> None:
    table = accesses((1, "a", 1, 1, "1"), (2, "a", 2, 1, "2"), (3, "b", 3, 1, "3"))
    table = table.append_column("site", pa.array(["X", "Y", "Y"]))
    trace = from_arrow(table, only={"site": "Y"}).trace
    assert trace.names.to_pylist() == ["a", "b"]
    assert trace.size_bytes.tolist() == [2, 3]
    with pytest.raises(InputError, match="no access of site 'Z'; its sites are X, Y"):
        from_arrow(table, only={"site": "Z"})


@pytest.mark.parametrize(
    ("table", "error", "match"),
    [
        (accesses((1, "a", 1, 1, "x")).drop(["did"]), SchemaError, "no column did; it has accessed_at"),
        (accesses((1, "a", 1, 1, "x"), (2, "a", -3, 1, "y")), InputError, "row 2 has size_bytes -3"),
        (accesses((1, "a", 1, 0, "x")), InputError, "row 1 has n_reads 0"),
        (accesses((1, "a", 1, 1, "x"), (2, None, 1, 1, "y")), InputError, "row 2 has no did"),
        (accesses((1, "a", 1, 1, "x"), (None, "a", 1, 1, "y")), InputError, "row 2 has no accessed_at"),
        (accesses((1, "a", 1, 1, "x"), (1, "a", 1, 1, None)), InputError, "row 2 has no event_id"),
        (accesses(), InputError, "no row"),
        (accesses((1, "a", None, 1, "x")), InputError, "known size"),
    ],
)
def test_faults_are_named(table: Any, error: Any, match: str) -> None:
    with pytest.raises(error, match=match):
        from_arrow(table)


def test_a_catalogue_with_a_file_twice_is_refused() -> None:
    files = pa.table({"did": ["a", "a"], "size_bytes": [1, 1]})
    with pytest.raises(InputError, match="twice"):
        from_arrow(accesses((1, "a", 1, 1, "x")), files=files)
    with pytest.raises(SchemaError, match="files has no column size_bytes"):
        from_arrow(accesses((1, "a", 1, 1, "x")), files=files.drop(["size_bytes"]))


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
def test_arrays_that_are_no_trace(time_s: Any, item: list[int], size: Any, match: str) -> None:
    with pytest.raises(InputError, match=match):
        Trace(np.array(time_s, np.int64), np.array(item, np.int32), np.array(size, np.int64))


@given(st.lists(st.integers(0, 5), min_size=1, max_size=40))
def test_following_equals_a_search(items: list[int]) -> None:
    trace = Trace(np.arange(len(items)), np.array(items), np.ones(6, np.int64))
    for i, next_at in enumerate(trace.following.tolist()):
        assert next_at == next((j for j in range(i + 1, len(items)) if items[j] == items[i]), len(items))


ROWS = """\
time,item,size,ds,who,job
1,/a/x.root,5,A,ann,7
2,/a/y.root,5,,bob,7
3,/b/z.h5,5,B,ann,
4,/a/x.root,5,A,,8
5,plain,5,,,
"""


def loaded(folder: Path, **columns: str):  # type: ignore[no-untyped-def]
    path = folder / "t.csv"
    path.write_text(ROWS)
    return read_trace(path, columns=columns, keep=CONTEXT)


def test_a_file_belongs_to_its_dataset_else_to_its_folder_else_to_itself(tmp_path: Path) -> None:
    context = context_of(loaded(tmp_path, dataset="ds"))
    assert context.files.dataset.tolist() == [0, 1, 2, 3]
    by_folder = context_of(loaded(tmp_path))
    assert by_folder.files.dataset.tolist() == [0, 0, 1, 2]
    assert by_folder.n_datasets == 3
    assert by_folder.files.n_files.tolist() == [0, 0, 0]


def test_a_reader_is_a_task_else_a_user_else_nobody(tmp_path: Path) -> None:
    both = context_of(loaded(tmp_path, user="who"))
    assert both.reader.tolist() == [2, 2, 1, 4, 0]
    users = context_of(loaded(tmp_path, user="who", task=""))
    assert users.reader.tolist() == [1, 3, 1, 0, 0]
    assert context_of(loaded(tmp_path, task="")).reader.tolist() == [0] * 5


def test_another_trace_numbers_kinds_by_a_vocabulary_that_was_kept() -> None:
    numbers = kind_numbers(pa.array(["a/x.nwb", "b.root", "c.tar", "plain"]), ("root", "", "nwb"))
    assert numbers.tolist() == [2, 0, MOST_KINDS, 1]
    assert kind_numbers(pa.array(["a.root"]), ()).tolist() == [MOST_KINDS]
    versions = ["a.pool.root.1", "a.root.12.3", "pkg_0.4.3.321909"]
    assert kind_numbers(pa.array(versions), ("", "root")).tolist() == [1, 1, 0], "a version is no kind"


@given(st.lists(st.text("a.0/\n9é", max_size=20)))
def test_a_name_alone_has_the_kind_that_it_has_in_a_table(names: list[str]) -> None:
    assert extensions(pa.array(names, pa.string())).to_pylist() == [extension(name) for name in names]
