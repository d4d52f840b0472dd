"""The table store: Parquet files, snapshots that readers see whole, commits that never overwrite.

    <root>/<table>/_commits/000000000012.json    immutable; the highest one is the table
    <root>/<table>/data-<random>/day=2026-03-01/as_of=2026-03-01T04%3A00%3A00Z/*.parquet

A commit names every partition's directory and files. A reader takes the highest commit once and reads what
it names, so it never sees half; a crash leaves only directories that no commit names, for `vacuum`.
"""

from __future__ import annotations

import itertools
import shutil
import time
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
from fsspec.implementations.local import LocalFileSystem

from features.errors import ConfigError, ConflictError, SchemaError, StaleInputError
from features.schema import Table, arrow_schema
from jobs.commits import (
    Partition,
    Snapshot,
    StagedPartition,
    commit_numbers,
    commit_path,
    dump,
    load,
    put_if_absent,
    seal,
    snapshot_id,
)
from jobs.conform import Key, checked_key, conform, partition_groups, partition_path

__all__ = ["Key", "Partition", "Snapshot", "StagedPartition", "Tables", "read_partitions"]


class Tables:
    """The tables under one root folder."""

    def __init__(self, root: str) -> None:
        """`root`: a local folder, created at the first write. Raises ConfigError for another scheme."""
        try:
            filesystem, path = fsspec.core.url_to_fs(root)
        except (ValueError, ImportError, OSError) as error:
            raise ConfigError("tables.root", f"cannot use {root!r}: {error}") from None
        if not isinstance(filesystem, LocalFileSystem):
            raise ConfigError(
                "tables.root", f"{root!r} is not a local folder; other stores are not supported yet"
            )
        self.root = str(path)

    def exists(self, table: Table) -> bool:
        """Whether the table was ever committed."""
        return self.head(table).number > 0

    def snapshot(self, table: Table) -> Snapshot:
        """The table as it is now. Raises StaleInputError if it has no commit."""
        head = self.head(table)
        if not head.number:
            raise StaleInputError(
                f"table {table.name} under {self.root} does not exist; run the step that writes it"
            )
        return head

    def head(self, table: Table) -> Snapshot:
        """Like `snapshot`, but an empty one (number 0) where there is no commit."""
        folder = Path(self.root, table.name)
        while numbers := commit_numbers(folder):
            try:
                return load(table, folder, numbers[-1])
            except FileNotFoundError:
                continue  # vacuumed since it was listed: a higher one is there
        return Snapshot(table, str(folder), 0, snapshot_id(table, {}), {})

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
        """The rows of the chosen partitions, in no promised order.

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

        `data` has the table's columns and its partition columns as strings; further ones are dropped.
        A partition of `cover` without a row becomes empty. `base`: the snapshot `data` was made from, if
        any. Raises SchemaError (nothing is written), ConflictError (another run replaced a partition).
        """
        base = base or self.head(table)
        data = conform(table, data)
        staging = self.staging_dir(table)
        staged = dict.fromkeys(_covered(table, cover), StagedPartition("", ()))
        schema = arrow_schema(table)
        for key, rows in partition_groups(table, data):
            path = f"{Path(staging).name}/{partition_path(table, key)}".rstrip("/")
            folder = Path(self.root, table.name, path)
            folder.mkdir(parents=True, exist_ok=True)
            pq.write_table(
                rows.select(schema.names).cast(schema), folder / "part-0.parquet", compression="zstd"
            )
            staged[key] = StagedPartition(path, ("part-0.parquet",))
        return self.commit(table, staged, base=base)

    def replace_rows(self, table: Table, rows: Sequence[Mapping[str, object]], key: Key) -> Snapshot:
        """Replace one partition by `rows`, few and by column name; without a row it becomes empty.

        For what is small by nature (summaries, plans). Raises as `replace_arrow`.
        """
        data = pa.Table.from_pylist(list(rows), arrow_schema(table))
        for name, value in zip(table.partition, key, strict=True):
            data = data.append_column(name, pa.repeat(pa.scalar(value), len(rows)))
        return self.replace_arrow(table, data, cover=[key])

    def staging_dir(self, table: Table) -> str:
        """A fresh folder in the table for data files; nothing reads it until it is committed."""
        folder = Path(self.root, table.name, f"data-{uuid.uuid4().hex}")
        folder.mkdir(parents=True)
        return str(folder)

    def commit(
        self, table: Table, partitions: Mapping[Key, StagedPartition], *, base: Snapshot | None
    ) -> Snapshot:
        """Replace `partitions` in one step; the new snapshot.

        `base` is the snapshot the new data was made from, None for an empty table. Equal content makes no
        commit: the present snapshot is returned. Raises ConflictError if a partition was replaced since
        `base`, SchemaError if a required column holds a null or a partition value is malformed.
        """
        folder = Path(self.root, table.name)
        sealed = {checked_key(table, key): seal(table, folder, staged) for key, staged in partitions.items()}
        while True:
            head = self.head(table)
            _refuse_conflict(table, sealed, head, {} if base is None else base.partitions)
            changed = {k: part for k, part in sealed.items() if not _same(head.partitions.get(k), part)}
            if head.number and not changed:
                _discard(folder, sealed.values(), head.partitions.values())
                return head
            merged = {**head.partitions, **changed}
            new = Snapshot(table, str(folder), head.number + 1, snapshot_id(table, merged), merged)
            if put_if_absent(folder / "_commits", f"{new.number:012d}.json", dump(new)):
                return new

    def vacuum(self, table: Table, *, keep: int = 20, grace_s: float = 86400.0) -> int:
        """Delete what no reader can need; the number of data folders deleted.

        Kept are the last `keep` commits, commits superseded less than `grace_s` ago, what those name, and
        folders younger than `grace_s` (a writer may be at work there).
        """
        folder = Path(self.root, table.name)
        oldest = time.time() - grace_s
        numbers = commit_numbers(folder)
        for number, successor in itertools.pairwise(numbers[: 1 - keep] if keep > 1 else numbers):
            if commit_path(folder, successor).stat().st_mtime < oldest:
                commit_path(folder, number).unlink(missing_ok=True)
        used = {
            part.path.split("/")[0]
            for number in commit_numbers(folder)
            for part in load(table, folder, number).partitions.values()
        }
        doomed = [d for d in folder.glob("data-*") if d.name not in used and _newest_mtime(d) < oldest]
        for path in doomed:
            shutil.rmtree(path)
        for draft in (folder / "_commits").glob(".*.draft"):
            if draft.stat().st_mtime < oldest:
                draft.unlink()
        return len(doomed)


def read_partitions(
    snapshot: Snapshot, chosen: Mapping[Key, Partition], columns: Sequence[str] | None = None
) -> pa.Table:
    """The rows of `chosen` partitions of `snapshot`, with the partition columns; see `Tables.read_arrow`."""
    table = snapshot.table
    schema = arrow_schema(table)
    wanted = list(columns) if columns is not None else [*schema.names, *table.partition]
    if unknown := [name for name in wanted if name not in {*schema.names, *table.partition}]:
        raise SchemaError(f"table {table.name} has no columns {unknown}")
    types = {**{f.name: f.type for f in schema}, **dict.fromkeys(table.partition, pa.string())}
    stored = [name for name in wanted if name not in table.partition]
    pieces = [pa.schema([(name, types[name]) for name in wanted]).empty_table()]
    for key, part in chosen.items():
        for name in part.files:
            path = f"{snapshot.root}/{part.path}/{name}"
            piece = pq.read_table(path, columns=stored, schema=schema, partitioning=None)
            n_rows = piece.num_rows if stored else pq.read_metadata(path).num_rows
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


def _discard(folder: Path, unused: Iterable[Partition], used: Iterable[Partition]) -> None:
    keep = {part.path.split("/")[0] for part in used}
    for name in {part.path.split("/")[0] for part in unused if part.path} - keep:
        shutil.rmtree(folder / name)


def _newest_mtime(folder: Path) -> float:
    return max((p.stat().st_mtime for p in (folder, *folder.rglob("*"))), default=0.0)
