"""Commits of a table, of which only one writer can create each number; snapshots, and the rows of files."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import pyarrow as pa

from features.common import strict_json
from features.common.errors import SchemaError, ServiceError
from features.schema import Table, arrow_schema
from jobs.ground.store.filesystems import Store, store_at
from jobs.ground.store.keys import Key

COMMITS = "_commits"
_log = logging.getLogger(__name__)
_COMMIT = re.compile(r"(\d{12})\.json")


@dataclasses.dataclass(frozen=True)
class Partition:
    """One committed partition. `path` is relative to the table; `digest` is over the files' bytes."""

    path: str
    n_rows: int
    digest: str
    files: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class StagedFile:
    """A data file of partition `key` that is checked and durable, but not committed.

    `folder`: the partition's, relative to the table's; `digest`: hex SHA-256 of the file's bytes.
    """

    key: Key
    folder: str
    name: str
    n_rows: int
    digest: str


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


def partitions_of(files: Iterable[StagedFile], cover: Iterable[Key]) -> dict[Key, Partition]:
    """The partitions that `files` make up; those of `cover` that have no file are empty."""
    by_key: dict[Key, list[StagedFile]] = {key: [] for key in cover}
    for file in files:
        by_key.setdefault(file.key, []).append(file)
    return {key: _partition(some) for key, some in by_key.items()}


def _partition(files: Sequence[StagedFile]) -> Partition:
    digest = hashlib.sha256("\n".join(sorted(file.digest for file in files)).encode()).hexdigest()
    path = files[0].folder if files else ""
    return Partition(path, sum(file.n_rows for file in files), digest, tuple(file.name for file in files))


def snapshot_id(table: Table, partitions: Mapping[Key, Partition]) -> str:
    """The id of a snapshot with these partitions, as hex: equal content has an equal id."""
    rows = [[list(key), part.digest, part.n_rows] for key, part in sorted(partitions.items())]
    return hashlib.sha256(json.dumps([table.name, rows]).encode()).hexdigest()


def dump(snapshot: Snapshot) -> str:
    """The content of a commit file, which `load` reads."""
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
    """The name of the file of commit `number`, relative to the table's folder."""
    return f"{COMMITS}/{number:012d}.json"


def commit_numbers(store: Store) -> list[int]:
    """The numbers of a table's commits, ascending; empty without one."""
    return sorted(int(match[1]) for name in store.names(COMMITS) if (match := _COMMIT.fullmatch(name)))


def read_partitions(
    snapshot: Snapshot, chosen: Mapping[Key, Partition], columns: Sequence[str] | None = None
) -> pa.Table:
    """The rows of `chosen` partitions of `snapshot`, with the partition columns; see `Tables.read_arrow`."""
    table, store = snapshot.table, store_at(snapshot.root)
    schema = arrow_schema(table)
    names = list(columns) if columns is not None else [*schema.names, *table.partition]
    if unknown := [name for name in names if name not in {*schema.names, *table.partition}]:
        raise SchemaError(f"table {table.name} has no columns {unknown}")
    n_rows = sum(part.n_rows for part in chosen.values())
    sizes = (len(chosen), n_rows, table.name, snapshot.number, snapshot.root)
    _log.info("read %d partitions, %d rows of table %s at commit %d, %s", *sizes)
    types = {**{f.name: f.type for f in schema}, **dict.fromkeys(table.partition, pa.string())}
    stored = [name for name in names if name not in table.partition]
    pieces = [pa.schema([(name, types[name]) for name in names]).empty_table()]
    for key, part in chosen.items():
        for name in part.files:
            path = f"{part.path}/{name}"
            with _there(f"table {table.name}: {snapshot.root}/{path}"):
                piece = store.read_parquet(path, columns=stored, schema=schema)
                n_rows = piece.num_rows if stored else store.parquet_metadata(path).num_rows
            constant = {n: pa.repeat(pa.scalar(v), n_rows) for n, v in zip(table.partition, key, strict=True)}
            arrays = {n: constant[n] if n in constant else piece[n].cast(types[n]) for n in names}
            pieces.append(pa.table(arrays))
    return pa.concat_tables(pieces)


@contextmanager
def _there(file: str) -> Iterator[None]:
    """Raise ServiceError if a file that a commit names is found missing or damaged while the block runs."""
    try:
        yield
    except (FileNotFoundError, pa.ArrowException) as error:
        what = "is missing" if isinstance(error, FileNotFoundError) else f"is damaged: {error}"
        raise ServiceError(f"{file} {what}; restore it from a copy of the tables") from None
