"""A namespace is read by a process of its own as it is read here."""

from __future__ import annotations

import multiprocessing
import os
from itertools import islice
from pathlib import Path

import pytest

from features.common.errors import InputError, TargetUnavailable
from prefetch.xcache import holdings
from prefetch.xcache.cinfo import AccessRecord, CInfo, dump
from prefetch.xcache.client import XCacheTarget
from prefetch.xcache.holdings import held_below, held_by_processes
from prefetch.xcache.namespace import Part

MB = 10**6


def namespace_of(folder: Path, n_files: int) -> Path:
    for at in range(n_files):
        path = folder / f"store/d{at % 7}/f{at}.root.cinfo"
        path.parent.mkdir(parents=True, exist_ok=True)
        access = AccessRecord(100 + at, 200 + at if at % 3 else 0, 1, 9, 0, 0, MB * (at % 2), 0, 0)
        path.write_bytes(dump(CInfo(MB, 2 * MB - at, 90, 0, 1, 0, bytes([at % 4]), (access,))))
    return folder


def test_both_ways_show_the_same(tmp_path: Path) -> None:
    namespace = namespace_of(tmp_path, 2 * holdings.FILES_AT_ONCE + 3)
    (namespace / "store/d0/bad.root.cinfo").write_bytes(b"no record")
    here = sorted(held_below(namespace), key=lambda held: held.name)
    assert sorted(held_by_processes(namespace), key=lambda held: held.name) == here
    assert len({held.name for held in here}) == 2 * holdings.FILES_AT_ONCE + 4
    assert [held.name for held in here if held.unreadable] == ["/store/d0/bad.root"]
    assert {held.complete for held in here} == {True, False} == {held.is_open for held in here}


def test_parts_make_the_whole(tmp_path: Path) -> None:
    namespace = namespace_of(tmp_path, 50)
    parts = [[held.name for held in held_below(namespace, part=Part(at, 3))] for at in range(3)]
    assert sorted(name for part in parts for name in part) == sorted(
        held.name for held in held_below(namespace)
    )
    assert all(len(part) < 50 for part in parts)


def test_an_empty_namespace_shows_nothing_and_one_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    assert list(held_by_processes(tmp_path)) == []
    for walk in (held_by_processes, held_below):
        with pytest.raises(InputError, match="cannot read namespace"):
            list(walk(tmp_path / "gone"))


def test_a_namespace_that_goes_away_is_no_end_of_the_files(tmp_path: Path) -> None:
    """Also where processes walk."""
    namespace = namespace_of(tmp_path / "ns", 6 * holdings.FILES_AT_ONCE)
    files = held_by_processes(namespace)
    next(files)
    namespace.rename(tmp_path / "away")
    with pytest.raises(InputError, match="cannot read namespace"):
        list(files)


def test_names_that_cannot_be_asked_about_are_no_files_of_the_cache_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Once they are gone, the question whether they are would be refused for ever; their bytes are in use."""
    namespace = namespace_of(tmp_path, 1)
    record = (namespace / "store/d0/f0.root.cinfo").read_bytes()
    for odd in (b"two\nlines", b"no text \xff", b" space"):
        Path(os.fsdecode(bytes(namespace / "store") + b"/" + odd + b".cinfo")).write_bytes(record)
    (namespace / "store/ space").write_bytes(bytes(8192))
    target = XCacheTarget("xc", "root://127.0.0.1:1", namespace)
    names, walk = list[str](), target.inventory()
    with pytest.raises(TargetUnavailable):  # nobody serves it
        names += (held.name for held in walk)
    assert (target.left_out.n_files, target.left_out.n_bytes, len(target.left_out.some)) == (3, 8192, 3)
    assert "names of 3 files" in caplog.text


def test_a_process_that_is_killed_is_no_end_of_the_files(tmp_path: Path) -> None:
    namespace = namespace_of(tmp_path, 6 * holdings.FILES_AT_ONCE)
    files = held_by_processes(namespace)
    next(files)
    for child in multiprocessing.active_children():
        child.kill()
    with pytest.raises(TargetUnavailable, match="has ended early"):
        list(files)


def test_a_walk_that_is_given_up_leaves_no_process(tmp_path: Path) -> None:
    files = held_by_processes(namespace_of(tmp_path, 6 * holdings.FILES_AT_ONCE))
    assert len(list(islice(files, 5))) == 5
    assert multiprocessing.active_children()
    files.close()
    assert not multiprocessing.active_children()
