"""Two caches of a federation by their own records: what a steward at one of them saves against the other.

A federation's files are spread by hash, so both caches are asked for alike. Their byte hit ratios differ also
without a steward: the difference of the days before it began is taken off.
"""

import dataclasses
import math
from collections.abc import Iterator

import numpy as np

from features.common.arrays import FloatArray
from features.common.errors import InputError
from features.common.times import DAY_S, day_label
from jobs.ground.settings.tree import Settings
from jobs.ground.store.tables import Tables
from jobs.ground.text import bounds, percent
from jobs.operator.site_report.recorded import counts_of_day, sums_by

SEEN = 0.02  # the share of the bytes that `days_needed` is about
_WIDTH, _POWER = 1.96, 0.84  # a 95 % interval that leaves out 0 in 80 % of comparisons
FEWEST_DAYS = 7  # before the steward began, and after it: with fewer there are no bounds


@dataclasses.dataclass(frozen=True)
class Pair:
    """What the steward of `steward` saves against `other`, per byte read.

    `before`, `after`: mean daily gaps of byte hit ratios; `saved_share`: after less before, with its 95 %
    interval (None: too few days); `days_needed`: to show an effect of 2 % four times in five (None: unknown);
    `left_out`: days without reads of one.
    """

    steward: str
    other: str
    before: float
    after: float
    days_before: int
    days_after: int
    saved_share: float
    saved_lower_share: float | None = None
    saved_upper_share: float | None = None
    days_needed: int | None = None
    left_out: int = 0


def run(
    settings: Settings, *, steward: str, other: str, since_s: int, until_s: int, began_s: int, settled_s: int
) -> Pair:
    """Compare two caches on the days `since_s` … `until_s`.

    `began_s`: when the steward began; `settled_s`: for how long after it days do not count yet. Raises
    InputError.
    """
    tables, ratios = Tables.of(settings), dict[int, tuple[float | None, float | None]]()
    if steward == other:
        raise InputError(f"{steward} cannot be compared with itself; name another cache")
    for at_s in range(since_s, until_s + 1, DAY_S):
        sums = sums_by(counts_of_day(tables, day_label(at_s)), "cache")
        rows = {row["cache"]: row for row in sums.to_pylist()}
        ratios[at_s] = (_ratio(rows.get(steward)), _ratio(rows.get(other)))
    for at, name in enumerate((steward, other)):
        if all(pair[at] is None for pair in ratios.values()):
            raise InputError(f"cache {name!r} has no recorded reads on these days; check its name and days")
    return compared(ratios, steward=steward, other=other, began_s=began_s, settled_s=settled_s)


def compared(
    ratios: dict[int, tuple[float | None, float | None]],
    *,
    steward: str,
    other: str,
    began_s: int,
    settled_s: int,
) -> Pair:
    """The comparison of daily byte hit ratios, by the start of their days. Raises InputError."""
    known = {at_s: a - b for at_s, (a, b) in ratios.items() if a is not None and b is not None}
    days = {
        "before": np.array([gap for at_s, gap in known.items() if at_s + DAY_S <= began_s]),
        "after": np.array([gap for at_s, gap in known.items() if at_s >= began_s + settled_s]),
    }
    for when, gaps in days.items():
        if not gaps.size:
            raise InputError(f"on no day {when} the steward began did both caches read; give more days")
    before, after = days["before"], days["after"]
    saved = float(after.mean() - before.mean())
    comparison = Pair(
        steward=steward,
        other=other,
        before=float(before.mean()),
        after=float(after.mean()),
        days_before=before.size,
        days_after=after.size,
        saved_share=saved,
        left_out=len(ratios) - len(known),
    )
    if min(before.size, after.size) < FEWEST_DAYS:
        return comparison
    freedom = min(before.size, after.size) - 1
    width = _WIDTH + (_WIDTH**3 + _WIDTH) / (4 * freedom)  # of Student's t, about
    fixed, variance = _spread(before) / before.size, _spread(after)
    half = width * math.sqrt(fixed + variance / after.size)
    left = (SEEN / (width + _POWER)) ** 2 - fixed
    return dataclasses.replace(
        comparison,
        saved_lower_share=saved - half,
        saved_upper_share=saved + half,
        days_needed=max(1, math.ceil(variance / left)) if left > 0 else None,
    )


def sentences(pair: Pair) -> Iterator[str]:
    yield (
        f"byte hit ratio of {pair.steward} less that of {pair.other}: {percent(pair.before, 1)} on "
        f"{pair.days_before} days before its steward, {percent(pair.after, 1)} on {pair.days_after} days "
        "with it"
    )
    sure = f"fewer than {FEWEST_DAYS} days on one side, too few for an interval"
    if pair.saved_lower_share is not None:
        sure = f"95 %: {bounds(pair.saved_lower_share, pair.saved_upper_share, 1)}"
    yield f"saved of the bytes read: {percent(pair.saved_share, 1)} ({sure})"
    if pair.days_needed is not None:
        yield f"{percent(SEEN)} would be seen after {pair.days_needed} days with the steward"
    elif pair.saved_lower_share is not None:
        yield f"{percent(SEEN)} will not be seen: the days before the steward are too few, or differ too much"


def _ratio(row: dict[str, int] | None) -> float | None:
    return row["hit_bytes"] / row["read_bytes"] if row is not None and row["read_bytes"] else None


def _spread(gaps: FloatArray) -> float:
    """The variance of a day in a mean of days that resemble their neighbours (Newey and West, 1987)."""
    away = gaps - gaps.mean()
    lags = int(4 * (gaps.size / 100) ** (2 / 9))
    sums = [float((away[lag:] * away[: gaps.size - lag]).sum()) for lag in range(lags + 1)]
    total = sums[0] + 2 * sum((1 - lag / (lags + 1)) * sums[lag] for lag in range(1, lags + 1))
    return max(total, sums[0] / 4) / (gaps.size - 1)
