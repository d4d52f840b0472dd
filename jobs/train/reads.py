"""The accesses that features and labels are made of, with texts coded: a name takes room once a day."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from features.common.errors import StaleInputError
from features.demand import PLACES, demand
from features.schema import ACCESSES, FILES, arrow_schema
from features.stream.events import usable
from features.stream.facts import CATALOGUE
from features.stream.texts import coded
from jobs.store.keys import Key
from jobs.store.tables import Partition, Snapshot, Tables, read_partitions
from jobs.train.work import FeatureWork
from models.parallel import each

PLACE = (*PLACES, "source")
"""Columns that say whether an access counts as demand."""


def demanded(rows: pa.Table, sources: Mapping[str, str]) -> pa.Table:
    """The rows of demand sources; without `sources` all."""
    return demand(rows, sources) if sources else rows


def coded_reads(
    accesses: Snapshot, days: Mapping[Key, Partition], columns: Sequence[str], sources: Mapping[str, str]
) -> pa.Table:
    """`columns` of the demand rows of `days`. Raises StaleInputError if there are rows, but of no source."""
    apart = [{key: part} for key, part in sorted(days.items())]
    pieces = each(lambda day: demanded_day(accesses, day, columns, sources), apart)
    rows = coded(pa.concat_tables([coded(_empty(columns)), *pieces]))
    if sources and not rows.num_rows and any(part.n_rows for part in days.values()):
        raise _of_no_source(accesses, days, sources)
    return rows


def demanded_day(
    accesses: Snapshot, day: Mapping[Key, Partition], columns: Sequence[str], sources: Mapping[str, str]
) -> pa.Table:
    """The same of one day, or of some of its files; without its demand rows it is empty."""
    wanted = dict.fromkeys([*columns, *(PLACE if sources else ())])
    rows = demanded(read_partitions(accesses, day, list(wanted)), sources)
    return coded(rows.select(list(columns)))


def not_counted(rows: pa.Table, work: FeatureWork) -> pa.Table:
    """The reads that the state of `work` has not counted yet."""
    if work.since_s is None:
        return rows
    return rows.filter(pa.array(usable(rows, cycle_s=work.spec.cycle_s) > work.since_s))


def catalogue(tables: Tables) -> pa.Table:
    """The catalogue as features need it, without a row if there is none."""
    if not tables.exists(FILES):
        return coded(arrow_schema(FILES).empty_table().select(list(CATALOGUE)))
    return coded(tables.read_arrow(FILES, columns=list(CATALOGUE)))


def _empty(columns: Sequence[str]) -> pa.Table:
    return arrow_schema(ACCESSES).empty_table().select(list(columns))


def _of_no_source(
    accesses: Snapshot, days: Mapping[Key, Partition], sources: Mapping[str, str]
) -> StaleInputError:
    found = {name for names in _sources(accesses, days) for name in names}
    return StaleInputError(
        f"no access since {min(days)[0]} is of a demand source ({', '.join(sorted(set(sources.values())))}); "
        f"there are accesses of {', '.join(sorted(found))}: name the one that counts in [sources] demand"
    )


def _sources(accesses: Snapshot, days: Mapping[Key, Partition]) -> Iterator[list[str]]:
    for key, part in days.items():
        yield read_partitions(accesses, {key: part}, ["source"])["source"].unique().to_pylist()
