"""The verdicts on a model by its region's newest evaluation: on its plans, and on its order of eviction."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from features.common.errors import StaleInputError, bounded
from features.common.times import DAY_S, day_label, parse_as_of
from features.results import CHALLENGER_PLAN, CHAMPION_PLAN, EVALUATIONS, STEWARD_PLAN
from jobs.ground.settings.tree import Settings
from jobs.ground.store.tables import Tables, read_partitions
from jobs.ground.text import Row
from models.evaluation.promotion import DailyWan, Decision, decide_pair
from models.evaluation.promotion import decide as decide_by_replay
from models.serving.bundle import Bundle
from models.serving.versions import ModelVersion, model_name

_COUNTS = ("wan_bytes", "hit_bytes", "requests", "hits", "prefetch_bytes", "wasted_bytes")


def plan_policies(settings: Settings) -> tuple[str, ...]:
    """The policies that decide about plans: as plans act in the site's caches, with a steward or without."""
    have = {cache.steward for cache in settings.caches.values()} or {False}
    return tuple(policy for has, policy in ((False, CHALLENGER_PLAN), (True, STEWARD_PLAN)) if has in have)


def newest_evaluation(tables: Tables, region: str) -> tuple[str, list[Row]]:
    """The as_of and the rows of the region's newest evaluation.

    Raises StaleInputError without rows, or with some that no evaluation writes.
    """
    newest = tables.newest(EVALUATIONS, owner=region)
    if not newest.partitions:
        raise StaleInputError(
            f"region {region!r} has no evaluation; run `cachecast evaluate --from DAY` first"
        )
    as_of = next(iter(newest.partitions))[1]
    rows = read_partitions(newest, newest.partitions).to_pylist()
    if not rows:
        raise StaleInputError(f"the evaluation of region {region!r} at {as_of} is empty; evaluate again")
    if fault := _fault(rows, as_of, region):
        raise StaleInputError(
            f"the evaluation of region {region!r} at {as_of} decides nothing: {fault}; evaluate again"
        )
    return as_of, rows


def check_files(rows: Sequence[Row], model: ModelVersion) -> None:
    """Raise StaleInputError if an evaluation is of other files than those of `model`, by its rows."""
    if {row["model_digest"] for row in rows} - {None, model.digest}:
        raise StaleInputError(
            f"the evaluation is of other files of {model.version} than those that were trained last; "
            "evaluate again"
        )


def _fault(rows: Sequence[Row], as_of: str, region: str) -> str | None:
    """What is wrong with the rows of an evaluation; None: they are of one version and one replayed past."""
    versions, prefix = sorted({row["model_version"] for row in rows}), f"{model_name(region)}/"
    if len(versions) > 1 or not versions[0].startswith(prefix):
        return f"its rows are of {bounded(', '.join(versions), 200)}, not of one version of the region"
    if odd := [row["capacity_fraction"] for row in rows if not 0 < row["capacity_fraction"] <= 1]:
        return f"it has a capacity of {odd[0]:g} of the bytes read"
    if len({(row["policy"], row["capacity_fraction"], row["on_day"]) for row in rows}) < len(rows):
        return "it has two rows of one policy, capacity and day"
    days, end_s = {row["on_day"] for row in rows}, parse_as_of(as_of)
    if days != {day_label(end_s - ago * DAY_S) for ago in range(1, len(days) + 1)}:
        return "its days are not the days before its end, without a gap"
    if any(row[name] < 0 for row in rows for name in _COUNTS) or not all(map(_has_hours, rows)):
        return "it has a figure that is negative or not finite"
    if len({(row["on_day"], row["requests"]) for row in rows}) > len(days):
        return "its policies were replayed on different reads"
    return None


def _has_hours(row: Row) -> bool:
    return row["core_hours"] is None or 0 <= row["core_hours"] < math.inf


def decide_plans(rows: Sequence[Row], rival: str | None, min_days: int, policies: Sequence[str]) -> Decision:
    """The decision about plans, which must win by each of `policies`.

    `rival`: the champion's version, None if there is none to beat; `min_days`: fewer days decide nothing.
    """
    judged = {row["scored_by"] for row in rows if row["policy"] == CHAMPION_PLAN}
    if rival and judged and judged != {rival}:
        others = ", ".join(sorted(map(str, judged)))
        reason = f"the evaluation was against {others}, but the champion is {rival}; evaluate again"
        return Decision(False, (reason,), ())
    rules = {CHALLENGER_PLAN: decide_by_replay, STEWARD_PLAN: decide_pair}
    found = [
        rules[policy](daily_wan(rows), has_champion=rival is not None, min_days=min_days)
        for policy in policies
    ]
    return Decision(
        all(one.promote for one in found),
        tuple(reason for one in found for reason in one.reasons),
        tuple(compared for one in found for compared in one.comparisons),
    )


def daily_wan(rows: Sequence[Row]) -> list[DailyWan]:
    """WAN bytes and core-hours by policy and day, one entry per capacity, the smallest first."""
    wan, hours = (_days(rows, column) for column in ("wan_bytes", "core_hours"))
    return [DailyWan(fraction, wan[fraction], hours.get(fraction, {})) for fraction in sorted(wan)]


def _days(rows: Sequence[Row], column: str) -> dict[float, dict[str, dict[str, Any]]]:
    """What is known of `column`, by capacity, policy and day."""
    found: dict[float, dict[str, dict[str, Any]]] = {}
    for row in rows:
        if row[column] is not None:
            policies = found.setdefault(row["capacity_fraction"], {})
            policies.setdefault(row["policy"], {})[row["on_day"]] = row[column]
    return found


def with_order(plans: Decision, order: Decision) -> Decision:
    """`plans`, refused if they won only beside a steward whose order may not evict."""
    if order.promote or not plans.promote:
        return plans
    reason = "plans were judged beside a steward that followed the challenger's order, which may not evict"
    return Decision(False, (reason, *plans.reasons), plans.comparisons)


def of_bundle(order: Decision, bundle: Bundle) -> Decision:
    """`order`, refused if the challenger has none: the replay tested how orders are learned, not this one."""
    if bundle.order is not None or not order.promote:
        return order
    return Decision(
        False, (f"the challenger has no order of eviction: {bundle.no_order}",), order.comparisons
    )
