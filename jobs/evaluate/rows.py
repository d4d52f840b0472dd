"""The standings of an evaluation as rows: of its answer, and of the table evaluations."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from features.common.arrays import IntArray
from features.common.times import DAY_S, day_label
from features.common.units import duration_label
from features.results import LRU
from models.evaluation.bootstrap import few_days, gap_columns
from replay.contest import Gap, Standings
from replay.result import Result


@dataclasses.dataclass(frozen=True, eq=False)
class Compared:
    """The standings at one capacity, as a share of the bytes of all files read.

    Plans were made every `cycle_s` (None: there are none); `model_weight`: of the models in them, by policy.
    """

    capacity_fraction: float
    standings: Standings
    cycle_s: int | None = None
    model_weight: Mapping[str, float] = MappingProxyType({})

    @property
    def few_days(self) -> str | None:
        """Why there are no bounds, in words; None: there are."""
        return few_days(self.standings.rows[LRU].result.daily.day.size)

    def gap(self, policy: str) -> Gap:
        """How near a policy came to the bound, day by day."""
        gap = self.standings.gap(policy)
        assert gap is not None  # LRU and the bound always compete
        return gap


def answer_rows(compared: Sequence[Compared]) -> tuple[dict[str, object], ...]:
    """A row per capacity and policy over the counted days.

    Columns: `policy`; `capacity_fraction`; `cycle`, between plans, None for policies that make none;
    `hit_ratio`; `byte_hit_ratio`; `wan_bytes`; `prefetch_bytes`; `wasted_bytes`; those of `gap_columns`;
    `core_hours`, of the jobs that read, waiting included, None of the bound and where they are not known.
    """
    return tuple(_answer_row(at, policy) for at in compared for policy in at.standings.rows)


def _answer_row(at: Compared, policy: str) -> dict[str, object]:
    one = at.standings.rows[policy]
    return {
        "policy": policy,
        "capacity_fraction": at.capacity_fraction,
        "cycle": None if at.cycle_s is None or "+" not in policy else duration_label(at.cycle_s),
        "hit_ratio": one.result.hit_ratio,
        "byte_hit_ratio": one.result.byte_hit_ratio,
        "wan_bytes": one.result.wan_bytes,
        "prefetch_bytes": one.result.prefetch_bytes,
        "wasted_bytes": one.result.wasted_bytes,
        **gap_columns(at.gap(policy)),
        "core_hours": None if one.core_hours is None else float(one.core_hours.sum()),
    }


def no_bounds(compared: Sequence[Compared]) -> tuple[str, ...]:
    """Why the gaps closed have no bounds, if they have none."""
    return tuple({at.few_days: None for at in compared if at.few_days})


def day_rows(
    compared: Sequence[Compared], *, model_version: str, scored_by: Mapping[str, str]
) -> list[dict[str, object]]:
    """Rows of the table evaluations, one per capacity, policy and day.

    `scored_by`: by policy, the version of the models that its plans follow.
    """
    return [
        {
            "model_version": model_version,
            "policy": policy,
            "scored_by": scored_by.get(policy),
            "capacity_fraction": at.capacity_fraction,
            "capacity_bytes": at.standings.capacity_bytes,
            "model_weight": at.model_weight.get(policy),
            "on_day": day_label(day * DAY_S),
            "wan_bytes": wan,
            "hit_bytes": hit_bytes,
            "requests": hits + misses,
            "hits": hits,
            "prefetch_bytes": prefetched,
            "wasted_bytes": wasted,
            "core_hours": hours,
        }
        for at in compared
        for policy, one in at.standings.rows.items()
        for day, wan, hit_bytes, hits, misses, prefetched, wasted, hours in zip(
            *(column.tolist() for column in _daily(one.result)),
            [None] * one.result.daily.day.size if one.core_hours is None else one.core_hours.tolist(),
            strict=True,
        )
    ]


def _daily(result: Result) -> tuple[IntArray, ...]:
    daily = result.daily
    columns = daily.day, daily.wan_bytes, daily.hit_bytes, daily.hits, daily.misses, daily.prefetch_bytes
    return *columns, _wasted(result)


def _wasted(result: Result) -> IntArray:
    """Wasted bytes per day: a replay knows only their sum, split here in proportion to prefetches."""
    sums = np.cumsum(result.daily.prefetch_bytes)
    total = max(1, int(sums[-1]))
    # Differences of rounded cumulative sums: integers that add up to the sum.
    upto = [result.wasted_bytes * int(part) // total for part in sums]
    return np.array(upto, np.int64) - np.array([0, *upto[:-1]], np.int64)
