"""The state of features, carried from cycle to cycle; rebuilt where it cannot be.

A state at as_of S holds what was known before S. The one at a later T takes it and adds the accesses known in
[S, T): only days of accesses that changed since, or that held records not yet known at S, are read. Records
that came into a day late but were known before S cannot be told from those that are counted: then, and if
settings changed, the state is rebuilt from the days that features look back on.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from features.schema import ACCESSES, CONSUMED, FILES, HISTORIES
from features.spark.demand import demand
from features.spark.features import carried, rebuild
from features.spec import FeatureSpec
from features.times import DAY_S, as_of_label, day_label, parse_as_of
from jobs.spark.table_io import read, read_partitions, replace
from jobs.store.tables import Key, Partition, Snapshot, Tables
from jobs.store.tables import read_partitions as table_partitions

STATE_FORM = 2
"""To be raised where what a state holds changes its meaning: older states are then rebuilt."""

MICROS = 1_000_000
VACUUM_AFTER_S = 3600.0
"""States replaced less than this ago stay on disk, for a reader that is still at work."""


@dataclasses.dataclass(frozen=True)
class Carried:
    """The histories at an as_of, as stored; `since` is the as_of they were carried from, None: rebuilt."""

    histories: DataFrame
    since: str | None


@dataclasses.dataclass(frozen=True)
class _Day:
    """How far one day of accesses is in a state: `n_known` of its `n_rows` demand rows."""

    digest: str
    n_known: int
    n_rows: int


@dataclasses.dataclass(frozen=True)
class Histories:
    """The states of one region."""

    spark: SparkSession
    tables: Tables
    spec: FeatureSpec
    region: str
    demand_sources: Mapping[str, str]

    def at(self, as_of_s: int) -> Carried:
        """The histories at `as_of_s`, written to the table `histories`; those before the last are dropped.

        Raises StaleInputError without accesses, ConflictError if another run wrote the same state.
        """
        accesses, states = self.tables.snapshot(ACCESSES), self.tables.head(HISTORIES)
        for key in self._not_after(states, as_of_s):
            since_s, old = parse_as_of(key[1]), self._consumed(key)
            if old is None:
                continue
            days = self._days(accesses, as_of_s)
            behind = {day: part for day, part in days.items() if not _is_done(old.get(day), part.digest)}
            counted = self._count(accesses, behind, since_s, as_of_s)
            if any(n_before != _n_known(old.get(day)) for day, (n_before, _) in counted.items()):
                continue
            if since_s == as_of_s:
                return Carried(self._stored(states, key), key[1])
            rows = carried(
                self._stored(states, key),
                self._rows(accesses, behind),
                self._files(),
                since_s=since_s,
                as_of_s=as_of_s,
                spec=self.spec,
            )
            done = {day: old[day] for day in days if day not in behind}
            return self._write(rows, done | {day: new for day, (_, new) in counted.items()}, as_of_s, key)
        return self._rebuilt(accesses, as_of_s)

    def _rebuilt(self, accesses: Snapshot, as_of_s: int) -> Carried:
        days = self._days(accesses, as_of_s)
        counted = self._count(accesses, days, as_of_s, as_of_s)
        rows = rebuild(self._rows(accesses, days), self._files(), [as_of_s], spec=self.spec)
        return self._write(rows, {day: new for day, (_, new) in counted.items()}, as_of_s, None)

    def _not_after(self, states: Snapshot, as_of_s: int) -> list[Key]:
        """The region's states at `as_of_s` or before, latest first."""
        mine = [key for key in states.partitions if key[2] == self.region]
        return sorted((key for key in mine if parse_as_of(key[1]) <= as_of_s), reverse=True)

    def _days(self, accesses: Snapshot, as_of_s: int) -> dict[str, Partition]:
        """The days that features at `as_of_s` look back on, and the next: clocks may be ahead."""
        since, until = day_label(as_of_s - self.spec.history_s), day_label(as_of_s + DAY_S)
        return {key[0]: part for key, part in accesses.select(since=since, until=until).items()}

    def _rows(self, accesses: Snapshot, days: Mapping[str, Partition]) -> DataFrame:
        chosen: dict[Key, Partition] = {(day,): part for day, part in days.items()}
        return demand(read_partitions(self.spark, accesses, chosen), self.demand_sources)

    def _count(
        self, accesses: Snapshot, days: Mapping[str, Partition], since_s: int, as_of_s: int
    ) -> dict[str, tuple[int, _Day]]:
        """By day: its demand rows known before `since_s`, and how far the state at `as_of_s` has it."""
        known = F.unix_micros("known_at")
        counts = (
            self._rows(accesses, days)
            .groupBy("day")
            .agg(
                F.count_if(known < since_s * MICROS).alias("n_before"),
                F.count_if(known < as_of_s * MICROS).alias("n_known"),
                F.count(F.lit(1)).alias("n_rows"),
            )
        )
        told = {row["day"]: row for row in counts.toLocalIterator()} if days else {}
        return {
            day: (row["n_before"], _Day(part.digest, row["n_known"], row["n_rows"]))
            if (row := told.get(day))
            else (0, _Day(part.digest, 0, 0))
            for day, part in days.items()
        }

    def _consumed(self, key: Key) -> dict[str, _Day] | None:
        """What the state of `key` holds; None if it was made otherwise than it would be now."""
        consumed = self.tables.head(CONSUMED)
        if key not in consumed.partitions:
            return None
        rows = table_partitions(consumed, {key: consumed.partitions[key]}).to_pylist()
        if any(row["made_by"] != self._made_by for row in rows):
            return None
        return {row["accesses_day"]: _Day(row["digest"], row["n_known"], row["n_rows"]) for row in rows}

    @property
    def _made_by(self) -> str:
        knobs = [STATE_FORM, self.spec.cycle_s, self.spec.history_s, sorted(self.demand_sources.items())]
        return hashlib.sha256(json.dumps(knobs).encode()).hexdigest()

    def _files(self) -> DataFrame | None:
        return read(self.spark, self.tables, FILES) if self.tables.exists(FILES) else None

    def _stored(self, states: Snapshot, key: Key) -> DataFrame:
        rows = read_partitions(self.spark, states, {key: states.partitions[key]})
        return rows.select("kind", "entity", "cells")

    def _write(self, rows: DataFrame, days: Mapping[str, _Day], as_of_s: int, source: Key | None) -> Carried:
        """Write the state, then what it holds: a crash between the two leaves a state that nobody trusts."""
        key: Key = (day_label(as_of_s), as_of_label(as_of_s), self.region)
        placed = rows.withColumns({name: F.lit(v) for name, v in zip(HISTORIES.partition, key, strict=True)})
        states = self.tables.head(HISTORIES)
        old = [other for other in self._not_after(states, as_of_s) if other not in (key, source)]
        self.tables.replace_rows(CONSUMED, [], key)
        states = replace(placed, self.tables, HISTORIES, cover=[key], base=states, drop=old, gather=False)
        consumed = [
            {"accesses_day": day, **dataclasses.asdict(told), "made_by": self._made_by}
            for day, told in sorted(days.items())
        ]
        self.tables.replace_rows(CONSUMED, consumed, key)
        for table in (HISTORIES, CONSUMED):
            self.tables.vacuum(table, keep=2, grace_s=VACUUM_AFTER_S)
        return Carried(self._stored(states, key), None if source is None else source[1])


def _is_done(told: _Day | None, digest: str) -> bool:
    """Whether a day is in a state whole, and as it is now."""
    return told is not None and told.digest == digest and told.n_known == told.n_rows


def _n_known(told: _Day | None) -> int:
    return 0 if told is None else told.n_known
