"""The states of features: what is remembered of a region's reads at an `as_of`, carried on to the next.

A state at S has counted the accesses that were usable at S. The state at a later T counts those that became
usable since. Only two kinds of days are read for that: those whose accesses changed since S, and those with
accesses that were not usable yet at S.

Of each day a state notes how many accesses it has counted, and a sum of their hashes. If these are others now
(accesses that were usable at S were written later, have changed, or are gone), the state is rebuilt from all
accesses, and also if settings have changed.

A state is written at the first as_of of a day, and when many reads are new: until then each as_of counts the
reads since the last one that was written, which costs less than to write what did not change.

A state has two parts, so that a cycle costs what its reads and candidates do, however long the history is.
The table `states` holds the datasets that may have candidates, and is written anew with each state. At the
first state of a day those that have become too old move to a partition of the table `dormant`, which later
states share. When a dormant dataset is read, it is in `states` again, and what `dormant` has of it is void.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from features.accesses import PLACES, demand
from features.common.errors import StaleInputError
from features.common.times import DAY_S, day_label, parse_as_of
from features.schema import ACCESSES, CONSUMED, DORMANT, FILES, STATES, Table
from features.spec import FeatureSpec
from features.stream.events import read_hashes, usable
from features.stream.facts import CATALOGUE, DATASET, REPEATED, Stored
from features.stream.names import absent, distinct, joined, whole
from jobs.ground.store.commits import Key, MomentKey
from jobs.ground.store.tables import Partition, Snapshot, Tables, read_partitions
from jobs.loop.train.engines import Counting, DayInState, DaysRead, Engine, FeatureWork, StateSource
from models.parallel import map_parallel

STATE_FORM = 5
"""Version of the state's content. Raise it when the content changes its meaning: all states are rebuilt."""

WORTH_A_STATE = 0.25
"""New reads, as a share of a state's rows, for which the next state is written before the next day."""

VACUUM_AFTER_S = 3600.0
"""Replaced states stay on disk this long, for readers still at work."""


@dataclasses.dataclass(frozen=True)
class States:
    """The states of one region; `engine_of`: the engine that reads days of accesses."""

    tables: Tables
    spec: FeatureSpec
    region: str
    demand_sources: Mapping[str, str]
    engine_of: Callable[[Mapping[Key, Partition]], Engine]

    def source(self, accesses: Snapshot, as_of_s: int) -> StateSource:
        """The least that must be read for the state at `as_of_s`."""
        for key, state in self._until(STATES, as_of_s).items():
            if (source := self._carried_on(key, state, accesses, as_of_s)) is not None:
                return source
        days = accesses.select(until=_next_day(as_of_s))
        read = self._read(accesses, days, as_of_s)
        counted = {key[0]: now for key, (now,) in read.in_state.items()}
        older = self._older(as_of_s, (), ())
        return StateSource(None, {}, {}, days, counted, older, is_kept=True, reads=read.rows)

    def begin(self, as_of_s: int) -> None:
        """Mark the state at `as_of_s` as unusable until `conclude`."""
        self.tables.replace_rows(CONSUMED, [], MomentKey.at(as_of_s, self.region))

    def conclude(self, work: FeatureWork) -> None:
        """Note what the state, which has been written, has counted, and what is dormant."""
        assert work.source is not None
        here, as_of_s = work.keys[-1], work.as_ofs[-1]
        oldest_s = as_of_s - self.spec.history_s
        # All reads of the datasets that became dormant then happened before.
        moved_s = {key: self.spec.dormant_before(parse_as_of(key[1])) for key in work.source.dormant}
        dormant = {key: part for key, part in work.source.dormant.items() if moved_s[key] > oldest_s}
        if DORMANT in work.state_windows:
            moved = self.tables.head(DORMANT).partitions
            if here not in moved:  # a later state, of a process beside this one, has dropped it
                return
            dormant[here] = moved[here]
        in_state = work.source.in_state.items()
        parts = [(ACCESSES.name, day, dataclasses.asdict(counted)) for day, counted in in_state]
        for key, part in dormant.items():
            parts.append((DORMANT.name, key[1], dataclasses.asdict(_whole(part))))
        rows = [
            {"table": table, "part": part, **counted, "made_by": self._settings_digest}
            for table, part, counted in sorted(parts, key=lambda row: row[:2])
        ]
        self.tables.replace_rows(CONSUMED, rows, here)
        for table in (STATES, DORMANT, CONSUMED):
            self.tables.vacuum(table, grace_s=VACUUM_AFTER_S)

    def _carried_on(
        self, key: MomentKey, state: Partition, accesses: Snapshot, as_of_s: int
    ) -> StateSource | None:
        """The source of the state at `as_of_s` if it carries on that of `key`; None if that cannot be."""
        since_s, content = parse_as_of(key.as_of), self._content(key)
        if content is None:
            return None
        in_state, dormant = content
        days = accesses.select(until=_next_day(as_of_s))
        oldest = day_label(since_s - self.spec.history_s)
        if any(of.n_known and (day,) not in days and day >= oldest for day, of in in_state.items()):
            return None
        unread = {
            day: part
            for day, part in days.items()
            if not in_state.get(day[0], DayInState()).is_complete(part.digest)
        }
        counted = {day: counts for day, counts in in_state.items() if (day,) in days and (day,) not in unread}
        read = self._read(accesses, unread, since_s, as_of_s)
        for (day,), (before, now) in read.in_state.items():
            if not before.has_same_reads(in_state.get(day, DayInState())):
                return None
            counted[day] = now
        n_new = sum(now.n_known - in_state.get(day, DayInState()).n_known for day, now in counted.items())
        is_kept = day_label(since_s) != day_label(as_of_s) or n_new > WORTH_A_STATE * state.n_rows
        older = self._older(as_of_s, [key], dormant)
        return StateSource(key, {key: state}, dormant, unread, counted, older, is_kept, read.rows)

    def _until(self, table: Table, as_of_s: int) -> dict[MomentKey, Partition]:
        """The region's partitions at or before `as_of_s`, latest first."""
        parts = {MomentKey(*key): part for key, part in self.tables.head(table).partitions.items()}
        keys = [key for key in parts if key.owner == self.region and parse_as_of(key.as_of) <= as_of_s]
        return {key: parts[key] for key in sorted(keys, reverse=True)}

    def _older(
        self, as_of_s: int, states: Collection[Key], dormant: Collection[Key]
    ) -> dict[Table, list[Key]]:
        """What is needed no more once the state at `as_of_s` is written, which is made of those given."""
        here = MomentKey.at(as_of_s, self.region)
        return {
            table: [key for key in self._until(table, as_of_s) if key != here and key not in needed]
            for table, needed in ((STATES, states), (DORMANT, dormant))
        }

    def _read(self, accesses: Snapshot, days: Mapping[Key, Partition], *times: int) -> DaysRead:
        """These days, and what states at `times` have counted of each."""
        counting = Counting(times, self.spec.cycle_s, self.demand_sources)
        return self.engine_of(days).read(accesses, days, counting)

    def _content(self, key: Key) -> tuple[dict[str, DayInState], dict[Key, Partition]] | None:
        """The days that the state `key` has counted, and the dormant datasets that belong to it.

        None if it was made with other settings, or if the dormant datasets are not those of then.
        """
        consumed, dormant = self.tables.head(CONSUMED), self.tables.head(DORMANT).partitions
        if key not in consumed.partitions:
            return None
        rows = consumed.rows_of([key]).to_pylist()
        if not rows or any(row["made_by"] != self._settings_digest for row in rows):
            return None
        days: dict[str, DayInState] = {}
        parts: dict[Key, Partition] = {}
        for row in rows:
            counted = DayInState(row["digest"], row["n_known"], row["n_rows"], row["content"])
            if row["table"] == ACCESSES.name:
                days[row["part"]] = counted
                continue
            moved = MomentKey.at(parse_as_of(row["part"]), self.region)
            if moved not in dormant or _whole(dormant[moved]) != counted:
                return None
            parts[moved] = dormant[moved]
        return days, parts

    @property
    def _settings_digest(self) -> str:
        spec = self.spec
        values = [
            *(STATE_FORM, spec.cycle_s, spec.history_s, max(spec.candidate_s, spec.active_dataset_s)),
            sorted(self.demand_sources.items()),
        ]
        return hashlib.sha256(json.dumps(values).encode()).hexdigest()


def _next_day(as_of_s: int) -> str:
    """The last day that may have usable accesses: clocks may be ahead."""
    return day_label(as_of_s + DAY_S)


def _whole(part: Partition) -> DayInState:
    return DayInState(part.digest, part.n_rows, part.n_rows)


PLACE = (*PLACES, "source")
"""Columns that say whether an access counts as demand."""


def coded_reads(
    accesses: Snapshot,
    days: Mapping[Key, Partition],
    columns: Sequence[str],
    sources: Mapping[str, str],
    look: Callable[[Key, pa.Table], None] = lambda key, rows: None,
) -> pa.Table:
    """`columns` of the demand rows of `days`. Raises StaleInputError if there are rows, but of no source.

    `look`: called with each day and its rows, in any order.
    """

    def of_day(key: Key) -> pa.Table:
        rows = demanded_day(accesses, {key: days[key]}, columns, sources)
        look(key, rows)
        return rows

    empty = read_partitions(accesses, {}, columns, coded=columns)
    every = pa.concat_tables([empty, *map_parallel(of_day, sorted(days))])
    rows = pa.table(map_parallel(whole, every.columns), names=every.column_names)
    if sources and not rows.num_rows and any(part.n_rows for part in days.values()):
        of_all = read_partitions(accesses, days, ["source"], coded=["source"])
        demanded, names = sorted(set(sources.values())), distinct([of_all["source"]]).to_pylist()
        raise StaleInputError(
            f"no access since {min(days)[0]} is of a demand source ({', '.join(demanded)}); there are "
            f"accesses of {', '.join(names)}: name the one that counts in [sources] demand"
        )
    return rows


def demanded_day(
    accesses: Snapshot, day: Mapping[Key, Partition], columns: Sequence[str], sources: Mapping[str, str]
) -> pa.Table:
    """The same of one day, or of some of its files; without its demand rows it is empty."""
    needed = dict.fromkeys([*columns, *(PLACE if sources else ())])
    rows = read_partitions(accesses, day, list(needed), coded=columns)
    rows = demand(rows, sources) if sources else rows
    return joined(rows.select(list(columns)))


def counted_at(rows: pa.Table, digest: str, counting: Counting) -> list[DayInState]:
    """What states at each of the times have counted of the demand rows of a day, or of some of its files."""
    from_s, hashes = usable(rows, cycle_s=counting.cycle_s), read_hashes(rows)
    counted = []
    for at_s in counting.times:
        is_known = from_s <= at_s
        content = np.sum(hashes[is_known], dtype=np.uint64).astype(np.int64)
        counted.append(DayInState(digest, int(np.sum(is_known)), rows.num_rows, int(content)))
    return counted


def not_counted(rows: pa.Table, work: FeatureWork) -> pa.Table:
    """The reads that the state of `work` has not counted yet."""
    if work.since_s is None:
        return rows
    return rows.filter(pa.array(usable(rows, cycle_s=work.spec.cycle_s) > work.since_s))


def catalogue(tables: Tables) -> pa.Table:
    """The catalogue as features need it, without a row if there is none."""
    files = tables.head(FILES)
    return joined(read_partitions(files, files.partitions, CATALOGUE, coded=CATALOGUE))


def carried(tables: Tables, work: FeatureWork, reads: pa.Table, files: pa.Table) -> Stored:
    """The state that `work` carries on, for these new reads, and files of the catalogue."""
    if work.source is None or work.source.since is None:
        return Stored.empty()
    rows = read_partitions(tables.head(STATES), work.source.awake, STATES.column_names, coded=REPEATED)
    awake = Stored.of_rows(rows)
    dormant, newest_first = tables.head(DORMANT), sorted(work.source.dormant.items(), reverse=True)
    names = map_parallel(lambda apart: _Names.of(dormant, dict([apart]), work), newest_first)
    pieces, waiting = [awake], _concerned(names, awake, reads, files)
    for apart, known in zip(newest_first, names, strict=True):
        here = known.datasets.filter(pc.is_in(known.datasets, value_set=waiting)).combine_chunks()
        if len(here):
            every = read_partitions(dormant, dict([apart]), DORMANT.column_names, coded=REPEATED)
            rows = _remembered(every, work)
            pieces.append(Stored.of_rows(rows.filter(pc.is_in(_dataset_of(rows), value_set=here))))
            waiting = waiting.filter(pc.invert(pc.is_in(waiting, value_set=here)))
    return Stored(
        pa.concat_tables([state.files for state in pieces]),
        pa.concat_tables([state.datasets for state in pieces]),
    )


def superseded(tables: Tables, work: FeatureWork) -> dict[str, pa.Array]:
    """By as_of of the partitions that `work` carries on: the datasets there that a later one has, too."""
    if work.source is None or work.source.since is None:
        return {}
    replaced, later, source = dict[str, pa.Array](), pa.array([], pa.string()), work.source
    for table, partitions in ((STATES, source.awake), (DORMANT, source.dormant)):
        snapshot = tables.head(table)
        for key, part in sorted(partitions.items(), reverse=True):
            rows = read_partitions(snapshot, {key: part}, ["kind", "entity"])
            here = rows.filter(pc.equal(rows["kind"], DATASET))["entity"]
            again = here.filter(pc.is_in(here, value_set=later)).combine_chunks()
            replaced[key[1]] = pa.concat_arrays([replaced[key[1]], again]) if key[1] in replaced else again
            later = pa.concat_arrays([later, here.combine_chunks()])
    return replaced


def remembered(rows: pa.Table, work: FeatureWork, superseded: pa.Array) -> pa.Table:
    """The rows of a state without datasets that are forgotten, or `superseded`."""
    rows = _remembered(rows, work)
    return rows.filter(pc.invert(pc.is_in(_dataset_of(rows), value_set=superseded)))


class _Names(NamedTuple):
    """What is remembered in a partition of `dormant`: rows with entity and dataset, and all `datasets`."""

    rows: pa.Table
    datasets: pa.ChunkedArray

    @classmethod
    def of(cls, dormant: Snapshot, partitions: Mapping[Key, Partition], work: FeatureWork) -> _Names:
        columns = ["entity", "dataset", "last_read_s"]
        rows = _remembered(read_partitions(dormant, partitions, columns, coded=REPEATED), work)
        return cls(rows, rows["entity"].filter(pc.is_null(rows["dataset"])))

    def of_files(self, dids: pa.Array) -> pa.ChunkedArray:
        """The datasets of those of `dids` that are here."""
        return _dataset_of(self.rows.filter(pc.is_in(self.rows["entity"], value_set=dids)))


def _concerned(names: Sequence[_Names], awake: Stored, reads: pa.Table, files: pa.Table) -> pa.Array:
    """The dormant datasets of files that are read now, or look unread and are listed in a dataset in use.

    A file may be listed in another dataset than it was counted in when it was first read.
    """
    read = absent(distinct([reads["did"]]), awake.files["entity"])
    stated = [rows.filter(pc.is_in(rows["did"], value_set=read))["dataset"] for rows in (reads, files)]
    counted = map_parallel(lambda dormant: dormant.of_files(read), names)
    in_use = distinct([*stated, *counted, awake.datasets["entity"]])
    listed = files.filter(pc.is_in(files["dataset"], value_set=in_use))["did"]
    unread = absent(distinct([listed]), awake.files["entity"])
    looked_for = map_parallel(lambda dormant: dormant.of_files(unread), names) if len(unread) else []
    everything = distinct([in_use, *looked_for])
    return everything.filter(pc.invert(pc.is_in(everything, value_set=awake.datasets["entity"])))


def _remembered(rows: pa.Table, work: FeatureWork) -> pa.Table:
    """The rows of datasets that the state has not forgotten."""
    assert work.since_s is not None
    is_remembered = pc.greater_equal(rows["last_read_s"], work.since_s - work.spec.history_s)
    return rows if pc.all(is_remembered, min_count=0).as_py() else rows.filter(is_remembered)


def _dataset_of(rows: pa.Table) -> pa.ChunkedArray:
    return pc.coalesce(rows["dataset"].cast(pa.string()), rows["entity"])
