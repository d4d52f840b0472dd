"""The table store: Parquet files, consistent snapshots, and commits that never overwrite.

    <root>/<table>/_commits/000000000012.json    immutable; the highest one is current
    <root>/<table>/data-<random>/day=2026-03-01/as_of=2026-03-01T04%3A00%3A00Z/*.parquet

A commit names the directory and files of every partition. A reader loads the highest commit once and reads
the files it names, so it never sees half of a write. What no commit names, and commits that were superseded
days ago, go with every twentieth commit of a table.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec

import pyarrow as pa

from features.common.errors import ConflictError, SchemaError, ServiceError
from features.schema import Table, arrow_schema
from jobs.ground.store.commits import (
    COMMITS,
    Key,
    Partition,
    Snapshot,
    StagedFile,
    checked_key,
    commit_name,
    commit_numbers,
    dump,
    folders_of,
    load,
    partitions_of,
    read_partitions,
    snapshot_id,
)
from jobs.ground.store.filesystems import Store, store_at
from jobs.ground.store.schema_check import conform, no_table, partition_groups, partition_path
from jobs.ground.store.vacuum import USED_WITHIN_S, vacuumed

if TYPE_CHECKING:
    from jobs.ground.settings.tree import Settings

__all__ = ["Partition", "Snapshot", "StagedFile", "Tables", "new_folder", "read_partitions"]
P = ParamSpec("P")
_log = logging.getLogger(__name__)
_LOCK = ".pull.lock"
_VACUUM_EVERY = 20
"""Commits of a table from one vacuum to the next."""
_TRIES = 10


class Tables:
    """The tables under one root: a local folder, or one on HDFS or S3."""

    def __init__(self, root: str) -> None:
        """`root`: see `store_at`; created by the first write. Raises ConfigError."""
        self._store = store_at(root)
        self.root = self._store.root

    @classmethod
    def of(cls, settings: Settings) -> Tables:
        """The tables of a site. Raises ConfigError."""
        return cls(settings.tables.root)

    def names(self) -> list[str]:
        return sorted(name for name in self._store.folders() if self._store.names(f"{name}/{COMMITS}"))

    def local_files(self, table: Table) -> list[Path]:
        """The files of the table's current snapshot, which is in a local folder."""
        head = self.head(table)
        parts = head.partitions.values()
        return [Path(head.root, part.path, name) for part in parts for name in part.files]

    def exclusive(self) -> AbstractContextManager[None]:
        """Hold the lock of what is pulled on these tables in a block. Raises ConflictError."""
        return self._store.exclusive(_LOCK, "pull")

    def unlock(self) -> str | None:
        """Break that lock; returns its holder. Raises InputError on a local folder: not needed."""
        return self._store.unlock(_LOCK)

    def check_writable(self, *written: Table) -> None:
        """Raise ServiceError if it is already clear that these tables cannot be written."""
        for store in (self._store, *(self._store.below(table.name) for table in written)):
            store.check_writable()

    def exists(self, table: Table) -> bool:
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
        keys = sorted(
            (
                key
                for key in head.select(owner=owner)
                if (after is None or key[1] > after) and (until is None or key[1] <= until)
            ),
            key=lambda key: key[1:2],  # its as_of, whatever day it stands under
        )
        return dataclasses.replace(head, partitions={key: head.partitions[key] for key in keys[-1:]})

    def read_arrow(
        self, table: Table, *, columns: Sequence[str] | None = None, **where: str | None
    ) -> pa.Table:
        """The rows of the partitions that `Snapshot.select` finds by `where`, in no particular order.

        Columns: the table's, then its partition columns as strings; or just `columns`, in that order.
        Raises StaleInputError, SchemaError.
        """
        return self.snapshot(table).rows(columns, **where)

    def replace_arrow(self, table: Table, data: pa.Table, *, base: Snapshot | None = None) -> Snapshot:
        """Replace the partitions present in `data`; other partitions stay.

        `data` has the table's columns and its partition columns as strings; other columns are dropped.
        `base`: the snapshot that `data` was made from, if any. Raises SchemaError (nothing is written),
        ConflictError (another run replaced a partition).
        """
        return self.replace_each(table, partition_groups(table, data), base=base)

    def replace_each(
        self,
        table: Table,
        pieces: Iterable[tuple[Key, pa.Table]],
        *,
        cover: Iterable[Key] = (),
        base: Snapshot | None = None,
        drop: Collection[Key] = (),
    ) -> Snapshot:
        """The same for rows that come by partition, each partition in one piece or more; see `replace_arrow`.

        Each piece becomes a file. A partition of `cover` without a row becomes empty, and the partitions
        `drop` are left out.
        """
        base = base or self.head(table)
        with self.staging(table) as folder:
            files = self.stage(table, folder, pieces)
        return self.commit(table, files, base=base, cover=cover, drop=drop)

    @contextmanager
    def staging(self, *tables: Table) -> Iterator[str]:
        """The name of a fresh folder for `stage`; it goes if the block fails, as it may fill the disk."""
        folder = new_folder()
        try:
            yield folder
        except BaseException:
            for table in tables:
                with suppress(OSError, ServiceError):  # a vacuum removes it days later
                    self.discard(table, folder)
            raise

    def stage(
        self, table: Table, folder: str, pieces: Iterable[tuple[Key, pa.Table]], *, prefix: str = "part"
    ) -> list[StagedFile]:
        """Write each of `pieces` that has rows as a file of its partition below `folder`; for `commit`.

        `prefix`: begins the names of the files; tasks that write into one folder need different ones. Raises
        SchemaError for a piece that does not fit the table, or a malformed partition value.
        """
        store, files = self._store.below(table.name), list[StagedFile]()
        for number, (key, piece) in enumerate(pieces):
            rows, name = conform(table, piece), f"{prefix}-{number}.parquet"
            if not rows.num_rows:
                continue
            path = f"{folder}/{partition_path(table, key)}".rstrip("/")
            store.make_folder(path)
            digest = store.write_parquet(f"{path}/{name}", rows)
            files.append(StagedFile(key, path, name, rows.num_rows, digest))
        return files

    def replace_partition(
        self, table: Table, rows: pa.Table, key: Key, *, base: Snapshot | None = None
    ) -> Snapshot:
        """Replace one partition by `rows`; none: it becomes empty. Raises as `replace_arrow`."""
        return self.replace_each(table, [(key, rows)], cover=[key], base=base)

    def replace_rows(self, table: Table, rows: Sequence[Mapping[str, object]], key: Key) -> Snapshot:
        """Replace one partition by `rows`, by column name; without rows it becomes empty.

        For small tables only, such as summaries. Raises as `replace_arrow`.
        """
        return self.replace_partition(table, pa.Table.from_pylist(list(rows), arrow_schema(table)), key)

    def discard(self, table: Table, folder: str) -> None:
        """Remove a folder that `stage` wrote into, or one below it, that is not committed."""
        self._store.below(table.name).remove(folder)

    def commit(
        self,
        table: Table,
        files: Iterable[StagedFile],
        *,
        base: Snapshot | None,
        cover: Iterable[Key] = (),
        drop: Collection[Key] = (),
    ) -> Snapshot:
        """Publish staged `files` in one step: they replace their partitions. Returns the new snapshot.

        Partitions of `cover` without a file, and a table without partition columns, become empty; those of
        `drop` are left out. `base`: the snapshot that the new data was made from, None for an empty table.
        Equal content makes no commit, and the current snapshot is returned. Raises ConflictError if one of
        them was replaced since `base`, SchemaError if a partition value is malformed.
        """
        store = self._store.below(table.name)
        covered = [*(checked_key(table, key) for key in cover), *([] if table.partition else [()])]
        staged = partitions_of(files, covered)
        _refuse_lost(store, table, folders_of(staged))
        store.settle_folders(part.path for part in staged.values() if part.files)
        while True:
            head = self.head(table)
            mine = [*staged, *(key for key in drop if key in head.partitions)]
            _refuse_conflict(table, mine, head, {} if base is None else base.partitions)
            there = {
                key: (part.digest, part.n_rows) for key, part in head.partitions.items() if key in staged
            }
            changed = {k: part for k, part in staged.items() if there.get(k) != (part.digest, part.n_rows)}
            merged = {k: part for k, part in {**head.partitions, **changed}.items() if k not in drop}
            if head.number and not changed and len(merged) == len(head.partitions):
                for name in folders_of(staged) - folders_of(head.partitions):
                    store.remove(name)
                _log.info("table %s is unchanged: commit %d, %s", table.name, head.number, store.root)
                return head
            new = Snapshot(table, store.root, head.number + 1, snapshot_id(table, merged), merged)
            if store.put_if_absent(commit_name(new.number), dump(new).encode()):
                if head.number and head.number not in commit_numbers(store):
                    # We paused for days, and what is vacuumed by now had that number before.
                    store.remove(commit_name(new.number))
                    continue
                n_rows = sum(part.n_rows for part in changed.values())
                written = (len(changed), n_rows, table.name, new.number, store.root)
                _log.info("wrote %d partitions, %d rows of table %s: commit %d, %s", *written)
                if new.number % _VACUUM_EVERY == 0:
                    self._tidy(table)
                return new

    def _tidy(self, table: Table) -> None:
        """Vacuum after a commit, which stands whatever becomes of that."""
        try:
            n_removed = self.vacuum(table)
        except (ServiceError, SchemaError, OSError) as error:
            _log.warning("table %s keeps its old files, %s: %s", table.name, self.root, error)
        else:
            _log.info("removed %d old folders of table %s, %s", n_removed, table.name, self.root)

    def vacuum(self, table: Table, *, keep: int = 2, grace_s: float = USED_WITHIN_S) -> int:
        """Delete files that no reader needs, see `vacuumed`; returns the number of data folders deleted."""
        return vacuumed(table, self._store.below(table.name), keep=keep, grace_s=grace_s)


def new_folder() -> str:
    """The name of a fresh folder for data files, which nothing reads until they are committed."""
    return f"data-{uuid.uuid4().hex}"


def repeated_on_conflict(write: Callable[P, None]) -> Callable[P, None]:
    """`write`, which reads a table and replaces rows of it, tried `_TRIES` times while others do the same."""

    @functools.wraps(write)
    def repeated(*args: P.args, **kwargs: P.kwargs) -> None:
        for _ in range(_TRIES - 1):
            with suppress(ConflictError):
                return write(*args, **kwargs)
        write(*args, **kwargs)

    return repeated


def _refuse_lost(store: Store, table: Table, folders: Collection[str]) -> None:
    """Raise ConflictError if a vacuum has taken one of the staged `folders` for abandoned."""
    for folder in folders:
        if not store.names(folder):
            raise ConflictError(
                f"table {table.name}: what was written days ago and not committed has been removed; run again"
            )


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
