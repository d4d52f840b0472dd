"""A cache at a decision time in the planner's types: inventory, inflow, and what its origins may deliver."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import functools
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from features.common.arrays import IntArray
from features.common.errors import StaleInputError
from features.common.hosts import first_fit
from features.common.times import DAY_S, day_label, parse_as_of
from features.common.units import duration_label, format_bytes
from features.schema import ACCESSES, CONTENTS, PLANS
from jobs.ground.caches.inventory import held_of, is_here, serving_at, verified
from jobs.ground.caches.paths import Paths
from jobs.ground.settings.plan import PlanSettings
from jobs.ground.settings.tree import CacheSettings, Settings
from jobs.ground.store.tables import Tables
from jobs.loop.ingest.known_names import dids_of
from jobs.loop.plan.file_facts import OriginRules, facts, plan_files, read_shares
from prefetch.journal.journal import Journal
from prefetch.journal.tables import Try
from prefetch.plan.scores import Files
from prefetch.push.origins import SourceHealth
from prefetch.target import Held
from replay.planner import CacheState, peak_inflow, sure_inflow

_OUTSIDE = (
    "outside-federation: the redirector sends no reader to this cache, so nothing is planned for it; connect "
    "its cmsd, or set its `address` to what the redirector names"
)
MOST_BYTES_PER_S = 125 * 10**9  # no cache's network brings more, 1 Tbit/s; records may claim anything
NO_LIMIT = 2**62
_HOUR_S = 3600


@dataclasses.dataclass(frozen=True)
class CacheAtMoment:
    """A cache at `as_of_s`: its own inventory, and the names that earlier plans pinned there.

    `tries`: of its pushes at origins, oldest first; `serving`: caches of its site that take files (None: all
    not drained); `inventory_s`: when a host took the inventory before.
    """

    tables: Tables
    settings: Settings
    cache: CacheSettings
    inventory: Sequence[Held]
    pinned: Collection[str]
    as_of_s: int
    tries: Sequence[Try] = ()
    serving: frozenset[str] | None = None
    inventory_s: int | None = None

    @classmethod
    def asked(cls, settings: Settings, cache: str, as_of_s: int) -> CacheAtMoment:
        """As the cache itself, its pins and the latest attempts of its pushes say."""
        tables, configured = Tables.of(settings), settings.cache(cache)
        pinned, tries = _pushed(settings, cache, as_of_s)
        held, taken_s = verified(settings, configured, at_s=as_of_s)
        serving = serving_at(settings, configured)
        return cls(tables, settings, configured, held, pinned, as_of_s, tries, serving, taken_s)

    @classmethod
    def last_planned(cls, settings: Settings, cache: str) -> CacheAtMoment:
        """As its newest plan found it; the cache is not asked. Raises StaleInputError if there is none."""
        tables = Tables.of(settings)
        plans, contents = tables.head(PLANS), tables.head(CONTENTS)
        keys = sorted(key for key in plans.select(owner=cache) if key in contents.partitions)
        if not keys:
            raise StaleInputError(f"there is no plan for cache {cache!r} yet; run `cachecast plan`")
        as_of_s = parse_as_of(keys[-1][1])
        rows = contents.rows_of(keys[-1:])
        pinned, tries = _pushed(settings, cache, as_of_s)
        held = [held_of(row) for row in rows.to_pylist()]
        return cls(tables, settings, settings.cache(cache), held, pinned, as_of_s, tries)

    @property
    def taken_s(self) -> int:
        """When the inventory was taken: at `as_of_s`, unless the cache's host took it before."""
        return self.as_of_s if self.inventory_s is None else self.inventory_s

    @property
    def predicted_s(self) -> int:
        return self.as_of_s - self.as_of_s % self.settings.features.cycle

    @property
    def fault(self) -> str | None:
        """What keeps everything from being planned for this cache; None: nothing, or it is drained."""
        if self.cache.redirector is None or self.cache.drain or self.serving is None:
            return None
        return None if self.cache.name in self.serving else _OUTSIDE

    @functools.cached_property
    def dids(self) -> Mapping[str, str]:
        return dids_of(self.tables, self.inventory, self.settings.names.scopes, self.cache.prefix)

    @property
    def paths(self) -> Paths:
        return Paths(self.cache, self.dids)

    @property
    def cycle_s(self) -> int:
        cycle = self.settings.plan.cycle
        return self.settings.features.cycle if cycle == "auto" else cycle

    @functools.cached_property
    def inflows(self) -> Inflows:
        assumed = self.settings.plan.assumed_inflow * self.cycle_s / self.settings.features.cycle
        return inflows(self.tables, self.cache, as_of_s=self.as_of_s, cycle_s=self.cycle_s, assumed=assumed)

    def with_held(self, dids: pa.Array, held: Sequence[Held]) -> tuple[pa.Array, IntArray]:
        """`dids` with those of `held` files that are no candidates, and each held file's index there."""
        held_dids = pa.array([self.dids[file.name] for file in held], pa.string())
        at = pc.index_in(held_dids, value_set=dids)
        strangers = held_dids.filter(pc.is_null(at))
        index = at.fill_null(-1).to_numpy().astype(np.int64)
        index[index < 0] = len(dids) + np.arange(len(strangers))
        return pa.concat_arrays([dids, strangers]), index

    def state(self, held: Sequence[Held], index: IntArray) -> CacheState:
        """The planner's state with `held` files; a file that was never closed counts as used now."""
        cache, recent = self.cache, self.inflows.by_cycle
        return CacheState(
            as_of_s=self.as_of_s,
            capacity_bytes=cache.capacity,
            low_watermark=cache.watermarks[0],
            high_watermark=cache.watermarks[1],
            item=index,
            bytes_on_disk=np.array([file.bytes_on_disk for file in held], np.int64),
            last_access_s=np.array([_last_use_s(file, self.as_of_s) for file in held], np.int64),
            pinned=np.array([file.name in self.pinned for file in held], bool),
            is_open=np.array([file.is_open for file in held], bool),
            inflow_bytes=sum(recent) // len(recent),
            peak_inflow_bytes=peak_inflow(recent, self.cycle_s),
            lru_age_s=None,
            sure_inflow_bytes=sure_inflow(recent, self.cycle_s),
        )

    def facts(self, dids: pa.Array) -> tuple[Files, IntArray | None, pa.Table]:
        """The planner's facts, each origin's bytes (None: no limit), and `origin` and `why` by `nearest`."""
        settings, plan, at_s = self.settings, self.settings.plan, self.as_of_s
        health = SourceHealth(plan.source_limits, (attempt for attempt in self.tries if attempt.at_s < at_s))
        rules = OriginRules(
            settings.regions,
            self.cache.storage,
            () if plan.from_tape else plan.tape,
            frozenset(state.source for state in health.left_alone(at_s)),
            settings.cache_rses,
        )
        rows = facts(self.tables, dids, rules)
        held = self.dids.values()
        files, origins = plan_files(
            dids,
            rows,
            plan=plan,
            is_here=is_here(settings, self.cache, dids, held=held, serving=self.serving, at_s=at_s),
            read_share=read_shares(self.tables, as_of_s=at_s),
            benefit=settings.benefit.model,
            regions=settings.regions,
        )
        budget = origin_bytes(origins, self.tries, plan=plan, as_of_s=at_s, cycle_s=self.cycle_s)
        return files, budget, rows.select(["origin", "why"])


def _pushed(settings: Settings, cache: str, as_of_s: int) -> tuple[Collection[str], Sequence[Try]]:
    since_s = as_of_s - settings.plan.reconsider_source
    with contextlib.closing(Journal(settings.push.journal)) as journal:
        pins = journal.reports.pins(cache, now_s=as_of_s)
        return {pin.name for pin in pins}, journal.reports.tries(cache, since_s=since_s)


def _last_use_s(file: Held, as_of_s: int) -> int:
    return as_of_s if file.is_open else file.last_use_s or file.last_detach_s or as_of_s


class Inflows(NamedTuple):
    """Bytes that came in `by_cycle`, oldest first; `fault`: what was claimed and cannot be, None: nothing."""

    by_cycle: list[int]
    fault: str | None = None


def inflows(tables: Tables, cache: CacheSettings, *, as_of_s: int, cycle_s: int, assumed: float) -> Inflows:
    """Bytes that came in during each whole cycle of the day before; unknown: one of the `assumed` share."""
    unknown = Inflows([int(assumed * cache.capacity)])
    day_s = max(DAY_S - DAY_S % cycle_s, cycle_s)
    rows = tables.head(ACCESSES).rows(
        ["cache", "source", "accessed_at", "known_at", "bytes_missed"],
        since=day_label(as_of_s - day_s),
        until=day_label(as_of_s),
    )
    since, until = (dt.datetime.fromtimestamp(at_s, dt.UTC) for at_s in (as_of_s - day_s, as_of_s))
    of_cache = pc.and_(pc.equal(rows["cache"], cache.name), pc.less(rows["known_at"], until))
    recent = pc.and_(pc.greater_equal(rows["accessed_at"], since), pc.less(rows["accessed_at"], until))
    rows = rows.filter(pc.and_(pc.and_(of_cache, recent), pc.is_valid(rows["bytes_missed"])))
    streamed = pc.equal(rows["source"], "xcache_gstream")
    if pc.any(streamed).as_py():  # what cinfo files tell of the same reads does not come in again
        rows = rows.filter(streamed)
    if not rows.num_rows:
        return unknown
    ago_s = as_of_s - rows["accessed_at"].cast(pa.int64()).to_numpy() / 1e6
    cycle = np.ceil(ago_s / cycle_s).astype(np.int64) - 1
    bytes_missed = np.maximum(rows["bytes_missed"].to_numpy(), 0)
    missed = np.bincount(cycle, weights=bytes_missed, minlength=day_s // cycle_s)
    if (most := int(missed.max())) > MOST_BYTES_PER_S * cycle_s:
        came = f"by its records {format_bytes(most)} came in within {duration_label(cycle_s)}"
        what = "more than any network brings; the plan goes by [plan] assumed_inflow instead"
        return unknown._replace(fault=f"implausible-inflow: {came}, {what}")
    return Inflows(missed[::-1].astype(np.int64).tolist())


def origin_bytes(
    origins: Sequence[str], tries: Sequence[Try], *, plan: PlanSettings, as_of_s: int, cycle_s: int
) -> IntArray | None:
    """Bytes that each of `origins` may deliver in the cycle, by earlier `tries`; None: there is no limit."""
    health = SourceHealth(plan.source_limits, (attempt for attempt in tries if attempt.at_s < as_of_s))
    per_hour = [source.per_hour for source in plan.sources]
    limit = np.array([*(n * cycle_s // _HOUR_S for n in per_hour), NO_LIMIT], np.int64)
    fits = first_fit(pa.array(origins, pa.string()), [source.hosts for source in plan.sources])
    budget: IntArray = limit[fits]
    budget[[health.leaves(origin, as_of_s) for origin in origins]] = 0
    return budget if (budget < NO_LIMIT).any() else None
