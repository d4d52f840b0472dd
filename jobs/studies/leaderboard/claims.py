"""Figures that papers report, compared with the same measures of a leaderboard."""

from __future__ import annotations

import collections
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Annotated, Literal

import pydantic

from features.common.faults import validated
from features.results import LRU
from jobs.ground.settings.layers import read_file
from jobs.ground.settings.values import Section, Share
from jobs.ground.text import Row, percent
from jobs.studies.leaderboard.leaderboard_page import CEILINGS
from jobs.studies.leaderboard.parts import Errors

SHIPPED = Path(str(resources.files("conf").joinpath("claims.toml")))
_NONE = "–"

Measure = Literal[
    "byte_hit_ratio",
    "wan_reduction",
    "misses_saved",
    "hit_ratio_doubled",
    "daily_relative_error",
    "hourly_relative_error",
]
Words = Annotated[str, pydantic.Field(min_length=1, max_length=300)]
_SHARES: tuple[Measure, ...] = ("byte_hit_ratio", "misses_saved", "hit_ratio_doubled")
ByCapacity = Mapping[float, Sequence[Row]]


class Claim(Section):
    """One `[[claim]]` of a paper: its `value` of `measure`, and `before` it where a change is claimed.

    `ours`: which of our figures measures the same, None if none does; `differs`: how the set-ups differ.
    """

    paper: Words
    source: Words
    workload: Words
    measure: Measure
    value: float = pydantic.Field(ge=0)
    before: Share | None = None
    ours: Literal["lru", "best", "forecast"] | None = None
    differs: Words

    @pydantic.model_validator(mode="after")
    def _fits(self) -> Claim:
        if self.measure in _SHARES and self.value > 1:
            raise ValueError(f"value: a {self.measure} is at most 1")
        if (self.before is None) == (self.measure == "hit_ratio_doubled"):
            raise ValueError("before: give it for hit_ratio_doubled, and only there")
        alike = {
            "misses_saved": "best",
            "daily_relative_error": "forecast",
            "hourly_relative_error": "forecast",
        }
        if self.ours not in (None, wanted := alike.get(self.measure, "lru")):
            raise ValueError(f"ours: a {self.measure} is of {wanted}")
        return self


class _Claims(Section):
    claim: tuple[Claim, ...] = pydantic.Field(min_length=1, max_length=100)


def read_claims(path: Path = SHIPPED) -> tuple[Claim, ...]:
    """The claims of a TOML file. Raises ConfigError."""
    return validated(_Claims, read_file(path), where=str(path), see="docs/leaderboard.md").claim


def compared(claims: Sequence[Claim], rows: Sequence[Row], errors: Mapping[str, Errors]) -> list[Row]:
    """A row per claim: the paper's figure, and per trace our lowest and highest over the capacities.

    `rows`: of a leaderboard; `errors`: of forecasts, by trace.
    """
    by_trace: dict[str, dict[float, list[Row]]] = collections.defaultdict(
        lambda: collections.defaultdict(list)
    )
    for row in rows:
        by_trace[str(row["trace"])][row["capacity_fraction"]].append(row)
    return [
        {
            "paper": f"{claim.paper}. {claim.workload} ({claim.source})",
            "measure": claim.measure.replace("_", " "),
            "theirs": _change(claim.before, claim.value) if claim.before else _shown(claim, claim.value),
            **{trace: _ours(claim, of, errors.get(trace)) for trace, of in by_trace.items()},
            "differs": claim.differs,
        }
        for claim in claims
    ]


def _ours(claim: Claim, rows: ByCapacity, errors: Errors | None) -> str:
    """Our figures of one trace, or a dash."""
    if claim.ours is None:
        return _NONE
    if claim.measure == "hit_ratio_doubled":
        return _nearest_doubling(claim.before or 0, rows)
    if claim.ours == "forecast":
        found = [] if errors is None else [errors.of(claim.measure)]
    else:
        found = [_MEASURES[claim.measure](of) for _, of in sorted(rows.items())]
    known = [value for value in found if value is not None]
    if not known:
        return _NONE
    return " to ".join(dict.fromkeys(_shown(claim, value) for value in (min(known), max(known))))


def _byte_hit_ratio(rows: Sequence[Row]) -> float | None:
    return next((row["byte_hit_ratio"] for row in rows if row["policy"] == LRU), None)


def _wan_reduction(rows: Sequence[Row]) -> float | None:
    hits = _byte_hit_ratio(rows)
    return None if hits is None or hits >= 1 else 1 / (1 - hits)


def _misses_saved(rows: Sequence[Row]) -> float | None:
    """By the policy of the fewest misses that knows no future, as a share of LRU's."""
    misses = {row["policy"]: 1 - row["hit_ratio"] for row in rows if row["hit_ratio"] is not None}
    competing = [value for policy, value in misses.items() if policy not in CEILINGS]
    return 1 - min(competing) / misses[LRU] if misses.get(LRU) else None


_MEASURES = {
    "byte_hit_ratio": _byte_hit_ratio,
    "wan_reduction": _wan_reduction,
    "misses_saved": _misses_saved,
}


def _nearest_doubling(before: float, rows: ByCapacity) -> str:
    """LRU's hit ratios before and after a doubling, the first as near to `before` as there is one."""
    doublings = list(_doublings(rows))
    if not doublings:
        return _NONE
    return _change(*min(doublings, key=lambda pair: abs(pair[0] - before)))


def _doublings(rows: ByCapacity) -> Iterator[tuple[float, float]]:
    ratios = {f: row["hit_ratio"] for f, of in rows.items() for row in of if row["policy"] == LRU}
    for small, large in ((f, 2 * f) for f in ratios):
        if large in ratios:
            yield ratios[small], ratios[large]


def _change(before: float, after: float) -> str:
    return f"{percent(before)} → {percent(after)}"


def _shown(claim: Claim, value: float) -> str:
    return percent(value) if claim.measure in _SHARES else f"{value:.2f}"
