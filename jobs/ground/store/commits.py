"""Partitions of a table; commits, of which only one writer can create each number; and the rows of files."""

from __future__ import annotations

import dataclasses
import datetime as dt
import errno
import functools
import hashlib
import json
import logging
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import pyarrow as pa

from features.common import strict_json
from features.common.errors import SchemaError, ServiceError, bounded
from features.common.times import as_of_label, day_label
from features.schema import Table, arrow_schema
from jobs.ground.store.filesystems import Store, store_at

COMMITS = "_commits"
_log = logging.getLogger(__name__)
_COMMIT = re.compile(r"(\d{12})\.json")
_FORM = {"day": "%Y-%m-%d", "as_of": "%Y-%m-%dT%H:%M:%SZ"}
_OWNER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
Key = tuple[str, ...]  # of a partition: its values, in the order of the table's partition columns


class MomentKey(NamedTuple):
    """The partition of one `as_of` and one owner (a region, cache or queue), below its day."""

    day: str
    as_of: str
    owner: str

    @classmethod
    def at(cls, as_of_s: int, owner: str) -> MomentKey:
        """The partition of `owner` at `as_of_s` seconds since 1970."""
        return cls(day_label(as_of_s), as_of_label(as_of_s), owner)


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

    def rows(self, columns: Sequence[str] | None = None, **where: str | None) -> pa.Table:
        """The rows of the partitions that `select` finds by `where`, as `read_partitions` reads them."""
        return read_partitions(self, self.select(**where), columns)

    def rows_of(self, keys: Iterable[Key], columns: Sequence[str] | None = None) -> pa.Table:
        """The rows of those of the partitions `keys` that there are, read in the same way."""
        partitions = {key: self.partitions[key] for key in keys if key in self.partitions}
        return read_partitions(self, partitions, columns)


def partitions_of(files: Iterable[StagedFile], cover: Iterable[Key]) -> dict[Key, Partition]:
    """The partitions that `files` make up; those of `cover` that have no file are empty."""
    by_key: dict[Key, list[StagedFile]] = {key: [] for key in cover}
    for file in files:
        by_key.setdefault(file.key, []).append(file)
    partitions = dict[Key, Partition]()
    for key, some in by_key.items():
        digest = hashlib.sha256("\n".join(sorted(file.digest for file in some)).encode()).hexdigest()
        path, names = some[0].folder if some else "", tuple(file.name for file in some)
        partitions[key] = Partition(path, sum(file.n_rows for file in some), digest, names)
    return partitions


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
            checked_key(table, tuple(row["key"])): Partition(
                row["path"], row["n_rows"], row["digest"], tuple(row["files"])
            )
            for row in raw["partitions"]
        }
        if len(partitions) < len(raw["partitions"]):
            raise ValueError("a partition stands there twice")
        return Snapshot(table, store.root, number, raw["id"], partitions)
    except (ValueError, KeyError, TypeError, SchemaError) as error:
        what = bounded(str(error) if isinstance(error, SchemaError) else repr(error), 300)
        raise SchemaError(
            f"table {table.name}: {store.root}/{name} is damaged ({what}); restore it from a backup"
        ) from None


def checked_key(table: Table, key: Key) -> Key:
    """`key`, checked to be safe in a path. Raises SchemaError for a malformed partition value."""
    if len(key) != len(table.partition):
        raise SchemaError(f"table {table.name}: {key} is no partition of {table.partition}")
    for name, value in zip(table.partition, key, strict=True):
        if not (_is_moment(value, _FORM[name]) if name in _FORM else _OWNER.fullmatch(value)):
            form = _FORM.get(name, "letters, digits, dots, dashes")
            text = bounded(repr(value), 100)
            raise SchemaError(f"table {table.name}: {name} {text} is not written as {form}")
    return key


@functools.lru_cache(2**16)  # a commit of a year has some 10 000 keys, and is loaded again and again
def _is_moment(text: str, form: str) -> bool:
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError:
        return False
    return moment.strftime(form) == text


def folders_of(partitions: Mapping[Key, Partition]) -> set[str]:
    """The folders, each of one write, in which the files of `partitions` are."""
    return {part.path.split("/")[0] for part in partitions.values() if part.path}


def commit_name(number: int) -> str:
    """The name of the file of commit `number`, relative to the table's folder."""
    return f"{COMMITS}/{number:012d}.json"


def commit_numbers(store: Store) -> list[int]:
    """The numbers of a table's commits, ascending; empty without one."""
    return sorted(int(match[1]) for name in store.names(COMMITS) if (match := _COMMIT.fullmatch(name)))


def read_partitions(
    snapshot: Snapshot,
    partitions: Mapping[Key, Partition],
    columns: Sequence[str] | None = None,
    *,
    coded: Collection[str] = (),
) -> pa.Table:
    """The rows of `partitions` of `snapshot`, with the partition columns; see `Tables.read_arrow`.

    Those of the columns `coded` that are texts are encoded by dictionaries, as the files have most of them.
    """
    table, store = snapshot.table, store_at(snapshot.root)
    schema = arrow_schema(table, coded)
    names = list(columns) if columns is not None else [*schema.names, *table.partition]
    if unknown := [name for name in names if name not in {*schema.names, *table.partition}]:
        raise SchemaError(f"table {table.name} has no columns {bounded(str(unknown), 300)}")
    n_rows = sum(part.n_rows for part in partitions.values())
    sizes = (len(partitions), n_rows, table.name, snapshot.number, snapshot.root)
    _log.info("read %d partitions, %d rows of table %s at commit %d, %s", *sizes)
    types = {**{f.name: f.type for f in schema}, **dict.fromkeys(table.partition, pa.string())}
    stored = [name for name in names if name not in table.partition]
    pieces = [pa.schema([(name, types[name]) for name in names]).empty_table()]
    for key, part in partitions.items():
        for name in part.files:
            path = f"{part.path}/{name}"
            with _there(f"table {table.name}: {snapshot.root}/{path}"):
                piece = store.read_parquet(path, columns=stored, schema=schema)
                n_rows = piece.num_rows if stored else store.parquet_metadata(path).num_rows
            constant = dict(zip(table.partition, key, strict=True))
            arrays = {n: pa.repeat(constant[n], n_rows) if n in constant else piece[n] for n in names}
            pieces.append(pa.table(arrays))
    return pa.concat_tables(pieces)


@contextmanager
def _there(file: str) -> Iterator[None]:
    """Raise ServiceError if a file that a commit names is found missing or damaged while the block runs."""
    try:
        yield
    except (OSError, UnicodeDecodeError, pa.ArrowException) as error:
        if getattr(error, "errno", None) not in (None, errno.ENOENT, errno.EIO):
            raise
        why = bounded(" ".join(str(error).split()), 300)
        what = "is missing" if isinstance(error, FileNotFoundError) else f"is damaged: {why}"
        raise ServiceError(f"{file} {what}; restore it from a copy of the tables") from None
