"""The decisions about a region's models, as `promote` recorded them; MLflow is not asked."""

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import pydantic

from features.common.errors import InputError, StaleInputError, bounded
from features.common.times import DAY_S, day_label, parse_as_of
from features.results import CHALLENGER_PLAN, CHAMPION_PLAN, EVALUATIONS, PROMOTIONS, STEWARD, STEWARD_PLAN
from jobs.ground.settings.tree import Settings
from jobs.ground.store.tables import Tables
from jobs.ground.text import Row
from jobs.loop.trainings import checked_version, foreign_decision
from models.evaluation.promotion import DailyWan, Decision, RivalComparison, decide_pair
from models.evaluation.promotion import decide as decide_by_replay
from models.serving.bundle import Bundle
from models.serving.versions import ModelVersion, model_name

_ACTIONS: Final = ("promote", "refuse", "rollback")
_COMPARISONS: Final = pydantic.TypeAdapter(tuple[RivalComparison, ...])


@dataclasses.dataclass(frozen=True)
class Promotion:
    """One decision, a row of the table promotions.

    `action` and `reasons` are about plans, `may_evict` and `order_reasons` about the order of eviction.
    `champion`, `steward`: the versions whose plans and whose order serve from then on; None: there is none;
    each with the digest of the files that were promoted, by which alone it may act.
    `trained_until`: nothing known later was used to train `model_version`; None: it did not win.
    """

    action: str
    decided_at: str
    model_version: str
    champion: str | None
    evaluated_as_of: str | None
    reasons: tuple[str, ...]
    comparisons: tuple[RivalComparison, ...]
    may_evict: bool | None = None
    steward: str | None = None
    order_reasons: tuple[str, ...] = ()
    trained_until: str | None = None
    champion_digest: str | None = None
    steward_digest: str | None = None


def last_decision(tables: Tables, *, region: str) -> Promotion:
    """The newest decision about the region. Raises StaleInputError if there was none."""
    earlier = decisions(tables, region=region)
    if not earlier:
        raise StaleInputError(
            f"nothing was decided about region {region!r} yet; run `cachecast evaluate --from DAY`, then "
            "`cachecast promote`"
        )
    return earlier[-1]


def decisions(tables: Tables, *, region: str) -> list[Promotion]:
    """Every decision about the region, the oldest first. Raises ServiceError for one not of `promote`."""
    rows = tables.head(PROMOTIONS).rows(owner=region).to_pylist()
    return [_decision(row) for row in sorted(rows, key=lambda row: str(row["as_of"]))]


def _decision(row: Mapping[str, Any]) -> Promotion:
    if row["action"] not in _ACTIONS:
        raise foreign_decision(f"the action of {row['as_of']}")
    try:
        for name in ("model_version", "champion", "steward"):
            if row[name] is not None:
                checked_version(row[name])
        for at in (row["as_of"], row["evaluated_as_of"], row["trained_until"]):
            parse_as_of(at or row["as_of"])
        comparisons = _COMPARISONS.validate_json(row["comparisons"])
    except (InputError, pydantic.ValidationError):
        raise foreign_decision(f"the row of {row['as_of']}") from None
    columns: dict[str, Any] = {field.name: row.get(field.name) for field in dataclasses.fields(Promotion)}
    return Promotion(
        **columns
        | {
            "decided_at": row["as_of"],
            "comparisons": comparisons,
            "reasons": tuple(row["reasons"]),
            "order_reasons": tuple(row["order_reasons"] or ()),
            "trained_until": row["trained_until"] or None,
        }
    )


@dataclasses.dataclass(frozen=True)
class Serving:
    """A region's last decision, and those that made its champion and the order that may evict."""

    last: Promotion
    champion_by: Promotion | None
    steward_by: Promotion | None


def serving(tables: Tables, *, region: str) -> Serving | None:
    """The decisions by which models serve in a region; None if nothing was decided yet."""
    newest_first = decisions(tables, region=region)[::-1]
    if not newest_first:
        return None
    last = newest_first[0]
    promoted = (decision for decision in newest_first if decision.action == "promote")
    may_evict = (decision for decision in newest_first if decision.may_evict)
    return Serving(
        last,
        next((decision for decision in promoted if decision.model_version == last.champion), None),
        next((decision for decision in may_evict if decision.model_version == last.steward), None),
    )


class Versions(NamedTuple):
    """The versions whose plans and whose order of eviction serve."""

    champion: str | None = None
    steward: str | None = None


def served_versions(decisions: Sequence[Promotion]) -> list[Versions]:
    """What served in order, without what was undone. A decision that promotes nothing changes nothing.

    Raises ServiceError for a rollback of nothing.
    """
    served: list[Versions] = []
    for decision in decisions:
        if decision.action == "rollback":
            if not served:
                raise foreign_decision(f"the rollback of {decision.decided_at}, before which nothing served")
            served.pop()
            continue
        last = newest_of(served)
        champion = decision.model_version if decision.action == "promote" else last.champion
        steward = decision.model_version if decision.may_evict else last.steward
        if (champion, steward) != last:
            served.append(Versions(champion, steward))
    return served


def newest_of(served: Sequence[Versions]) -> Versions:
    """The last of `served`; neither champion nor steward if there was none."""
    return served[-1] if served else Versions()


def digests_of(earlier: Sequence[Promotion]) -> dict[str | None, str | None]:
    """The digests of the files of versions, by what decisions recorded; the first that did counts."""
    digests: dict[str | None, str | None] = {}
    for decision in earlier:
        for version, digest in (
            (decision.champion, decision.champion_digest),
            (decision.steward, decision.steward_digest),
        ):
            if digest is not None:
                digests.setdefault(version, digest)
    return digests


def judged_at(earlier: Sequence[Promotion], steward: str | None) -> set[float]:
    """The capacity fractions at which the order of `steward` won when a decision last let it evict."""
    won = [
        evaluation for evaluation in earlier if evaluation.may_evict and evaluation.model_version == steward
    ]
    return {
        comparison.capacity_fraction
        for last in won[-1:]
        for comparison in last.comparisons
        if comparison.policy == STEWARD
    }


def after_last(tables: Tables, region: str, now_s: int) -> int:
    """`now_s`, or a second after the last decision if that is later: no two decisions have the same time."""
    decided = [key[1] for key in tables.newest(PROMOTIONS, owner=region).partitions]
    return max([now_s, *(1 + parse_as_of(at) for at in decided)])


def keep_decision(tables: Tables, promotion: Promotion, region: str) -> None:
    """Write a decision as the row of its time into the table promotions."""
    at = parse_as_of(promotion.decided_at)
    row = dataclasses.asdict(promotion)
    row["comparisons"] = json.dumps(row["comparisons"])
    tables.replace_rows(PROMOTIONS, [row], (day_label(at), promotion.decided_at, region))


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
    rows = newest.rows().to_pylist()
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
    hours = [row["core_hours"] for row in rows if row["core_hours"] is not None]
    if any(row[name] < 0 for row in rows for name in _COUNTS) or not all(0 <= of < math.inf for of in hours):
        return "it has a figure that is negative or not finite"
    if len({(row["on_day"], row["requests"]) for row in rows}) > len(days):
        return "its policies were replayed on different reads"
    return None


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
    verdicts = [
        rules[policy](daily_wan(rows), has_champion=rival is not None, min_days=min_days)
        for policy in policies
    ]
    return Decision(
        all(verdict.promote for verdict in verdicts),
        tuple(reason for verdict in verdicts for reason in verdict.reasons),
        tuple(compared for verdict in verdicts for compared in verdict.comparisons),
    )


def daily_wan(rows: Sequence[Row]) -> list[DailyWan]:
    """WAN bytes and core-hours by policy and day, one entry per capacity, the smallest first."""
    wan, hours = (_days(rows, column) for column in ("wan_bytes", "core_hours"))
    return [DailyWan(fraction, wan[fraction], hours.get(fraction, {})) for fraction in sorted(wan)]


def _days(rows: Sequence[Row], column: str) -> dict[float, dict[str, dict[str, Any]]]:
    """What is known of `column`, by capacity, policy and day."""
    values: dict[float, dict[str, dict[str, Any]]] = {}
    for row in rows:
        if row[column] is not None:
            policies = values.setdefault(row["capacity_fraction"], {})
            policies.setdefault(row["policy"], {})[row["on_day"]] = row[column]
    return values


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
