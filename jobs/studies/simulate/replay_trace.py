"""Replay of a trace: policies, those that drive a steward, and the bound, at several capacities."""

import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType

from features.common.errors import ConfigError, InputError
from features.common.progress import Advance
from features.common.times import HOUR_S
from features.common.units import bytes_label, duration_label
from features.results import LRU, STEWARD
from jobs.ground.settings.tree import MlflowSettings
from jobs.ground.text import select
from jobs.loop.traces import KNOWN_AT, known_s, sizes
from jobs.pages.verdicts import by_merit, verdict
from jobs.pages.write import BOUND_NOTE, Page, write_page
from jobs.studies.simulate.accesses import ReplayAnswer
from models.evaluation.metrics import gap_columns
from replay.access_context import CONTEXT, context_of
from replay.comparison import BOUND, BOUNDS, PLAN, Candidates, Comparison, compare
from replay.config import CacheConfig
from replay.planner import Planner
from replay.policies import PartPolicy, Policy, canonical
from replay.policies.learned import Order
from replay.read import LoadedTrace
from replay.steward.delayed_cache import NO_DELAY, XCACHE
from replay.steward.policies import AUTO, LEARNED, STEWARDS, steward_policy

_REPLAY_PAGE_COLUMNS = (
    *("policy", "capacity_bytes", "capacity_fraction", "hit_ratio", "byte_hit_ratio", "wan_bytes"),
    *("prefetch_bytes", "peak_hour_wan_bytes", "byte_gap_closed", "object_gap_closed"),
)
_UNBOUNDED = ("hits", "hit_ratio", "object_miss_ratio")
_OF_POLICIES = (
    *("requests", "hits", "hit_ratio", "byte_hit_ratio", "object_miss_ratio", "byte_miss_ratio"),
    *("bytes_requested", "wan_bytes", "prefetch_bytes", "prefetch_precision", "prefetch_coverage"),
    *("wasted_bytes", "refetch_bytes", "bypassed_bytes", "peak_usage_bytes", "peak_hour_wan_bytes"),
)


@dataclasses.dataclass(frozen=True)
class Caches:
    """What to replay: policies at `capacities` (bytes) and `fractions` of the bytes of all files read.

    `watermarks`: LRU is an XCache with these, checked every `purge_interval_s`; None: every policy decides at
    each access.
    `block_bytes`: files are fetched by blocks of this size as far as they are read, None: whole. Only
    stewards and XCaches do so. `own`: those of `policies` that are not ours (`replay.policies.own`).
    """

    policies: Sequence[str]
    capacities: Sequence[int]
    fractions: Sequence[float]
    watermarks: tuple[float, float] | None = None
    purge_interval_s: int = 300
    with_bound: bool = True
    block_bytes: int | None = None
    own: Mapping[str, Policy | PartPolicy] = MappingProxyType({})

    @property
    def asked(self) -> str:
        return "capacity_bytes" if self.capacities else "capacity_fraction"

    @property
    def params(self) -> dict[str, object]:
        """What an XCache, and parts of files, are replayed by, as parameters of a run in MLflow; or None."""
        marks, block = self.watermarks, self.block_bytes
        return {
            "watermarks": marks and ",".join(map(str, marks)),
            "purge_interval": marks and duration_label(self.purge_interval_s),
            "block_size": block and bytes_label(block),
        }

    @property
    def keep(self) -> Sequence[str]:
        """Columns of the trace that stewards use; empty if no policy is one."""
        return CONTEXT if any(name in STEWARDS for name in named_policies(self)) else ()


def replay_loaded(
    loaded: LoadedTrace, caches: Caches, *, count_from_s: int | None, on_progress: Advance
) -> ReplayAnswer:
    """A row per capacity and policy, after accesses that warm. Raises ConfigError, InputError.

    `loaded`: a trace with the columns `caches.keep`.
    """
    if PLAN in named_policies(caches):
        raise ConfigError(
            "--policy",
            f"{PLAN} needs the site's tables, with predictions; leave out --trace, or this policy",
        )
    replayed = compared(loaded, caches, count_from_s=count_from_s, on_progress=on_progress)
    return ReplayAnswer(summaries(loaded, caches, replayed), loaded.notes, capacity=caches.asked)


def record_run(
    mlflow: MlflowSettings, answer: ReplayAnswer, *, what: str, params: Mapping[str, object]
) -> str:
    """Write a replay as a run of MLflow with its page and table; return its id. Raises ServiceError.

    `what`: was replayed, for example `trace.parquet`: the run's name, which MLflow shows 17 letters of.
    """
    from jobs.pages import runs  # it loads MLflow, which few replays need

    run = runs.comparison(what, "replay", answer.rows, answer.capacity, params=params, tags={})
    export = partial(export_replay, answer, title=f"Replay of {what}")
    return runs.keep(mlflow, run, made_by="replay", export=export)


def compared(
    loaded: LoadedTrace,
    caches: Caches,
    *,
    count_from_s: int | None,
    on_progress: Advance,
    planner: Planner | None = None,
    cycle_s: int = HOUR_S,
) -> list[Comparison]:
    """The policies at each capacity, with LRU and the bounds, from which gaps are measured.

    With watermarks LRU, and LRU with plans by `planner` every `cycle_s` from `count_from_s` on, are XCaches.
    Where parts of files are cached, there are no bounds. Raises ConfigError, InputError.
    """
    capacities = sizes(loaded.trace, capacities=caches.capacities, fractions=caches.fractions)
    named = named_policies(caches)
    own: dict[str, Policy | PartPolicy] = {**caches.own} | steward_policies(
        named,
        loaded,
        capacities,
        from_s=count_from_s,
        as_xcache=caches.watermarks is not None,
        block_bytes=caches.block_bytes,
        on_progress=on_progress,
    )
    bounds = BOUNDS if BOUND in rows_of(caches) else ()
    names = [*([LRU] if bounds or caches.watermarks else []), *named]
    in_xcache = {LRU: None, PLAN: planner} if caches.watermarks else {}
    candidates = [
        Candidates(
            capacity_bytes,
            {name: own.get(name) for name in (*names, *bounds) if name not in in_xcache},
            _xcache(caches, capacity_bytes),
            {name: in_xcache[name] for name in names if name in in_xcache},
            cycle_s,
            count_from_s,
        )
        for capacity_bytes in capacities
    ]
    return compare(loaded.trace, candidates, count_from_s=count_from_s, on_done=on_progress)


def _xcache(caches: Caches, capacity_bytes: int) -> CacheConfig | None:
    if caches.watermarks is None:
        return None
    low, high = caches.watermarks
    return CacheConfig(capacity_bytes, low, high, caches.purge_interval_s, block_bytes=caches.block_bytes)


def named_policies(caches: Caches) -> list[str]:
    """The policies' canonical names, without the bound. Raises ConfigError."""
    names = _named(caches)
    if caches.block_bytes == 0:
        raise ConfigError("--block-size", "0 must be above 0; leave it out for whole files")
    for name in names:
        if caches.block_bytes is not None and name not in _in_parts(caches):
            what = f"{name} caches whole files; choose among {', '.join(_in_parts(caches))}"
            raise ConfigError("--block-size", what)
    return [name for name in names if name != BOUND]


def _in_parts(caches: Caches) -> list[str]:
    return [*(() if caches.watermarks is None else (LRU, PLAN)), *STEWARDS]


def rows_of(caches: Caches) -> list[str]:
    """The policies that get a row; the bound too, by default or as one of them, unless parts are cached."""
    names = list(dict.fromkeys(named_policies(caches)))
    with_bound = caches.with_bound or BOUND in _named(caches)
    return [*names, *([BOUND] if with_bound and caches.block_bytes is None else [])]


def _named(caches: Caches) -> list[str]:
    others = (*STEWARDS, PLAN, BOUND)
    return [name if name in caches.own else canonical(name, others=others) for name in caches.policies]


def summaries(loaded: LoadedTrace, caches: Caches, replayed: Sequence[Comparison]) -> list[dict[str, object]]:
    """A row per capacity and policy, as of `replay`; hits are None for the bound on bytes, as it has none."""
    footprint_bytes = loaded.trace.footprint_bytes
    return [_summary(at, name, footprint_bytes) for at in replayed for name in rows_of(caches)]


def _summary(at: Comparison, policy: str, footprint_bytes: int) -> dict[str, object]:
    result = at.rows[policy].result
    row: dict[str, object] = {"policy": policy, "capacity_bytes": at.capacity_bytes}
    row |= {"capacity_fraction": at.capacity_bytes / footprint_bytes if footprint_bytes else 0.0}
    row |= {
        name: None if policy == BOUND and name in _UNBOUNDED else getattr(result, name)
        for name in _OF_POLICIES
    }
    hits_gap = at.hits_gap_closed(policy)
    return row | {**gap_columns(at.gap(policy)), "object_gap_closed": hits_gap, "seconds": result.seconds}


def steward_policies(
    names: Sequence[str],
    loaded: LoadedTrace,
    capacities: Sequence[int],
    *,
    from_s: int | None,
    as_xcache: bool,
    block_bytes: int | None = None,
    on_progress: Advance,
) -> dict[str, Policy | PartPolicy]:
    """Those of `names` that drive a steward.

    What is learned is learned from the accesses before `from_s`, of the tables' from those known by then, for
    `capacities`. `as_xcache`: with the delays of a live cache; `block_bytes`: files are fetched by it as far
    as they are read. Raises ConfigError, InputError, SchemaError.
    """
    stewards = [name for name in names if name in STEWARDS]
    if not stewards:
        return {}
    learns = any(STEWARDS[name] == LEARNED for name in stewards)
    if learns and from_s is None:
        what = f"{STEWARD} learns from the accesses before --from; give it, or choose {AUTO}"
        raise ConfigError("--policy", what)
    context = context_of(loaded)
    learned: list[Order] = []
    if from_s is not None and (learns or AUTO in stewards):
        from models.learning.order import Learning

        known = known_s(loaded) if KNOWN_AT in loaded.details.column_names else None
        learned = Learning(loaded.trace, context, capacities, known).orders(from_s, on_progress)
    if learns and not learned:
        raise InputError(
            "there are too few accesses before --from to learn from; count from later, or choose " + AUTO
        )
    delays = XCACHE if as_xcache else NO_DELAY
    return {
        name: steward_policy(name, context, learned, delays=delays, block_bytes=block_bytes)
        for name in stewards
    }


def export_replay(answer: ReplayAnswer, out: Path | None, *, title: str) -> None:
    """Write a replay to `out`, if given, in the format of its suffix."""
    ranked = by_merit(answer.rows, "capacity_bytes")
    rows = [select(row, _REPLAY_PAGE_COLUMNS) for row in ranked]
    heading = "Against capacity" if len({row["capacity_bytes"] for row in rows}) > 1 else "Policies"
    answers = [verdict(answer.rows, "capacity_bytes")]
    page = Page(title, answer.notes, rows, answers, heading=heading, note=BOUND_NOTE)
    drawn = answer.rows, answer.capacity
    write_page(out, answer.rows, page, lambda plots: plots.hit_ratio_against_capacity(*drawn))
