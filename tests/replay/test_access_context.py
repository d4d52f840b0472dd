"""Datasets, kinds and readers of a trace."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from replay.access_context import CONTEXT, MOST_KINDS, context_of, kind_numbers
from replay.read import read_trace

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
    told = context_of(loaded(tmp_path, dataset="ds"))
    assert told.files.dataset.tolist() == [0, 1, 2, 3]
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


def test_kinds_are_extensions(tmp_path: Path) -> None:
    assert context_of(loaded(tmp_path)).files.tier.tolist() == [0, 0, 1, 2]


def test_another_trace_numbers_kinds_by_a_vocabulary_that_was_kept() -> None:
    numbers = kind_numbers(pa.array(["a/x.nwb", "b.root", "c.tar", "plain"]), ("root", "", "nwb"))
    assert numbers.tolist() == [2, 0, MOST_KINDS, 1]
    assert kind_numbers(pa.array(["a.root"]), ()).tolist() == [MOST_KINDS]
    versions = ["a.pool.root.1", "a.root.12.3", "pkg_0.4.3.321909"]
    assert kind_numbers(pa.array(versions), ("", "root")).tolist() == [1, 1, 0], "a version is no kind"
