"""The state that is carried on: in one process only the dormant datasets that the step can concern."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from features.schema import DORMANT, STATES
from features.stream.names import absent, distinct
from features.stream.stored import DATASET, Stored
from jobs.store.keys import Key
from jobs.store.tables import Partition, Tables, read_partitions
from jobs.train.work import FeatureWork


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
    return rows.filter(pc.invert(pc.is_in(_home(rows), value_set=superseded)))


def _dormant(tables: Tables, work: FeatureWork, awake: Stored) -> pa.Table:
    """entity, home (the dataset), as_of of what is remembered of dormant datasets."""
    assert work.source is not None
    columns = ["entity", "dataset", "last_read_s", "as_of"]
    rows = _remembered(read_partitions(tables.head(DORMANT), work.source.dormant, columns), work)
    rows = rows.append_column("home", _home(rows)).select(["entity", "home", "as_of"])
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
    return Stored.of_rows(rows.filter(pc.is_in(_home(rows), value_set=homes)))


def _remembered(rows: pa.Table, work: FeatureWork) -> pa.Table:
    """The rows of datasets that the state has not forgotten."""
    assert work.since_s is not None
    return rows.filter(pc.greater_equal(rows["last_read_s"], work.since_s - work.spec.history_s))


def _home(rows: pa.Table) -> pa.ChunkedArray:
    """The dataset of each row."""
    return pc.coalesce(rows["dataset"], rows["entity"])
