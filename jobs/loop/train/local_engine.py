"""Features and labels in this process: what fits into memory needs no Spark."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from features import labels
from features.common.times import parse_as_of
from features.stream import events
from features.stream.region import Region
from jobs.ground.store.keys import Key, MomentKey
from jobs.ground.store.tables import Snapshot, Tables, read_partitions
from jobs.loop.train.engines import FeatureWork, LabelWork
from jobs.loop.train.states import carried, catalogue, coded_reads, not_counted


class LocalEngine:
    """This process; see `jobs.loop.train.engines.Engine`."""

    def write_features(self, tables: Tables, work: FeatureWork, *, base: Snapshot) -> Snapshot:
        bases = {table: tables.head(table) for table in work.state_windows}
        region = _region(tables, work)
        pieces = ((MomentKey.at(at, work.region), region.features(at)) for at in work.as_ofs)
        done = tables.replace_each(work.spec.features_table, pieces, cover=work.keys, base=base)
        for table, (since_s, before_s) in work.state_windows.items():
            key, older = work.keys[-1], work.older(table)
            state = region.stored(work.as_ofs[-1], counted_since_s=since_s, counted_before_s=before_s)
            tables.replace_each(table, [(key, state.rows)], cover=[key], base=bases[table], drop=older)
        return done

    def features(self, tables: Tables, work: FeatureWork) -> Iterator[pa.Table]:
        return map(_region(tables, work).features, work.as_ofs)

    def write_labels(self, tables: Tables, work: LabelWork, *, base: Snapshot) -> Snapshot:
        rows = coded_reads(work.accesses, work.days, labels.COLUMNS, work.demand_sources)
        reads = labels.Reads(rows, until_s=work.until_s, hits=labels.hits_of(work.hits))

        def pieces() -> Iterator[tuple[Key, pa.Table]]:
            for key, part in work.partitions.items():
                dids = read_partitions(work.features, {key: part}, ["did"])["did"]
                yield key, reads.labels(dids.combine_chunks(), parse_as_of(key[1]), work.spec)

        return tables.replace_each(work.spec.labels_table, pieces(), cover=work.partitions, base=base)


def _region(tables: Tables, work: FeatureWork) -> Region:
    reads = coded_reads(work.accesses, work.days, events.COLUMNS, work.demand_sources)
    reads, files = not_counted(reads, work), catalogue(tables)
    return Region(reads, files, carried(tables, work, reads, files), work.spec)
