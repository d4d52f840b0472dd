"""What a local table has left after a power loss: only what was synced, by the order of the calls."""

import json
import os
from pathlib import Path

import pyarrow as pa
import pytest

from features.schema import REJECTS, Table, arrow_schema
from jobs.ground.store.tables import Tables

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


def rows(table: Table, *n_rows: int) -> pa.Table:
    schema = arrow_schema(table).append(pa.field("day", pa.string(), nullable=False))
    return pa.Table.from_pylist(
        [
            {"source": "s", "input": f"i{n}", "reason": "r", "n_rows": n, "sample": None, "day": day}
            for n in n_rows
            for day in DAYS
        ],
        schema=schema,
    )


def test_a_commit_is_named_when_its_files_last_and_returned_when_it_does(disk: Disk, tmp_path: Path) -> None:
    tables = Tables(str(tmp_path / "site" / "tables"))
    for n in (1, 2):
        tables.replace_arrow(REJECTS, rows(REJECTS, n))
        assert disk.has(disk.commits[-1]), "the commit could be lost after it was told"
    assert len(disk.commits) == 2


def test_each_folder_is_synced_once_a_commit(
    disk: Disk, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables.replace_arrow(REJECTS, rows(REJECTS, 1))
    calls: list[str] = []
    fsync = os.fsync

    def counted(handle: int) -> None:
        calls.append(str(Path(f"/proc/self/fd/{handle}").readlink()))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", counted)
    tables.replace_arrow(REJECTS, rows(REJECTS, 2))
    data = [path for path in calls if "/data-" in path]
    assert len(data) == len(set(data)) == 2 * len(DAYS) + 1  # files, their folders, and the data folder
