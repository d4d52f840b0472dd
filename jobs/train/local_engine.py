"""Features and labels in this process: what fits into memory needs no Spark."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from features import labels
from features.schema import STATES
from features.stream import events
from features.stream.region import Region
from features.stream.stored import Stored
from features.times import parse_as_of
from jobs.store.keys import MomentKey
from jobs.store.tables import Snapshot, Tables, read_partitions
from jobs.train.reads import catalogue, coded_reads
from jobs.train.work import FeatureWork, LabelWork, placed


class LocalEngine:
    """This process; see `jobs.train.work.Engine`."""

    def write_features(self, tables: Tables, work: FeatureWork, *, base: Snapshot) -> Snapshot:
        states = tables.head(STATES)
        region = Region(_reads(work), catalogue(tables), stored_at(states, work.since), work.spec)
        table = work.spec.features_table
        pieces = (placed(region.features(at), table, MomentKey.at(at, work.region)) for at in work.as_ofs)
        done = tables.replace_each(table, pieces, cover=work.keys, base=base)
        if work.keeps_state:
            key, last_s = work.keys[-1], work.as_ofs[-1]
            rows = placed(region.stored(last_s).rows, STATES, key)
            tables.replace_each(STATES, [rows], cover=[key], base=states, drop=work.older)
        return done

    def write_labels(self, tables: Tables, work: LabelWork, *, base: Snapshot) -> Snapshot:
        rows = coded_reads(work.accesses, work.days, labels.COLUMNS, work.demand_sources)
        reads = labels.Reads(rows, until_s=work.until_s, hits=labels.hits_of(work.hits))
        table = work.spec.labels_table

        def pieces() -> Iterator[pa.Table]:
            for key, part in work.wanted.items():
                dids = read_partitions(work.features, {key: part}, ["did"])["did"]
                found = reads.labels(dids.combine_chunks(), parse_as_of(key[1]), work.spec)
                yield placed(found, table, key)

        return tables.replace_each(table, pieces(), cover=work.wanted, base=base)


def stored_at(states: Snapshot, key: MomentKey | None) -> Stored:
    """The state at `key`; None: one that has counted nothing."""
    if key is None:
        return Stored.empty()
    rows = read_partitions(states, {key: states.partitions[key]}, states.table.column_names)
    return Stored(rows)


def _reads(work: FeatureWork) -> pa.Table:
    """The reads that the state has not counted yet."""
    rows = coded_reads(work.accesses, work.days, events.COLUMNS, work.demand_sources)
    if work.since is None:
        return rows
    since_s, cycle_s = parse_as_of(work.since.as_of), work.spec.cycle_s
    is_new = events.usable(rows, cycle_s=cycle_s) > since_s
    return rows.filter(pa.array(np.asarray(is_new)))
