"""The table store: Parquet files, consistent snapshots, and commits that never overwrite.

    <root>/<table>/_commits/000000000012.json    immutable; the highest one is current
    <root>/<table>/data-<random>/day=2026-03-01/as_of=2026-03-01T04%3A00%3A00Z/*.parquet

A commit names the directory and files of every partition. A reader loads the highest commit once and reads
the files it names, so it never sees half of a write. A crash leaves only directories that no commit names;
`vacuum` removes them.
"""

from __future__ import annotations

import dataclasses
import itertools
import logging
import time
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pyarrow as pa

from features.errors import ConflictError, SchemaError
from features.schema import Table, arrow_schema
from jobs.store.absent import no_table
from jobs.store.commits import (
    COMMITS,
    Partition,
    Snapshot,
    StagedPartition,
    commit_name,
    commit_numbers,
    dump,
    load,
    seal,
    snapshot_id,
)
from jobs.store.filesystems import Store, store_at
from jobs.store.keys import Key
from jobs.store.schema_check import checked_key, conform, partition_groups, partition_path

__all__ = ["Partition", "Snapshot", "StagedPartition", "Tables", "read_partitions"]

_log = logging.getLogger(__name__)


class Tables:
    """The tables under one root: a local folder, or one on HDFS or S3."""

    def __init__(self, root: str) -> None:
        """`root`: see `store_at`; created by the first write. Raises ConfigError."""
        self._store = store_at(root)
        self.root = self._store.root

    def names(self) -> list[str]:
        """The names of the tables with a commit."""
        return sorted(name for name in self._store.folders() if self._store.names(f"{name}/{COMMITS}"))

    def local_files(self, table: Table) -> list[Path]:
        """The files of the table's current snapshot, which is in a local folder."""
        head = self.head(table)
        parts = head.partitions.values()
        return [Path(head.root, part.path, name) for part in parts for name in part.files]

    def exclusive(self, work: str) -> AbstractContextManager[None]:
        """Hold the lock of `work`, for example `pull`, on these tables in a block. Raises ConflictError."""
        return self._store.exclusive(f".{work}.lock", work)

    def unlock(self, work: str) -> str | None:
        """Break the lock of `work`; returns its holder. Raises InputError on a local folder: not needed."""
        return self._store.unlock(f".{work}.lock")

    def check_writable(self, *written: Table) -> None:
        """Raise ServiceError if it is already clear that these tables cannot be written."""
        for store in (self._store, *(self._store.below(table.name) for table in written)):
            store.check_writable()

    def exists(self, table: Table) -> bool:
        """Whether the table has a commit."""
        return self.head(table).number > 0

    def snapshot(self, table: Table) -> Snapshot:
        """The table as it is now. Raises StaleInputError if it has no commit."""
        head = self.head(table)
        if not head.number:
            raise no_table(table.name, self.root, others=self.names())
        return head

    def head(self, table: Table) -> Snapshot:
        """The same as `snapshot`, but an empty snapshot (number 0) if there is no commit."""
        store = self._store.below(table.name)
        while numbers := commit_numbers(store):
            try:
                return load(table, store, numbers[-1])
            except FileNotFoundError:
                continue  # vacuumed since it was listed, so there is a higher one
        return Snapshot(table, store.root, 0, snapshot_id(table, {}), {})

    def newest(
        self, table: Table, *, owner: str | None = None, after: str | None = None, until: str | None = None
    ) -> Snapshot:
        """The table with only its newest partition, or with none if no partition fits.

        `owner`: only partitions of this region or cache. `after` and `until`: only those whose as_of
        (`2026-03-01T04:00:00Z`) is later than `after`, and not later than `until`.
        """
        head = self.head(table)
        keys = [
            key
            for key in head.select(owner=owner)
            if (after is None or key[1] > after) and (until is None or key[1] <= until)
        ]
        return dataclasses.replace(head, partitions={key: head.partitions[key] for key in keys[-1:]})

    def read_arrow(
        self,
        table: Table,
        *,
        since: str | None = None,
        until: str | None = None,
        as_of: str | None = None,
        owner: str | None = None,
        columns: Sequence[str] | None = None,
    ) -> pa.Table:
        """The rows of the chosen partitions, in no particular order.

        Columns: the table's, then its partition columns as strings; or just `columns`, in that order.
        `since` and `until` are inclusive days (`2026-03-01`), `owner` a region or cache.
        Raises StaleInputError, SchemaError.
        """
        snapshot = self.snapshot(table)
        return read_partitions(
            snapshot, snapshot.select(since=since, until=until, as_of=as_of, owner=owner), columns
        )

    def replace_arrow(
        self, table: Table, data: pa.Table, *, cover: Iterable[Key] = (), base: Snapshot | None = None
    ) -> Snapshot:
        """Replace the partitions present in `data`, and those of `cover`; other partitions stay.

        `data` has the table's columns and its partition columns as strings; other columns are dropped. A
        partition of `cover` without a row becomes empty. `base`: the snapshot that `data` was made from, if
        any. Raises SchemaError (nothing is written), ConflictError (another run replaced a partition).
        """
        return self.replace_each(table, [data], cover=cover, base=base)

    def replace_each(
        self,
        table: Table,
        pieces: Iterable[pa.Table],
        *,
        cover: Iterable[Key] = (),
        base: Snapshot | None = None,
        drop: Collection[Key] = (),
    ) -> Snapshot:
        """The same for rows in pieces, each with all rows of its partitions; see `replace_arrow`.

        The partitions `drop` are left out.
        """
        base = base or self.head(table)
        checked = (conform(table, piece) for piece in pieces)
        first = list(itertools.islice(checked, 1))  # what does not fit leaves no folder
        staged = dict.fromkeys(_covered(table, cover), StagedPartition("", ()))
        staged |= self.stage(table, self.staging(table), itertools.chain(first, checked))
        return self.commit(table, staged, base=base, drop=drop)

    def stage(
        self, table: Table, staging: str, pieces: Iterable[pa.Table], *, name: str = "part-0.parquet"
    ) -> dict[Key, StagedPartition]:
        """Write `pieces` into the folder `staging`, as a file `name` in each partition; for `commit`.

        `pieces`: results of `conform`, each with all rows that its partitions have in this file.
        """
        store, schema = self._store.below(table.name), arrow_schema(table)
        staged = {}
        for piece in pieces:
            for key, rows in partition_groups(table, piece):
                path = f"{staging}/{partition_path(table, key)}".rstrip("/")
                store.make_folder(path)
                store.write_parquet(f"{path}/{name}", rows.select(schema.names).cast(schema))
                staged[key] = StagedPartition(path, (name,))
        return staged

    def replace_rows(self, table: Table, rows: Sequence[Mapping[str, object]], key: Key) -> Snapshot:
        """Replace one partition by `rows`, by column name; without rows it becomes empty.

        For small tables only, such as summaries. Raises as `replace_arrow`.
        """
        data = pa.Table.from_pylist(list(rows), arrow_schema(table))
        for name, value in zip(table.partition, key, strict=True):
            data = data.append_column(name, pa.repeat(pa.scalar(value), len(rows)))
        return self.replace_arrow(table, data, cover=[key])

    def staging(self, table: Table) -> str:
        """A fresh folder for data files, relative to the table's; nothing reads it until it is committed."""
        name = f"data-{uuid.uuid4().hex}"
        self._store.below(table.name).make_folder(name)
        return name

    @contextmanager
    def scratch(self, table: Table) -> Iterator[str]:
        """A new folder for Spark, removed after the block; after a crash `vacuum` removes it."""
        name = self.staging(table)
        try:
            yield self.location(table, name)
        finally:
            self._store.below(table.name).remove(name)

    def location(self, table: Table, name: str) -> str:
        """The path of a folder of the table for Spark."""
        return self._store.below(f"{table.name}/{name}").root

    def files(self, table: Table, folder: str) -> list[str]:
        """The files in a folder of the table and below, in order, relative to the table's."""
        return self._store.below(table.name).files(folder)

    def commit(
        self,
        table: Table,
        partitions: Mapping[Key, StagedPartition],
        *,
        base: Snapshot | None,
        drop: Collection[Key] = (),
    ) -> Snapshot:
        """Replace `partitions` and drop those of `drop` in one step; returns the new snapshot.

        `base`: the snapshot that the new data was made from, None for an empty table. Equal content makes no
        commit, and the current snapshot is returned. Raises ConflictError if a partition was replaced since
        `base`, SchemaError if a required column holds a null or a partition value is malformed.
        """
        store = self._store.below(table.name)
        sealed = {checked_key(table, key): seal(table, store, staged) for key, staged in partitions.items()}
        store.settle_folders(part.path for part in sealed.values() if part.files)
        while True:
            head = self.head(table)
            _refuse_conflict(table, sealed, head, {} if base is None else base.partitions)
            changed = {k: part for k, part in sealed.items() if not _same(head.partitions.get(k), part)}
            merged = {k: part for k, part in {**head.partitions, **changed}.items() if k not in drop}
            if head.number and not changed and len(merged) == len(head.partitions):
                _discard(store, sealed.values(), head.partitions.values())
                _log.info("table %s is unchanged: commit %d, %s", table.name, head.number, store.root)
                return head
            new = Snapshot(table, store.root, head.number + 1, snapshot_id(table, merged), merged)
            if store.put_if_absent(commit_name(new.number), dump(new).encode()):
                n_rows = sum(part.n_rows for part in changed.values())
                written = (len(changed), n_rows, table.name, new.number, store.root)
                _log.info("wrote %d partitions, %d rows of table %s: commit %d, %s", *written)
                return new

    def vacuum(self, table: Table, *, keep: int = 20, grace_s: float = 86400.0) -> int:
        """Delete files that no reader needs; returns the number of data folders deleted.

        Kept are the last `keep` commits, commits superseded less than `grace_s` ago, the files that they
        name, and folders younger than `grace_s`, which a writer may still use.
        """
        store = self._store.below(table.name)
        oldest = time.time() - grace_s
        numbers = commit_numbers(store)
        for number, successor in itertools.pairwise(numbers[: 1 - keep] if keep > 1 else numbers):
            if store.modified_s(commit_name(successor)) < oldest:
                store.remove(commit_name(number))
        used = {
            part.path.split("/")[0]
            for number in commit_numbers(store)
            for part in load(table, store, number).partitions.values()
        }
        unused = [name for name in store.names() if name.startswith("data-") and name not in used]
        doomed = [name for name in unused if store.modified_s(name) < oldest]
        drafts = [f"{COMMITS}/{name}" for name in store.names(COMMITS) if name.endswith(".draft")]
        for name in [*doomed, *(draft for draft in drafts if store.modified_s(draft) < oldest)]:
            store.remove(name)
        return len(doomed)


def read_partitions(
    snapshot: Snapshot, chosen: Mapping[Key, Partition], columns: Sequence[str] | None = None
) -> pa.Table:
    """The rows of `chosen` partitions of `snapshot`, with the partition columns; see `Tables.read_arrow`."""
    table, store = snapshot.table, store_at(snapshot.root)
    schema = arrow_schema(table)
    wanted = list(columns) if columns is not None else [*schema.names, *table.partition]
    if unknown := [name for name in wanted if name not in {*schema.names, *table.partition}]:
        raise SchemaError(f"table {table.name} has no columns {unknown}")
    n_rows = sum(part.n_rows for part in chosen.values())
    found = (len(chosen), n_rows, table.name, snapshot.number, snapshot.root)
    _log.info("read %d partitions, %d rows of table %s at commit %d, %s", *found)
    types = {**{f.name: f.type for f in schema}, **dict.fromkeys(table.partition, pa.string())}
    stored = [name for name in wanted if name not in table.partition]
    pieces = [pa.schema([(name, types[name]) for name in wanted]).empty_table()]
    for key, part in chosen.items():
        for name in part.files:
            path = f"{part.path}/{name}"
            piece = store.read_parquet(path, columns=stored, schema=schema)
            n_rows = piece.num_rows if stored else store.parquet_metadata(path).num_rows
            constant = {n: pa.repeat(pa.scalar(v), n_rows) for n, v in zip(table.partition, key, strict=True)}
            arrays = {n: constant[n] if n in constant else piece[n].cast(types[n]) for n in wanted}
            pieces.append(pa.table(arrays))
    return pa.concat_tables(pieces)


def _covered(table: Table, cover: Iterable[Key]) -> list[Key]:
    return [*cover, *([] if table.partition else [()])]


def _refuse_conflict(
    table: Table, mine: Collection[Key], head: Snapshot, base: Mapping[Key, Partition]
) -> None:
    for key in mine:
        now, then = head.partitions.get(key), base.get(key)
        if (now and now.path) != (then and then.path):
            raise ConflictError(
                f"table {table.name}, partition {'/'.join(key) or '(whole)'}: "
                "another run replaced it in the meantime; run again"
            )


def _same(old: Partition | None, new: Partition) -> bool:
    return old is not None and (old.digest, old.n_rows) == (new.digest, new.n_rows)


def _discard(store: Store, unused: Iterable[Partition], used: Iterable[Partition]) -> None:
    keep = {part.path.split("/")[0] for part in used}
    for name in {part.path.split("/")[0] for part in unused if part.path} - keep:
        store.remove(name)
