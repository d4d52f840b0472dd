"""The state of features: the histories of a region at an `as_of`, carried on from one cycle to the next.

A state at S holds the accesses that were known before S. The state at a later T adds the accesses that
became known in [S, T). Only two kinds of days are read for that: those whose accesses changed since S, and
those with accesses that were not known yet at S.

Accesses that were written late although they were known before S cannot be distinguished from those that the
state counts already. The state is then rebuilt from all days that features look back on, and also if settings
have changed.
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
from features.times import DAY_S, day_label, parse_as_of
from jobs.spark.table_io import read, read_partitions, replace
from jobs.store.keys import Key, MomentKey
from jobs.store.tables import Partition, Snapshot, Tables
from jobs.store.tables import read_partitions as table_partitions

STATE_FORM = 3
"""Version of the state's content. Raise it when the content changes its meaning: all states are rebuilt."""

MICROS = 1_000_000
VACUUM_AFTER_S = 3600.0
"""Replaced states stay on disk this long, for readers still at work."""


@dataclasses.dataclass(frozen=True)
class Carried:
    """The stored histories at an as_of; `since`: the as_of they were carried on from, None: rebuilt."""

    histories: DataFrame
    since: str | None


@dataclasses.dataclass(frozen=True)
class _DayInState:
    """How much of one day of accesses a state holds: `n_known` of its `n_rows` demand rows."""

    digest: str = ""
    n_known: int = 0
    n_rows: int = 0

    def is_complete(self, digest: str) -> bool:
        """Whether the state holds all rows of the day, whose files have this digest now."""
        return self.digest == digest and self.n_known == self.n_rows


@dataclasses.dataclass(frozen=True)
class _DayCount:
    """A day's demand rows known before the last state, and what the new state holds of the day."""

    n_before: int
    in_state: _DayInState


@dataclasses.dataclass(frozen=True)
class Histories:
    """The states of one region."""

    spark: SparkSession
    tables: Tables
    spec: FeatureSpec
    region: str
    demand_sources: Mapping[str, str]

    def at(self, as_of_s: int) -> Carried:
        """The histories at `as_of_s`, also written to the table `histories`; older states are dropped.

        Raises StaleInputError without accesses, ConflictError if another run wrote the same state.
        """
        accesses, states = self.tables.snapshot(ACCESSES), self.tables.head(HISTORIES)
        for key in self._states_until(states, as_of_s):
            state = self._carried_on(states, key, accesses, as_of_s)
            if state is not None:
                return state
        return self._rebuilt(accesses, as_of_s)

    def _carried_on(self, states: Snapshot, key: Key, accesses: Snapshot, as_of_s: int) -> Carried | None:
        """The state at `as_of_s` made from the state `key`; None if that one cannot be used."""
        since_s, in_state = parse_as_of(key[1]), self._days_in_state(key)
        if in_state is None:
            return None
        days = self._days_looked_back_on(accesses, as_of_s)
        unread = {
            day: part
            for day, part in days.items()
            if not in_state.get(day, _DayInState()).is_complete(part.digest)
        }
        counts = self._count(accesses, unread, since_s, as_of_s)
        if any(one.n_before != in_state.get(day, _DayInState()).n_known for day, one in counts.items()):
            return None
        if since_s == as_of_s:
            return Carried(self._stored(states, key), key[1])
        rows = carried(
            self._stored(states, key),
            self._demand(accesses, unread),
            self._files(),
            since_s=since_s,
            as_of_s=as_of_s,
            spec=self.spec,
        )
        complete = {day: in_state[day] for day in days if day not in unread}
        return self._write(rows, complete | {day: one.in_state for day, one in counts.items()}, as_of_s, key)

    def _rebuilt(self, accesses: Snapshot, as_of_s: int) -> Carried:
        days = self._days_looked_back_on(accesses, as_of_s)
        counts = self._count(accesses, days, as_of_s, as_of_s)
        rows = rebuild(self._demand(accesses, days), self._files(), [as_of_s], spec=self.spec)
        return self._write(rows, {day: one.in_state for day, one in counts.items()}, as_of_s, None)

    def _states_until(self, states: Snapshot, as_of_s: int) -> list[Key]:
        """The region's states at or before `as_of_s`, latest first."""
        of_region = [key for key in states.partitions if key[2] == self.region]
        return sorted((key for key in of_region if parse_as_of(key[1]) <= as_of_s), reverse=True)

    def _days_looked_back_on(self, accesses: Snapshot, as_of_s: int) -> dict[str, Partition]:
        """The days that features at `as_of_s` look back on, and the next day: clocks may be ahead."""
        since, until = day_label(as_of_s - self.spec.history_s), day_label(as_of_s + DAY_S)
        return {key[0]: part for key, part in accesses.select(since=since, until=until).items()}

    def _demand(self, accesses: Snapshot, days: Mapping[str, Partition]) -> DataFrame:
        chosen: dict[Key, Partition] = {(day,): part for day, part in days.items()}
        return demand(read_partitions(self.spark, accesses, chosen), self.demand_sources)

    def _count(
        self, accesses: Snapshot, days: Mapping[str, Partition], since_s: int, as_of_s: int
    ) -> dict[str, _DayCount]:
        """Each day's demand rows known before `since_s`, and what the state at `as_of_s` holds of it."""
        known = F.unix_micros("known_at")
        counts = (
            self._demand(accesses, days)
            .groupBy("day")
            .agg(
                F.count_if(known < since_s * MICROS).alias("n_before"),
                F.count_if(known < as_of_s * MICROS).alias("n_known"),
                F.count(F.lit(1)).alias("n_rows"),
            )
        )
        rows = {row["day"]: row for row in counts.toLocalIterator()} if days else {}
        return {
            day: _DayCount(row["n_before"], _DayInState(part.digest, row["n_known"], row["n_rows"]))
            if (row := rows.get(day))
            else _DayCount(0, _DayInState(part.digest))
            for day, part in days.items()
        }

    def _days_in_state(self, key: Key) -> dict[str, _DayInState] | None:
        """The days that the state `key` holds; None if it was made with other settings."""
        consumed = self.tables.head(CONSUMED)
        if key not in consumed.partitions:
            return None
        rows = table_partitions(consumed, {key: consumed.partitions[key]}).to_pylist()
        if any(row["made_by"] != self._settings_digest for row in rows):
            return None
        return {
            row["accesses_day"]: _DayInState(row["digest"], row["n_known"], row["n_rows"]) for row in rows
        }

    @property
    def _settings_digest(self) -> str:
        values = [STATE_FORM, self.spec.cycle_s, self.spec.history_s, sorted(self.demand_sources.items())]
        return hashlib.sha256(json.dumps(values).encode()).hexdigest()

    def _files(self) -> DataFrame | None:
        return read(self.spark, self.tables, FILES) if self.tables.exists(FILES) else None

    def _stored(self, states: Snapshot, key: Key) -> DataFrame:
        rows = read_partitions(self.spark, states, {key: states.partitions[key]})
        return rows.select("kind", "entity", "cells")

    def _write(
        self, rows: DataFrame, days: Mapping[str, _DayInState], as_of_s: int, source: Key | None
    ) -> Carried:
        """Write the state, then the days it holds: after a crash between the two, the state is not used."""
        key = MomentKey.at(as_of_s, self.region)
        placed = rows.withColumns({name: F.lit(v) for name, v in zip(HISTORIES.partition, key, strict=True)})
        states = self.tables.head(HISTORIES)
        older = [other for other in self._states_until(states, as_of_s) if other not in (key, source)]
        self.tables.replace_rows(CONSUMED, [], key)
        states = replace(placed, self.tables, HISTORIES, cover=[key], base=states, drop=older, gather=False)
        consumed = [
            {"accesses_day": day, **dataclasses.asdict(in_state), "made_by": self._settings_digest}
            for day, in_state in sorted(days.items())
        ]
        self.tables.replace_rows(CONSUMED, consumed, key)
        for table in (HISTORIES, CONSUMED):
            self.tables.vacuum(table, keep=2, grace_s=VACUUM_AFTER_S)
        return Carried(self._stored(states, key), None if source is None else source[1])
