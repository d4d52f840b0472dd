"""The states of features: what is remembered of a region's reads at an `as_of`, carried on to the next.

A state at S has counted the accesses that were usable at S. The state at a later T counts those that became
usable since. Only two kinds of days are read for that: those whose accesses changed since S, and those with
accesses that were not usable yet at S.

Accesses that were written late, although they were usable at S, cannot be told from those that are counted
already. The state is then rebuilt from all accesses, and also if settings have changed.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Collection, Mapping

import numpy as np

from features.schema import CONSUMED, STATES
from features.spec import FeatureSpec
from features.stream.events import usable
from features.times import DAY_S, day_label, parse_as_of
from jobs.store.keys import Key, MomentKey
from jobs.store.tables import Partition, Snapshot, Tables, read_partitions
from jobs.train.reads import PLACE, demanded

STATE_FORM = 3
"""Version of the state's content. Raise it when the content changes its meaning: all states are rebuilt."""

VACUUM_AFTER_S = 3600.0
"""Replaced states stay on disk this long, for readers still at work."""
_TIMES = ("accessed_at", "known_at")


@dataclasses.dataclass(frozen=True)
class DayInState:
    """How much of one day of accesses a state has counted: `n_known` of its `n_rows` demand rows."""

    digest: str = ""
    n_known: int = 0
    n_rows: int = 0

    def is_complete(self, digest: str) -> bool:
        """Whether the state has counted all rows of the day, whose files have this digest now."""
        return self.digest == digest and self.n_known == self.n_rows


@dataclasses.dataclass(frozen=True)
class Source:
    """What a state at an as_of is made from: the state `since` (None: none) and accesses of `days`.

    `in_state`: what it will have counted of each day; `older`: states that are not needed any more.
    """

    since: MomentKey | None
    days: Mapping[Key, Partition]
    in_state: Mapping[str, DayInState]
    older: Collection[Key]


@dataclasses.dataclass(frozen=True)
class States:
    """The states of one region."""

    tables: Tables
    spec: FeatureSpec
    region: str
    demand_sources: Mapping[str, str]

    def source(self, accesses: Snapshot, as_of_s: int) -> Source:
        """The least that must be read for the state at `as_of_s`."""
        states = self._until(as_of_s)
        for key in states:
            if (found := self._carried_on(key, accesses, as_of_s, states)) is not None:
                return found
        days = accesses.select(until=_next_day(as_of_s))
        counted = {key[0]: self._count(accesses, key, as_of_s, as_of_s)[1] for key in days}
        return Source(None, days, counted, _others(states, MomentKey.at(as_of_s, self.region)))

    def begin(self, as_of_s: int) -> None:
        """Mark the state at `as_of_s` as unusable until `conclude`."""
        self.tables.replace_rows(CONSUMED, [], MomentKey.at(as_of_s, self.region))

    def conclude(self, source: Source, as_of_s: int) -> None:
        """Note what the state at `as_of_s`, which has been written, has counted."""
        rows = [
            {"accesses_day": day, **dataclasses.asdict(in_state), "made_by": self._settings_digest}
            for day, in_state in sorted(source.in_state.items())
        ]
        self.tables.replace_rows(CONSUMED, rows, MomentKey.at(as_of_s, self.region))
        for table in (STATES, CONSUMED):
            self.tables.vacuum(table, keep=2, grace_s=VACUUM_AFTER_S)

    def _carried_on(
        self, key: MomentKey, accesses: Snapshot, as_of_s: int, states: Collection[MomentKey]
    ) -> Source | None:
        """The source of the state at `as_of_s` if it carries on that of `key`; None if that cannot be."""
        since_s, in_state = parse_as_of(key.as_of), self._days_in_state(key)
        if in_state is None:
            return None
        days = accesses.select(until=_next_day(as_of_s))
        unread = {
            day: part
            for day, part in days.items()
            if not in_state.get(day[0], DayInState()).is_complete(part.digest)
        }
        counted = {day: one for day, one in in_state.items() if (day,) in days and (day,) not in unread}
        for day in unread:
            n_before, counted[day[0]] = self._count(accesses, day, since_s, as_of_s)
            if n_before != in_state.get(day[0], DayInState()).n_known:
                return None
        here = MomentKey.at(as_of_s, self.region)
        return Source(key, unread, counted, () if key == here else _others(states, here, key))

    def _until(self, as_of_s: int) -> list[MomentKey]:
        """The region's states at or before `as_of_s`, latest first."""
        keys = [MomentKey(*key) for key in self.tables.head(STATES).partitions if key[2] == self.region]
        return sorted((key for key in keys if parse_as_of(key.as_of) <= as_of_s), reverse=True)

    def _count(self, accesses: Snapshot, day: Key, since_s: int, as_of_s: int) -> tuple[int, DayInState]:
        """A day's demand rows usable at `since_s`, and what the state at `as_of_s` has counted of it."""
        part = accesses.partitions[day]
        rows = demanded(read_partitions(accesses, {day: part}, [*_TIMES, *PLACE]), self.demand_sources)
        from_s = usable(rows, cycle_s=self.spec.cycle_s)
        in_state = DayInState(part.digest, int(np.sum(from_s <= as_of_s)), rows.num_rows)
        return int(np.sum(from_s <= since_s)), in_state

    def _days_in_state(self, key: Key) -> dict[str, DayInState] | None:
        """The days that the state `key` has counted; None if it was made with other settings."""
        consumed = self.tables.head(CONSUMED)
        if key not in consumed.partitions:
            return None
        rows = read_partitions(consumed, {key: consumed.partitions[key]}).to_pylist()
        if not rows or any(row["made_by"] != self._settings_digest for row in rows):
            return None
        return {row["accesses_day"]: DayInState(row["digest"], row["n_known"], row["n_rows"]) for row in rows}

    @property
    def _settings_digest(self) -> str:
        values = [STATE_FORM, self.spec.cycle_s, self.spec.history_s, sorted(self.demand_sources.items())]
        return hashlib.sha256(json.dumps(values).encode()).hexdigest()


def _next_day(as_of_s: int) -> str:
    """The last day that may have usable accesses: clocks may be ahead."""
    return day_label(as_of_s + DAY_S)


def _others(states: Collection[MomentKey], *kept: MomentKey) -> list[Key]:
    return [key for key in states if key not in kept]
