"""Commits of a table: snapshots, and their files, of which only one writer can create each number."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Collection, Mapping

import pyarrow.parquet as pq

from features import strict_json
from features.errors import SchemaError
from features.schema import Table
from jobs.store.filesystems import Store
from jobs.store.keys import Key

COMMITS = "_commits"
_COMMIT = re.compile(r"(\d{12})\.json")


@dataclasses.dataclass(frozen=True)
class Partition:
    """One committed partition. `path` is relative to the table; `digest` is over the files' bytes."""

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

    `number`: that of the commit, 0 before the first; `root`: the table's folder, as named by Spark and
    `store_at`.
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


def seal(table: Table, store: Store, staged: StagedPartition) -> Partition:
    """Make staged files durable, count their rows and check required columns; `store` is the table's."""
    required = {column.name for column in table.columns if column.required}
    n_rows, digests = 0, []
    for name in staged.files:
        path = f"{staged.path}/{name}"
        digests.append(store.settle(path))
        metadata = store.parquet_metadata(path)
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


def load(table: Table, store: Store, number: int) -> Snapshot:
    """The table at commit `number`. Raises SchemaError if the commit is damaged."""
    name = commit_name(number)
    try:
        raw = strict_json.loads(store.read(name))
        partitions = {
            tuple(row["key"]): Partition(row["path"], row["n_rows"], row["digest"], tuple(row["files"]))
            for row in raw["partitions"]
        }
        return Snapshot(table, store.root, number, raw["id"], partitions)
    except (ValueError, KeyError, TypeError) as error:
        raise SchemaError(
            f"table {table.name}: {store.root}/{name} is damaged ({error!r}); restore it from a backup"
        ) from None


def commit_name(number: int) -> str:
    return f"{COMMITS}/{number:012d}.json"


def commit_numbers(store: Store) -> list[int]:
    return sorted(int(match[1]) for name in store.names(COMMITS) if (match := _COMMIT.fullmatch(name)))
