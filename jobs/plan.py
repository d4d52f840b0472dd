"""One cache's plan: its own inventory and the region's predictions in, plan items with reasons out."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from features.errors import InputError, StaleInputError
from features.names import parse_name
from features.schema import CONTENTS, PLANS, PREDICTIONS
from features.times import as_of_label, day_label
from jobs.inflow import inflows
from jobs.plan_files import facts, plan_files, read_shares
from jobs.plan_rows import contents, items
from jobs.plan_settings import PlanSettings
from jobs.planner import planner
from jobs.settings import CacheSettings, Settings
from jobs.sources_now import origin_bytes
from jobs.study import benefit_model
from jobs.tables import Tables
from prefetch.plan import Action, Judgement
from prefetch.plan.cycle import eviction_age_s, fitting_cycle_s
from prefetch.plan.explain import Explanation, explain
from prefetch.plan.federation import belongs
from prefetch.target import Held
from replay.planner import BoolArray, CacheState, IntArray, peak_inflow

UNKNOWN_SCOPE = "unknown"


@dataclasses.dataclass(frozen=True)
class PlanSummary:
    """What was planned for one cache: files and bytes, and per list what kept it from growing.

    `cycle_s`: until when the plan provides; `eviction_age_s`: how long a file stays there without a plan;
    `fitting_cycle_s`: the cycle of predictions and plans that this asks for.
    """

    cache: str
    as_of: str
    held_files: int
    held_bytes: int
    prefetch: int
    prefetch_bytes: int
    pin: int
    pin_bytes: int
    unpin: int
    evict: int
    evict_bytes: int
    bound_by: dict[str, str]
    cycle_s: int
    eviction_age_s: int | None
    fitting_cycle_s: int


@dataclasses.dataclass(frozen=True)
class Judged:
    """One cache at one moment: its inventory, and the plan with what it was made from."""

    held: Sequence[Held]
    dids: pa.Array
    index: IntArray
    judgement: Judgement

    @property
    def cycle_s(self) -> int:
        """Until when the plan provides."""
        return self.judgement.case.limits.cycle_s


@dataclasses.dataclass(frozen=True)
class Moment:
    """A cache at `as_of_s`: what it holds by its own word, and the names that earlier plans hold there."""

    cache: CacheSettings
    inventory: Iterable[Held]
    pinned: Collection[str]
    as_of_s: int


def run(tables: Tables, settings: Settings, moment: Moment) -> PlanSummary:
    """Write the contents and plans of a cache at a moment.

    Raises StaleInputError if there are no predictions for it.
    """
    judged, as_of_s = judge(tables, settings, moment), moment.as_of_s
    key = (day_label(as_of_s), as_of_label(as_of_s), moment.cache.name)
    held_dids = judged.dids.take(pa.array(judged.index))
    rows = contents(judged.held, held_dids, as_of_s=as_of_s, key=key)
    tables.replace_arrow(CONTENTS, rows, cover=[key])
    plan, horizon_s = judged.judgement.plan, judged.judgement.horizon_s
    rows = items(plan, judged.dids, key=key, as_of_s=as_of_s, horizon_s=horizon_s)
    tables.replace_arrow(PLANS, rows, cover=[key])
    return _summary(judged, key)


def explained(tables: Tables, settings: Settings, moment: Moment, *, item: str) -> Explanation:
    """Why file `item` (a did or a name) is planned or not; nothing is written. Raises InputError."""
    judged = judge(tables, settings, moment)
    found = pc.or_(pc.equal(judged.dids, item), pc.ends_with(judged.dids, f":{item}"))
    place = pc.index(found, True).as_py()
    if place < 0:
        raise InputError(
            f"{item!r} is neither in cache {moment.cache.name!r} nor a candidate at "
            f"{as_of_label(moment.as_of_s)}: neither it nor its dataset was read lately; write it as "
            "scope:name, or as the cache's path"
        )
    return explain(judged.judgement, int(place))


def judge(tables: Tables, settings: Settings, moment: Moment) -> Judged:
    """The plan of a cache by the latest predictions, with what it was made from."""
    plan, region, every_s = settings.plan, settings.region.name, settings.features.cycle
    as_of_s = moment.as_of_s
    held = sorted(moment.inventory, key=lambda file: file.name)
    dids, known_names = _candidates(tables, as_of_s - as_of_s % every_s, region)
    dids, index = _with_held(dids, known_names, held)
    cycle_s, recent = _cycle(tables, moment.cache, plan, as_of_s=as_of_s, every_s=every_s)
    files, origins = plan_files(
        dids,
        facts(tables, dids),
        plan=plan,
        is_here=_is_here(settings, moment.cache, dids),
        read_share=read_shares(tables, as_of_s=as_of_s),
        benefit=benefit_model(settings.benefit),
        regions=settings.regions,
    )
    budget = origin_bytes(
        tables, origins, dids=dids, origin=files.origin, plan=plan, as_of_s=as_of_s, cycle_s=cycle_s
    )
    chosen = planner(
        tables,
        dids,
        region=region,
        plan=plan,
        cycle_s=cycle_s,
        predicted_every_s=every_s,
        files=files,
        origin_bytes=budget,
    )
    state = _state(moment, held, index, recent, cycle_s)
    return Judged(held, dids, index, chosen.judge(state))


def _state(
    moment: Moment, held: Sequence[Held], index: IntArray, recent: Sequence[int], cycle_s: int
) -> CacheState:
    """The cache as the planner knows it; a file that was never closed counts as used now."""
    cache, as_of_s = moment.cache, moment.as_of_s
    return CacheState(
        as_of_s=as_of_s,
        capacity_bytes=cache.capacity,
        low_watermark=cache.watermarks[0],
        high_watermark=cache.watermarks[1],
        item=index,
        bytes_on_disk=np.array([file.bytes_on_disk for file in held], np.int64),
        last_access_s=np.array([file.last_detach_s or as_of_s for file in held], np.int64),
        pinned=np.array([file.name in moment.pinned for file in held], bool),
        is_open=np.array([file.is_open for file in held], bool),
        inflow_bytes=sum(recent) // len(recent),
        peak_inflow_bytes=peak_inflow(recent, cycle_s),
        lru_age_s=None,
    )


def _is_here(settings: Settings, cache: CacheSettings, dids: pa.Array) -> BoolArray | None:
    """Which files belong to this cache and not to another one of its site; None: it is alone there."""
    members = {one.name: one.capacity for one in settings.caches.values() if one.at_site == cache.at_site}
    return belongs(dids.to_pylist(), members, cache.name) if len(members) > 1 else None


def _cycle(
    tables: Tables, cache: CacheSettings, plan: PlanSettings, *, as_of_s: int, every_s: int
) -> tuple[int, list[int]]:
    """Seconds that a plan provides for, and the inflow of such cycles in the last day."""
    cycle_s = every_s if plan.cycle == "auto" else plan.cycle
    assumed = plan.assumed_inflow * cycle_s / every_s
    return cycle_s, inflows(tables, cache, as_of_s=as_of_s, cycle_s=cycle_s, assumed=assumed)


def _candidates(tables: Tables, as_of_s: int, region: str) -> tuple[pa.Array, pa.Array]:
    """The dids predicted at `as_of_s`, and their names."""
    rows = tables.read_arrow(PREDICTIONS, as_of=as_of_label(as_of_s), owner=region, columns=["did"])
    if not rows.num_rows:
        raise StaleInputError(
            f"no predictions at {as_of_label(as_of_s)} for region {region!r}; run features and predict"
        )
    dids = pc.unique(rows["did"])
    return dids, pc.struct_field(pc.extract_regex(dids, r"^[^:]*:(?P<name>.*)$"), "name")


def _with_held(
    dids: pa.Array, names: pa.Array, held: Sequence[Held]
) -> tuple[pa.Array, np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """`dids` with those of held files that are no candidates, and each held file's index there."""
    at = pc.index_in(pa.array([file.name for file in held], pa.string()), value_set=names)
    strangers = [file.name for file, i in zip(held, at.to_pylist(), strict=True) if i is None]
    index = at.fill_null(-1).to_numpy().astype(np.int64)
    index[index < 0] = len(dids) + np.arange(len(strangers))
    extra = pa.array(
        [f"{parse_name(name).experiment or UNKNOWN_SCOPE}:{name}" for name in strangers], pa.string()
    )
    return pa.concat_arrays([dids, extra]), index


def _summary(judged: Judged, key: tuple[str, str, str]) -> PlanSummary:
    plan = judged.judgement.plan
    age_s = eviction_age_s(judged.judgement.case.state, judged.cycle_s)
    n = {action: int((plan.action == int(action)).sum()) for action in Action}
    return PlanSummary(
        cache=key[2],
        as_of=key[1],
        held_files=len(judged.held),
        held_bytes=sum(file.bytes_on_disk for file in judged.held),
        prefetch=n[Action.PREFETCH],
        prefetch_bytes=plan.bytes_of(Action.PREFETCH),
        pin=n[Action.PIN],
        pin_bytes=plan.bytes_of(Action.PIN),
        unpin=n[Action.UNPIN],
        evict=n[Action.EVICT],
        evict_bytes=plan.bytes_of(Action.EVICT),
        bound_by={action.name.lower(): what for action, what in plan.bound_by.items()},
        cycle_s=judged.cycle_s,
        eviction_age_s=age_s,
        fitting_cycle_s=fitting_cycle_s(age_s, judged.cycle_s),
    )
