"""Commits of a table: what a snapshot is, how it is kept, and how only one writer gets a number."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
import uuid
from collections.abc import Collection, Mapping
from pathlib import Path

import pyarrow.parquet as pq

from features.errors import SchemaError
from features.schema import Table
from jobs.conform import Key

_COMMIT = re.compile(r"(\d{12})\.json")


@dataclasses.dataclass(frozen=True)
class Partition:
    """One partition as committed. `path` is relative to the table; `digest` is over the files' bytes."""

    path: str
    n_rows: int
    digest: str
    files: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class StagedPartition:
    """Files written but not yet committed; `path` is relative to the table, empty for no rows."""

    path: str
    files: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """A table at one commit. `id` is the version of its data: equal content has an equal id.

    `number` is the commit's, 0 before the first; `root` the table's folder.
    """

    table: Table
    root: str
    number: int
    id: str
    partitions: Mapping[Key, Partition]

    @property
    def n_rows(self) -> int:
        """Rows in the whole table."""
        return sum(p.n_rows for p in self.partitions.values())

    def select(
        self,
        *,
        since: str | None = None,
        until: str | None = None,
        as_of: str | None = None,
        owner: str | None = None,
    ) -> dict[Key, Partition]:
        """The partitions of the days `since` … `until` (inclusive), of `as_of` and of `owner`, in order.

        `owner`: the region or cache, the last partition column where there is one.
        """
        names = self.table.partition
        owned = bool(names) and names[-1] in ("region", "cache")
        if (
            ((since or until) and "day" not in names)
            or (as_of and "as_of" not in names)
            or (owner and not owned)
        ):
            raise ValueError(f"table {self.table.name} has no such partition: it has {names}")
        return {
            key: part
            for key, part in sorted(self.partitions.items())
            if (since is None or key[0] >= since)
            and (until is None or key[0] <= until)
            and (as_of is None or key[1] == as_of)
            and (owner is None or key[-1] == owner)
        }


def seal(table: Table, folder: Path, staged: StagedPartition) -> Partition:
    """Make staged files last, count their rows and check their required columns."""
    required = {column.name for column in table.columns if column.required}
    n_rows, digests = 0, []
    for name in staged.files:
        path = folder / staged.path / name
        with path.open("rb") as file:
            os.fsync(file.fileno())
            digests.append(hashlib.file_digest(file, "sha256").hexdigest())
        metadata = pq.read_metadata(path)
        n_rows += metadata.num_rows
        _refuse_nulls(table, metadata, required)
    digest = hashlib.sha256("\n".join(sorted(digests)).encode()).hexdigest()
    return Partition(staged.path, n_rows, digest, staged.files)


def _refuse_nulls(table: Table, metadata: pq.FileMetaData, required: Collection[str]) -> None:
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for chunk in map(group.column, range(group.num_columns)):
            statistics = chunk.statistics if chunk.path_in_schema in required else None
            if statistics is not None and statistics.null_count:
                raise SchemaError(
                    f"table {table.name}: column {chunk.path_in_schema!r} holds {statistics.null_count} nulls"
                )


def snapshot_id(table: Table, partitions: Mapping[Key, Partition]) -> str:
    rows = [[list(key), part.digest, part.n_rows] for key, part in sorted(partitions.items())]
    return hashlib.sha256(json.dumps([table.name, rows]).encode()).hexdigest()


def dump(snapshot: Snapshot) -> str:
    rows = [
        {"key": list(key), **dataclasses.asdict(part)} for key, part in sorted(snapshot.partitions.items())
    ]
    return json.dumps({"number": snapshot.number, "id": snapshot.id, "partitions": rows}, indent=1)


def load(table: Table, folder: Path, number: int) -> Snapshot:
    raw = json.loads(commit_path(folder, number).read_text())
    partitions = {
        tuple(row["key"]): Partition(row["path"], row["n_rows"], row["digest"], tuple(row["files"]))
        for row in raw["partitions"]
    }
    return Snapshot(table, str(folder), number, raw["id"], partitions)


def commit_path(folder: Path, number: int) -> Path:
    return folder / "_commits" / f"{number:012d}.json"


def commit_numbers(folder: Path) -> list[int]:
    try:
        names = [path.name for path in (folder / "_commits").iterdir()]
    except FileNotFoundError:
        return []
    return sorted(int(match[1]) for name in names if (match := _COMMIT.fullmatch(name)))


def put_if_absent(folder: Path, name: str, text: str) -> bool:
    """Create `folder/name` whole, or not at all; False if it is there already."""
    folder.mkdir(parents=True, exist_ok=True)
    draft = folder / f".{uuid.uuid4().hex}.draft"
    with draft.open("x") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(draft, folder / name)
    except FileExistsError:
        return False
    finally:
        draft.unlink()
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
    return True
