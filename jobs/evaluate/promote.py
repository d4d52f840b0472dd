"""Step `promote`: decide by a region's newest evaluation which plans and which order of eviction serve."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from features.common.errors import StaleInputError
from features.common.times import as_of_label, day_label, parse_as_of
from features.common.units import duration_label
from features.results import CHALLENGER_PLAN, CHAMPION_PLAN, EVALUATIONS, PROMOTIONS, STEWARD_PLAN
from jobs.evaluate.decisions import Promotion, decisions, last_decision
from jobs.settings.tree import MlflowSettings, Settings
from jobs.store.tables import Tables, read_partitions
from jobs.store.trainings import as_trained, trained
from jobs.train.registry import awaited_registry
from models.evaluation.promotion import DailyWan, Decision, decide_order, decide_pair
from models.evaluation.promotion import decide as decide_by_replay
from models.serving.bundle import Bundle
from models.serving.names import CHAMPION, STEWARD, Named
from models.serving.registry import MAY_EVICT_TAG, MAY_PUSH_TAG, Registry

Row = Mapping[str, Any]
_TAG_CHARS = 4000


class _Serving(NamedTuple):
    """The versions whose plans and whose order of eviction serve."""

    champion: str | None
    steward: str | None


_NOTHING = _Serving(None, None)


def promote(settings: Settings) -> Promotion:
    """Decide about the region's champion by its newest evaluation; raises as `decide`."""
    return decide(
        Tables(settings.tables.root),
        region=settings.region.name,
        mlflow=settings.mlflow,
        max_age_s=settings.training.max_age,
        now_s=int(time.time()),
        min_days=settings.training.min_test_days,
        judged=plan_policies(settings),
    )


def plan_policies(settings: Settings) -> tuple[str, ...]:
    """The policies that decide about plans: as plans act in the site's caches, with a steward or without."""
    have = {cache.steward for cache in settings.caches.values()} or {False}
    return tuple(policy for has, policy in ((False, CHALLENGER_PLAN), (True, STEWARD_PLAN)) if has in have)


def rollback(settings: Settings) -> Promotion:
    """Undo the region's last promotion; raises as `take_back`."""
    return take_back(
        Tables(settings.tables.root),
        region=settings.region.name,
        mlflow=settings.mlflow,
        now_s=int(time.time()),
    )


def why(settings: Settings) -> Promotion:
    """The newest decision about the region's champion; raises as `last_decision`."""
    return last_decision(Tables(settings.tables.root), region=settings.region.name)


def decide(
    tables: Tables,
    *,
    region: str,
    mlflow: MlflowSettings,
    max_age_s: int,
    now_s: int,
    min_days: int,
    judged: Sequence[str] = (CHALLENGER_PLAN,),
) -> Promotion:
    """Promote the model of the region's newest evaluation if it won, else refuse it; record the decision.

    Plans and order of eviction are judged apart: either may serve without the other. What serves is what
    earlier decisions made serve; an alias that was moved since is put back. A champion that is too old to
    serve at the end of the evaluation is no rival. Raises StaleInputError (no evaluation, or its model
    is gone), ModelError (the files of a challenger that won were changed or cannot be read), ServiceError
    (MLflow is unavailable); nothing has changed then. The files of versions that stay are checked after the
    decision is recorded, with the same errors.

    `judged`: the policies by which plans are judged. Beside a steward they win only with the order that it
    followed.
    """
    as_of, rows = _newest_evaluation(tables, region)
    now_s = _after_last(tables, region, now_s)
    challenger = str(rows[0]["model_version"])
    registry = awaited_registry(mlflow)
    earlier = decisions(tables, region=region)
    known = trained(tables, region=region)
    present, pointed = _last_of(_served(earlier)), _pointed(registry, region)
    remarks = [f"the aliases pointed to {_shown(pointed)}, which no decision made"] * (pointed != present)
    digests = _digests(earlier)
    rival = present.champion if present.champion != challenger else None
    if rival and rival not in known:
        remarks.append(f"an older cachecast trained the champion {rival}, so it is no rival")
        rival = None
    if rival and parse_as_of(as_of) - known[rival].until_s > max_age_s:
        remarks.append(f"the champion {rival} is older than {duration_label(max_age_s)}, so it is no rival")
        rival = None
    plans = _decided(rows, rival, min_days, judged)
    order = decide_order(_replays(rows), min_days=min_days)
    has_won = plans.promote or order.promote
    trained_until = None
    if has_won:
        named = as_trained(known, challenger)
        bundle, digests[challenger] = registry.verify_bundle(named), named.digest
        order, trained_until = _of_bundle(order, bundle), as_of_label(bundle.until_s)
    if STEWARD_PLAN in judged:
        plans = _with_order(plans, order)
    after = _Serving(
        challenger if plans.promote else present.champion,
        challenger if order.promote else present.steward,
    )
    promotion = Promotion(
        action="promote" if plans.promote else "refuse",
        decided_at=as_of_label(now_s),
        model_version=challenger,
        champion=after.champion,
        evaluated_as_of=as_of,
        reasons=(*remarks, *plans.reasons),
        comparisons=(*plans.comparisons, *order.comparisons),
        may_evict=order.promote,
        steward=after.steward,
        order_reasons=order.reasons,
        trained_until=trained_until,
        champion_digest=digests.get(after.champion),
        steward_digest=digests.get(after.steward),
    )
    registry.tag(challenger, _tags(promotion, challenger))
    registry.describe(challenger, "Decided", _in_words(promotion))
    _point(registry, region, pointed, after)
    _keep(tables, promotion, region)
    _retire(registry, present, after)
    for version in _versions(after):
        if version in present and not (has_won and version == challenger):
            registry.verify_bundle(Named(version, digests.get(version)))
    return promotion


def take_back(tables: Tables, *, region: str, mlflow: MlflowSettings, now_s: int) -> Promotion:
    """Restore what served before the last decision that promoted plans or an order.

    Before the first one nothing served. If an alias was moved by others since the last decision, only that
    move is undone. Raises StaleInputError if there is nothing to undo, ServiceError, and ModelError if the
    files of a restored version were changed: the alias points to it nevertheless, so repeat the command to
    restore the one before.
    """
    now_s = _after_last(tables, region, now_s)
    registry = awaited_registry(mlflow)
    earlier = decisions(tables, region=region)
    served, present = _served(earlier), _pointed(registry, region)
    if not served and present == _NOTHING:
        raise StaleInputError(f"region {region!r} never had a champion; there is nothing to undo")
    last, digests = _last_of(served), _digests(earlier)
    was_moved = present != last
    back = last if was_moved else _last_of(served[:-1])
    reason = "the alias was moved since the last decision" if was_moved else "requested by an operator"
    changes = zip(present, last, back, strict=True)
    undone = next(now or known for now, known, new in changes if now != new)
    promotion = Promotion(
        "rollback",
        as_of_label(now_s),
        str(undone),
        back.champion,
        None,
        (reason,),
        (),
        steward=back.steward,
        champion_digest=digests.get(back.champion),
        steward_digest=digests.get(back.steward),
    )
    if not was_moved:
        _keep(tables, promotion, region)
    for version in _versions(back):
        registry.tag(version, _tags(promotion, version))
    _point(registry, region, present, back)
    _retire(registry, present, back)
    for version in _versions(back):
        registry.verify_bundle(Named(version, digests.get(version)))
    return promotion


def _newest_evaluation(tables: Tables, region: str) -> tuple[str, list[Row]]:
    """The as_of and the rows of the region's newest evaluation."""
    newest = tables.newest(EVALUATIONS, owner=region)
    if not newest.partitions:
        raise StaleInputError(
            f"region {region!r} has no evaluation; run `cachecast evaluate` for its candidate first"
        )
    as_of = next(iter(newest.partitions))[1]
    rows = read_partitions(newest, newest.partitions).to_pylist()
    if not rows:
        raise StaleInputError(f"the evaluation of region {region!r} at {as_of} is empty; evaluate again")
    return as_of, rows


def _decided(rows: Sequence[Row], rival: str | None, min_days: int, policies: Sequence[str]) -> Decision:
    """The decision about plans, which must win by each of `policies`."""
    judged = {row["scored_by"] for row in rows if row["policy"] == CHAMPION_PLAN}
    if rival and judged and judged != {rival}:
        others = ", ".join(sorted(map(str, judged)))
        reason = f"the evaluation was against {others}, but the champion is {rival}; evaluate again"
        return Decision(False, (reason,), ())
    rules = {CHALLENGER_PLAN: decide_by_replay, STEWARD_PLAN: decide_pair}
    found = [
        rules[policy](_replays(rows), has_champion=rival is not None, min_days=min_days)
        for policy in policies
    ]
    return Decision(
        all(one.promote for one in found),
        tuple(reason for one in found for reason in one.reasons),
        tuple(compared for one in found for compared in one.comparisons),
    )


def _with_order(plans: Decision, order: Decision) -> Decision:
    """Plans that won beside a steward, unless the order that it followed may not evict."""
    if order.promote or not plans.promote:
        return plans
    reason = "plans were judged beside a steward that followed the challenger's order, which may not evict"
    return Decision(False, (reason, *plans.reasons), plans.comparisons)


def _replays(rows: Sequence[Row]) -> list[DailyWan]:
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


def _served(decisions: Sequence[Promotion]) -> list[_Serving]:
    """What served in order, without what was undone. A decision that promotes nothing changes nothing."""
    found: list[_Serving] = []
    for one in decisions:
        if one.action == "rollback":
            found.pop()
            continue
        last = found[-1] if found else _NOTHING
        champion = one.model_version if one.action == "promote" else last.champion
        steward = one.model_version if one.may_evict else last.steward
        if (champion, steward) != last:
            found.append(_Serving(champion, steward))
    return found


def _last_of(served: Sequence[_Serving]) -> _Serving:
    return served[-1] if served else _NOTHING


def _pointed(registry: Registry, region: str) -> _Serving:
    """What the aliases say."""
    return _Serving(*(registry.version_at(region, alias) for alias in (CHAMPION, STEWARD)))


def _shown(serving: _Serving) -> str:
    return ", ".join(f"{name} {version or 'none'}" for name, version in serving._asdict().items())


def _digests(earlier: Sequence[Promotion]) -> dict[str | None, str | None]:
    """The digests of the files of versions, by what decisions recorded; the first that did counts."""
    digests: dict[str | None, str | None] = {}
    for one in earlier:
        for version, digest in ((one.champion, one.champion_digest), (one.steward, one.steward_digest)):
            if digest is not None:
                digests.setdefault(version, digest)
    return digests


def _versions(serving: _Serving) -> list[str]:
    return sorted({version for version in serving if version is not None})


def _of_bundle(order: Decision, bundle: Bundle) -> Decision:
    """The decision on the order, if the challenger has one: what was replayed is the way of learning it."""
    if bundle.order is not None or not order.promote:
        return order
    return Decision(
        False, (f"the challenger has no order of eviction: {bundle.no_order}",), order.comparisons
    )


def _point(registry: Registry, region: str, before: _Serving, after: _Serving) -> None:
    """Move the aliases whose version changes; without one the alias is taken away."""
    for alias, old, new in zip((CHAMPION, STEWARD), before, after, strict=True):
        if new is None and old is not None:
            registry.unpoint(region, alias)
        elif new is not None and new != old:
            registry.point(alias, new, tags={})


def _after_last(tables: Tables, region: str, now_s: int) -> int:
    """A time after that of the last decision, though a clock was set back: rows are told apart by it."""
    decided = [key[1] for key in tables.newest(PROMOTIONS, owner=region).partitions]
    return max([now_s, *(1 + parse_as_of(at) for at in decided)])


def _keep(tables: Tables, promotion: Promotion, region: str) -> None:
    at = parse_as_of(promotion.decided_at)
    row = dataclasses.asdict(promotion) | {
        "comparisons": json.dumps([dataclasses.asdict(one) for one in promotion.comparisons])
    }
    tables.replace_rows(PROMOTIONS, [row], (day_label(at), promotion.decided_at, region))


def _retire(registry: Registry, before: _Serving, after: _Serving) -> None:
    """Tag the versions that served and do no more."""
    if before.champion is not None and before.champion != after.champion:
        registry.tag(before.champion, {MAY_PUSH_TAG: f"no: the champion is {after.champion or 'none'}"})
    if before.steward is not None and before.steward != after.steward:
        why = f"no: the order that evicts is of {after.steward or 'none'}"
        registry.tag(before.steward, {MAY_EVICT_TAG: why})


def _in_words(promotion: Promotion) -> str:
    """A decision, for the card of its version."""
    plans = f"{promotion.action} plans: {'; '.join(promotion.reasons)}"
    order = f"may {'' if promotion.may_evict else 'not '}evict: {'; '.join(promotion.order_reasons)}"
    return (
        f"{promotion.decided_at}, by the evaluation until {promotion.evaluated_as_of}: {plans}. It {order}."
    )


def _tags(promotion: Promotion, version: str) -> dict[str, str]:
    """What a decision says of a version; a rollback says only what the version may do again."""
    reasons, order_reasons = "; ".join(promotion.reasons), "; ".join(promotion.order_reasons)
    tags = {
        "decision": promotion.action,
        "decided_at": promotion.decided_at,
        "evaluated_as_of": promotion.evaluated_as_of or "",
        "reasons": reasons[:_TAG_CHARS],
        "order_reasons": order_reasons[:_TAG_CHARS],
    }
    for tag, serves, why in (
        (MAY_PUSH_TAG, promotion.champion == version, reasons),
        (MAY_EVICT_TAG, promotion.steward == version, order_reasons),
    ):
        if serves or promotion.action != "rollback":
            tags[tag] = "yes" if serves else f"no: {why}"[:_TAG_CHARS]
    return tags
