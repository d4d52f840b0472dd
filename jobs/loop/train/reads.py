"""What features and labels are made of: demand accesses with coded texts, catalogue, and carried state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from features.accesses import PLACES, demand
from features.common.errors import StaleInputError
from features.schema import ACCESSES, DORMANT, FILES, STATES, arrow_schema
from features.stream.events import usable
from features.stream.facts import CATALOGUE, DATASET, Stored
from features.stream.names import absent, coded, distinct
from jobs.ground.store.keys import Key
from jobs.ground.store.tables import Partition, Snapshot, Tables, read_partitions
from jobs.loop.train.work import FeatureWork
from models.parallel import map_parallel

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
    pieces = map_parallel(lambda day: demanded_day(accesses, day, columns, sources), apart)
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


def carried(tables: Tables, work: FeatureWork, reads: pa.Table, files: pa.Table) -> Stored:
    """The state that `work` carries on, for these new reads, and files of the catalogue."""
    if work.source is None or work.source.since is None:
        return Stored.empty()
    states = tables.head(STATES)
    chosen: dict[Key, Partition] = {work.source.since: states.partitions[work.source.since]}
    awake = Stored.of_rows(read_partitions(states, chosen, STATES.column_names).combine_chunks())
    names = _dormant(tables, work, awake)
    woken = _concerned(names, awake, reads, files)
    newest = names.filter(pc.is_in(names["home"], value_set=woken)).group_by("home")
    homes = newest.aggregate([("as_of", "max")])
    pieces = [awake]
    for key in work.source.dormant:
        here = homes.filter(pc.equal(homes["as_of_max"], key[1]))["home"]
        if len(here):
            pieces.append(_woken(tables, work, key, here))
    return Stored(
        pa.concat_tables([one.files for one in pieces]), pa.concat_tables([one.datasets for one in pieces])
    )


def superseded(tables: Tables, work: FeatureWork) -> dict[str, pa.Array]:
    """By as_of of the partitions that `work` carries on: the datasets there that a later one has, too."""
    if work.source is None or work.source.since is None:
        return {}
    states, found = tables.head(STATES), dict[str, pa.Array]()
    awake = {work.source.since: states.partitions[work.source.since]}
    later = pa.array([], pa.string())
    for snapshot, chosen in ((states, awake), (tables.head(DORMANT), work.source.dormant)):
        for key, part in sorted(chosen.items(), reverse=True):
            rows = read_partitions(snapshot, {key: part}, ["kind", "entity"])
            here = rows.filter(pc.equal(rows["kind"], DATASET))["entity"]
            again = here.filter(pc.is_in(here, value_set=later)).combine_chunks()
            found[key[1]] = pa.concat_arrays([found[key[1]], again]) if key[1] in found else again
            later = pa.concat_arrays([later, here.combine_chunks()])
    return found


def remembered(rows: pa.Table, work: FeatureWork, superseded: pa.Array) -> pa.Table:
    """The rows of a state without datasets that are forgotten, or `superseded`."""
    rows = _remembered(rows, work)
    return rows.filter(pc.invert(pc.is_in(_dataset_of(rows), value_set=superseded)))


def _dormant(tables: Tables, work: FeatureWork, awake: Stored) -> pa.Table:
    """entity, home (the dataset), as_of of what is remembered of dormant datasets."""
    assert work.source is not None
    columns = ["entity", "dataset", "last_read_s", "as_of"]
    rows = _remembered(read_partitions(tables.head(DORMANT), work.source.dormant, columns), work)
    rows = rows.append_column("home", _dataset_of(rows)).select(["entity", "home", "as_of"])
    return rows.filter(pc.invert(pc.is_in(rows["home"], value_set=awake.datasets["entity"])))


def _concerned(names: pa.Table, awake: Stored, reads: pa.Table, files: pa.Table) -> pa.Array:
    """The dormant datasets of files that are read now, or look unread and are listed in a dataset in use.

    A file may be listed in another dataset than it was counted in when it was first read.
    """
    read = absent(distinct([reads["did"]]), awake.files["entity"])
    stated = [rows.filter(pc.is_in(rows["did"], value_set=read))["dataset"] for rows in (reads, files)]
    counted = names.filter(pc.is_in(names["entity"], value_set=read))["home"]
    in_use = distinct([*stated, counted, awake.datasets["entity"]])
    listed = files.filter(pc.is_in(files["dataset"], value_set=in_use))["did"]
    unread = absent(distinct([listed]), awake.files["entity"])
    wanted = pc.or_(
        pc.is_in(names["home"], value_set=in_use),
        pc.is_in(names["entity"], value_set=distinct([read, unread])),
    )
    return distinct([names.filter(wanted)["home"]])


def _woken(tables: Tables, work: FeatureWork, key: Key, homes: pa.ChunkedArray) -> Stored:
    """The datasets `homes` as they became dormant at `key`."""
    assert work.source is not None
    chosen = {key: work.source.dormant[key]}
    rows = _remembered(read_partitions(tables.head(DORMANT), chosen, DORMANT.column_names), work)
    return Stored.of_rows(rows.filter(pc.is_in(_dataset_of(rows), value_set=homes)))


def _remembered(rows: pa.Table, work: FeatureWork) -> pa.Table:
    """The rows of datasets that the state has not forgotten."""
    assert work.since_s is not None
    return rows.filter(pc.greater_equal(rows["last_read_s"], work.since_s - work.spec.history_s))


def _dataset_of(rows: pa.Table) -> pa.ChunkedArray:
    """The dataset of each row."""
    return pc.coalesce(rows["dataset"], rows["entity"])
