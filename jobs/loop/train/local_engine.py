"""Features and labels in this process: what fits into memory needs no Spark."""

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyarrow as pa

from features import labels
from features.common.times import parse_as_of
from features.schema import Table
from features.stream import events
from features.stream.region import Region
from jobs.ground.store.commits import Key
from jobs.ground.store.tables import Partition, Snapshot, StagedFile, Tables, read_partitions
from jobs.loop.train.engines import Counting, DayInState, DaysRead, FeatureWork, LabelWork
from jobs.loop.train.states import carried, catalogue, coded_reads, counted_at, not_counted
from models.parallel import run_bounded

ROWS_PER_FILE = 200_000
"""A core writes, and later reads, a file of so many rows at a time."""


class LocalEngine:
    """This process; see `jobs.loop.train.engines.Engine`."""

    def read(self, accesses: Snapshot, days: Mapping[Key, Partition], counting: Counting) -> DaysRead:
        in_state = dict[Key, Sequence[DayInState]]()

        def look(key: Key, rows: pa.Table) -> None:
            in_state[key] = counted_at(rows, days[key].digest, counting)

        rows = coded_reads(accesses, days, events.COLUMNS, counting.demand_sources, look)
        return DaysRead(in_state, [rows])

    def write_features(self, tables: Tables, work: FeatureWork, *, base: Snapshot) -> Snapshot:
        bases = {table: tables.head(table) for table in work.state_windows}
        region, features = _region(tables, work), work.spec.features_table

        def rows() -> Iterator[tuple[Table, Key, pa.Table]]:
            for key, (at, before) in zip(work.keys, work.moments, strict=True):
                yield features, key, region.features(at, before)
            for table, window in work.state_windows.items():
                yield table, work.keys[-1], region.stored(work.as_ofs[-1], window).rows

        staged = _staged(tables, [features, *work.state_windows], rows())
        done = tables.commit(features, staged.get(features, []), cover=work.keys, base=base)
        for table in work.state_windows:
            older = work.older(table)
            tables.commit(table, staged.get(table, []), cover=work.keys[-1:], base=bases[table], drop=older)
        return done

    def features(self, tables: Tables, work: FeatureWork) -> Iterator[pa.Table]:
        return itertools.starmap(_region(tables, work).features, work.moments)

    def write_labels(self, tables: Tables, work: LabelWork, *, base: Snapshot) -> Snapshot:
        rows = coded_reads(work.accesses, work.days, labels.COLUMNS, work.demand_sources)
        reads = labels.Reads(rows, until_s=work.until_s)

        def pieces() -> Iterator[tuple[Key, pa.Table]]:
            for key, part in work.partitions.items():
                dids = read_partitions(work.features, {key: part}, ["did"])["did"]
                yield key, reads.labels(dids.combine_chunks(), parse_as_of(key[1]), work.spec)

        return tables.replace_each(work.spec.labels_table, pieces(), cover=work.partitions, base=base)


def _staged(
    tables: Tables, written: Sequence[Table], rows: Iterable[tuple[Table, Key, pa.Table]]
) -> Mapping[Table, Sequence[StagedFile]]:
    """Write the rows of the tables `written`, `ROWS_PER_FILE` to a file, while the next partition is made."""
    staged = defaultdict[Table, list[list[StagedFile]]](list)

    def pieces() -> Iterator[tuple[list[StagedFile], Table, Key, str, pa.Table]]:
        for table, key, every in rows:
            for number, start in enumerate(range(0, every.num_rows, ROWS_PER_FILE)):
                files = list[StagedFile]()
                staged[table].append(files)
                yield files, table, key, f"part-{number}", every.slice(start, ROWS_PER_FILE)

    def write(piece: tuple[list[StagedFile], Table, Key, str, pa.Table]) -> None:
        files, table, key, prefix, some = piece
        files += tables.stage(table, folder, [(key, some)], prefix=prefix)

    with tables.staging(*written) as folder:
        run_bounded(write, pieces())
    return {table: [*itertools.chain(*files)] for table, files in staged.items()}


def _region(tables: Tables, work: FeatureWork) -> Region:
    if work.source is None:
        reads = coded_reads(work.accesses, work.days, events.COLUMNS, work.demand_sources)
    else:
        reads = not_counted(work.source.reads.pop(), work)
    files = catalogue(tables)
    return Region(reads, files, carried(tables, work, reads, files), work.spec)
