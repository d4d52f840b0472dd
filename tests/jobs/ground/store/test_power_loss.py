"""What a local table has left after a power loss: only what was synced, by the order of the calls."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from rejects_table import rejects

from features.common.errors import ConflictError
from features.schema import ACCESSES, REJECTS
from jobs.ground.store import locks
from jobs.ground.store.locks import alone_at, scratch_folder
from jobs.ground.store.tables import Tables
from jobs.loop.ingest.sources import workspace

DAYS = ("2026-03-01", "2026-03-02")


class Disk:
    """What would be there after a power loss now: names that a sync of their folder saw, synced files."""

    def __init__(self, top: Path) -> None:
        self._top = top
        self._names: dict[Path, set[str]] = {}
        self._contents: set[int] = set()
        self.commits: list[Path] = []

    def fsync(self, handle: int) -> None:
        path = Path(f"/proc/self/fd/{handle}").readlink()
        if path.is_dir():
            self._names[path] = {entry.name for entry in path.iterdir()}
        else:
            self._contents.add(path.stat().st_ino)

    def has(self, path: Path) -> bool:
        """Whether `path` would be found, and whole."""
        while path != self._top:
            if path.is_file() and path.stat().st_ino not in self._contents:
                return False
            if path.name not in self._names.get(path.parent, set()):
                return False
            path = path.parent
        return True

    def link(self, draft: Path, path: Path) -> None:
        """A commit is named: from now on a reader may see it."""
        self.commits.append(path)
        table = path.parent.parent
        assert draft.stat().st_ino in self._contents, "the commit's content was not synced"
        for part in json.loads(draft.read_bytes())["partitions"]:
            for name in part["files"]:
                assert self.has(table / part["path"] / name), f"{name} of {part['path']} could be lost"


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    watched, fsync, link = Disk(tmp_path), os.fsync, os.link

    def synced(handle: int) -> None:
        fsync(handle)
        watched.fsync(handle)

    def linked(draft: Path, path: Path) -> None:
        watched.link(draft, path)
        link(draft, path)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "link", linked)
    return watched


def both_days(n: int) -> pa.Table:
    """A row of each of `DAYS`."""
    return pa.concat_tables([rejects(day, n) for day in DAYS])


def test_a_commit_is_named_when_its_files_last_and_returned_when_it_does(disk: Disk, tmp_path: Path) -> None:
    tables = Tables(str(tmp_path / "site" / "tables"))
    for n in (1, 2):
        tables.replace_arrow(REJECTS, both_days(n))
        assert disk.has(disk.commits[-1]), "a commit that was reported could be lost"
    assert len(disk.commits) == 2


def test_each_folder_is_synced_once_a_commit(
    disk: Disk, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables.replace_arrow(REJECTS, both_days(1))
    calls: list[str] = []
    fsync = os.fsync

    def counted(handle: int) -> None:
        calls.append(str(Path(f"/proc/self/fd/{handle}").readlink()))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", counted)
    tables.replace_arrow(REJECTS, both_days(2))
    data = [path for path in calls if "/data-" in path]
    assert len(data) == len(set(data)) == 2 * len(DAYS) + 1  # files, their folders, and the data folder


WORK = """
import sys, time
from jobs.ground.store.locks import scratch_folder
with scratch_folder("walk-") as folder:
    (folder / "scores").write_text("x")
    print(folder, flush=True)
    time.sleep(600)
"""


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def aged(folder: Path) -> None:
    """Let a folder look as if nothing had been written into it for an hour."""
    os.utime(folder, (time.time() - 3600,) * 2)


@contextmanager
def at_work(shared: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """Another process with a folder of its own."""
    env = os.environ | {"TMPDIR": str(shared)}
    words = [sys.executable, "-c", WORK]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=env) as process:
        try:
            assert process.stdout is not None
            yield process, Path(process.stdout.readline().strip())
        finally:
            process.kill()


def test_the_folder_of_a_killed_process_goes_and_that_of_a_living_one_stays(shared: Path) -> None:
    with at_work(shared) as (process, theirs):
        aged(theirs)
        with scratch_folder("walk-") as ours:
            assert theirs.is_dir()
            assert ours.is_dir()
        assert not ours.exists()
        process.send_signal(signal.SIGKILL)
        process.wait()
        aged(theirs)
        with scratch_folder("walk-"):
            assert not theirs.exists()


def test_the_folder_of_a_process_that_is_not_seen_from_here_stays(
    shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be in another container, which shares the folder of temporary files."""
    monkeypatch.setattr(locks, "_account", lambda _: None)
    with at_work(shared) as (_, theirs):
        aged(theirs)
        with scratch_folder("walk-"):
            assert theirs.is_dir()


def test_what_a_killed_pull_had_on_the_disk_goes_with_the_next_one(shared: Path) -> None:
    left = shared / "cachecast-workspace-killed"
    left.mkdir()
    aged(left)
    with workspace.opened(ACCESSES):
        assert not left.exists()
    assert list(shared.iterdir()) == []


def test_a_holder_is_no_process_that_locks_a_file_of_this_number_on_another_disk(
    shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with at_work(shared) as (process, theirs):
        other, read = f"1: FLOCK ADVISORY WRITE 1 ff:ff:{theirs.stat().st_ino} 0 EOF\n", Path.read_text
        monkeypatch.setattr(Path, "read_text", lambda path: other + read(path))
        with pytest.raises(ConflictError, match=f"process {process.pid}\\)"), alone_at(theirs, "work"):
            pass


def test_a_young_folder_a_link_a_file_and_other_names_stay(shared: Path) -> None:
    precious = shared / "precious"
    for name in ("precious", "walk-young", "other-old"):
        (shared / name).mkdir()
    (shared / "walk-link").symlink_to(precious)
    (shared / "walk-file").write_text("x")
    for name in ("precious", "other-old", "walk-file"):
        aged(shared / name)
    before = set(shared.iterdir())
    with scratch_folder("walk-"):
        pass
    assert set(shared.iterdir()) == before
