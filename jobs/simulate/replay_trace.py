"""Replay of a trace: policies and the bound at several capacities."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from features.errors import ConfigError
from jobs.progress import Advance
from jobs.simulate.stewards import STEWARDS, steward_policies
from jobs.store.traces import BESIDE, NOTHING_BESIDE, Beside, TraceFile, sizes
from replay.compare import BOUND, LRU, PLAN, Row, compare
from replay.config import CacheConfig
from replay.policies import POLICIES, Policy, canonical, score_policies
from replay.read import LoadedTrace
from replay.read.scores import read_scores


@dataclasses.dataclass(frozen=True)
class Caches:
    """What to replay: policies at `capacities` (bytes) and `fractions` of the bytes of all files read.

    `watermarks`: LRU is an XCache with these, checked every `purge_interval_s`; None: every policy decides at
    each access. `scores`: a file with a score per item, for the policies that need scores. `beside`: columns
    that tell stewards more of an access; by default those that are called so. `block_bytes`: files are
    fetched by blocks of this size as far as they are read, None: whole. Only stewards and XCaches do so.
    """

    policies: Sequence[str]
    capacities: Sequence[int]
    fractions: Sequence[float]
    watermarks: tuple[float, float] | None = None
    purge_interval_s: int = 300
    scores: Path | None = None
    with_bound: bool = True
    workers: int | None = None
    beside: Beside = NOTHING_BESIDE
    block_bytes: int | None = None

    @property
    def keep(self) -> list[str]:
        """Columns to keep beside the trace: stewards are told of them."""
        if not any(name in STEWARDS for name in named_policies(self)):
            return []
        return [given or name for name, given in zip(BESIDE, self.beside, strict=True)]


@dataclasses.dataclass(frozen=True)
class ReplayAnswer:
    """A row per capacity and policy, and notes on rows of the trace that were changed or dropped."""

    rows: list[dict[str, object]]
    notes: tuple[str, ...]


def run(trace: TraceFile, caches: Caches, *, count_from_s: int | None, on_progress: Advance) -> ReplayAnswer:
    """Read a trace from its file and replay it. Raises as `replay`."""
    on_progress(0, 1, "reading")
    return replay(trace.load(keep=caches.keep), caches, count_from_s=count_from_s, on_progress=on_progress)


def replay(
    loaded: LoadedTrace, caches: Caches, *, count_from_s: int | None, on_progress: Advance
) -> ReplayAnswer:
    """A row per capacity and policy, and one for the bound; accesses before `count_from_s` warm the caches.

    Raises ConfigError, InputError.
    """
    policies = named_policies(caches)
    if PLAN in policies:
        raise ConfigError(
            "--policy",
            f"{PLAN} needs the site's tables, with predictions; leave out --trace, or this policy",
        )
    trace = loaded.trace
    chosen = sizes(trace, capacities=caches.capacities, fractions=caches.fractions)
    own = own_policies(caches, loaded, chosen, count_from_s=count_from_s, on_progress=on_progress)
    rows = compare(
        trace,
        chosen,
        policies=policies,
        xcache=xcache(caches),
        own=own,
        count_from_s=count_from_s,
        with_bound=shows_bound(caches),
        in_parts=caches.block_bytes is not None,
        on_done=on_progress,
        workers=caches.workers,
    )
    return ReplayAnswer([summary(row, trace.footprint_bytes) for row in rows], loaded.notes)


def xcache(caches: Caches) -> CacheConfig | None:
    """The XCache with these watermarks, if any; `compare` replaces its capacity."""
    if caches.watermarks is None:
        return None
    low, high = caches.watermarks
    return CacheConfig(1, low, high, caches.purge_interval_s, block_bytes=caches.block_bytes)


def own_policies(
    caches: Caches,
    loaded: LoadedTrace,
    capacities: Sequence[int],
    *,
    count_from_s: int | None,
    on_progress: Advance,
) -> dict[str, Policy]:
    """The policies that need the file of scores, if there is one, and those that drive a steward."""
    scored = {} if caches.scores is None else score_policies(read_scores(caches.scores, loaded.trace))
    return scored | steward_policies(
        named_policies(caches),
        loaded,
        caches.beside,
        capacities,
        from_s=count_from_s,
        as_xcache=caches.watermarks is not None,
        block_bytes=caches.block_bytes,
        on_progress=on_progress,
    )


def named_policies(caches: Caches) -> list[str]:
    """The policies' canonical names, without the bound. Raises ConfigError for one that lacks its scores."""
    names = [name for name in _named(caches) if name != BOUND]
    for name in names:
        if name not in (*POLICIES, *STEWARDS, PLAN) and caches.scores is None:
            raise ConfigError("--policy", f"{name} needs scores; give them with --scores FILE")
        if caches.block_bytes is not None and name not in _in_parts(caches):
            what = f"{name} caches whole files; choose among {', '.join(_in_parts(caches))}"
            raise ConfigError("--block-size", what)
    return names


def _in_parts(caches: Caches) -> list[str]:
    """Policies that can cache parts of files."""
    return [*(() if caches.watermarks is None else (LRU, PLAN)), *STEWARDS]


def shows_bound(caches: Caches) -> bool:
    """Whether the bound gets a row, by default or as one of the policies."""
    return caches.with_bound or BOUND in _named(caches)


def _named(caches: Caches) -> list[str]:
    return [canonical(name, others=(*STEWARDS, PLAN, BOUND)) for name in caches.policies]


def summary(row: Row, footprint_bytes: int) -> dict[str, object]:
    """A row of a comparison as a flat dict; hits are None for the bound on bytes, as it has none."""
    result, is_bound = row.result, row.policy == BOUND
    return {
        "policy": row.policy,
        "capacity_bytes": row.capacity_bytes,
        "capacity_fraction": row.capacity_bytes / footprint_bytes if footprint_bytes else 0.0,
        "requests": result.requests,
        "hits": None if is_bound else result.hits,
        "hit_ratio": None if is_bound else result.hit_ratio,
        "byte_hit_ratio": result.byte_hit_ratio,
        "object_miss_ratio": None if is_bound else result.object_miss_ratio,
        "byte_miss_ratio": result.byte_miss_ratio,
        "bytes_requested": result.bytes_requested,
        "wan_bytes": result.wan_bytes,
        "prefetch_bytes": result.prefetch_bytes,
        "prefetch_precision": result.prefetch_precision,
        "prefetch_coverage": result.prefetch_coverage,
        "wasted_bytes": result.wasted_bytes,
        "refetch_bytes": result.refetch_bytes,
        "bypassed_bytes": result.bypassed_bytes,
        "peak_usage_bytes": result.peak_usage_bytes,
        "peak_hour_wan_bytes": result.peak_hour_wan_bytes,
        "byte_gap_closed": row.byte_gap_closed,
        "object_gap_closed": row.object_gap_closed,
        "seconds": result.seconds,
    }
