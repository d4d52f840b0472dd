"""Step `promote`: decide by a region's newest evaluation which plans and which order of eviction serve."""

from collections.abc import Mapping

from features.common.errors import StaleInputError
from features.common.times import as_of_label, parse_as_of
from features.common.units import duration_label
from features.results import STEWARD_PLAN
from jobs.ground.settings.tree import Settings
from jobs.ground.store.tables import Tables
from jobs.loop.evaluate.decisions import (
    Promotion,
    Versions,
    after_last,
    check_files,
    daily_wan,
    decide_plans,
    decisions,
    digests_of,
    judged_at,
    keep_decision,
    newest_evaluation,
    newest_of,
    of_bundle,
    plan_policies,
    served_versions,
    with_order,
)
from jobs.loop.trainings import TrainedVersion, as_trained, awaited_registry, trained_versions
from models.evaluation.promotion import decide_order
from models.serving.registry import MAY_EVICT_TAG, MAY_PUSH_TAG, Registry
from models.serving.versions import CHAMPION, STEWARD, ModelVersion

_TAG_CHARS = 4000


def promote(settings: Settings, *, now_s: int) -> Promotion:
    """Promote the model of the region's newest evaluation if it won, else refuse it; record the decision.

    Plans and order of eviction are judged apart: either may serve without the other. What serves is what
    earlier decisions made serve, if MLflow still has it; an alias that was moved since is put back. A
    champion that is too old to serve at the end of the evaluation, or that the table trainings does not name,
    is no rival. Raises StaleInputError (no evaluation, or its model is gone or was trained anew), ModelError
    (the files of a challenger that won were changed or cannot be read), ServiceError (MLflow is unavailable);
    nothing has changed then. The files of versions that stay are checked after the decision is recorded, with
    the same errors. If caches of the site have a steward, plans win only with the order that it followed.
    """
    tables, region, max_age_s = Tables.of(settings), settings.region.name, settings.training.max_age
    judged, min_days = plan_policies(settings), settings.training.min_test_days
    as_of, rows = newest_evaluation(tables, region)
    now_s = after_last(tables, region, now_s)
    challenger = str(rows[0]["model_version"])
    known = trained_versions(tables, region=region)
    check_files(rows, as_trained(known, challenger))
    registry = awaited_registry(settings.mlflow)
    earlier = decisions(tables, region=region)
    decided, pointed = newest_of(served_versions(earlier)), _pointed(registry, region)
    present = _there(registry, decided)
    remarks = [
        f"MLflow does not have {version} any more: it serves no longer"
        for version in sorted(set(_versions(decided)) - set(_versions(present)))
    ]
    if pointed != present:
        aliases = ", ".join(f"{name} {version or 'none'}" for name, version in pointed._asdict().items())
        remarks.append(f"the aliases pointed to {aliases}, which no decision made")
    digests = digests_of(earlier)
    rival = present.champion if present.champion != challenger else None
    if rival and rival not in known:
        remarks.append(f"the table trainings does not name the champion {rival}: it is no rival")
        rival = None
    if rival and parse_as_of(as_of) - known[rival].until_s > max_age_s:
        remarks.append(f"the champion {rival} is older than {duration_label(max_age_s)}, so it is no rival")
        rival = None
    plans = decide_plans(rows, rival, min_days, judged)
    was_undone = present.steward != challenger and any(
        decision.may_evict and decision.model_version == challenger for decision in earlier
    )
    since_s = parse_as_of(as_of) - max_age_s
    follows = not was_undone and _follows(known, challenger, present.steward, since_s)
    order = decide_order(
        daily_wan(rows),
        is_successor=follows,
        served_at=judged_at(earlier, present.steward),
        min_days=min_days,
    )
    has_won = plans.promote or order.promote
    trained_until = None
    if has_won:
        trained_version = as_trained(known, challenger)
        bundle, digests[challenger] = registry.verify_bundle(trained_version), trained_version.digest
        order, trained_until = of_bundle(order, bundle), as_of_label(bundle.until_s)
    if STEWARD_PLAN in judged:
        plans = with_order(plans, order)
    after = Versions(
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
    _retire(registry, present, after)
    keep_decision(tables, promotion, region)  # last: what a kill leaves out before it, a second run does
    for version in _versions(after):
        if version in present and not (has_won and version == challenger):
            registry.verify_bundle(ModelVersion(version, digests.get(version)))
    return promotion


def rollback(settings: Settings, *, now_s: int) -> Promotion:
    """Restore what served before the last decision that promoted plans or an order.

    Before the first one nothing served, nor does a version that MLflow does not have any more. If an alias
    was moved by others since the last decision, only that move is undone. Raises StaleInputError if there is
    nothing to undo, ServiceError, and ModelError if the files of a restored version were changed: the alias
    points to it nevertheless, so repeat the command to restore the one before.
    """
    tables, region = Tables.of(settings), settings.region.name
    now_s = after_last(tables, region, now_s)
    registry = awaited_registry(settings.mlflow)
    earlier = decisions(tables, region=region)
    past, present = served_versions(earlier), _pointed(registry, region)
    if not past and present == Versions():
        raise StaleInputError(f"region {region!r} never had a champion; there is nothing to undo")
    decided, digests = newest_of(past), digests_of(earlier)
    was_moved = present != (last := _there(registry, decided))
    back = last if was_moved else _there(registry, newest_of(past[:-1]))
    reason = "the alias was moved since the last decision" if was_moved else "requested by an operator"
    changes = zip(present, decided, back, strict=True)
    undone = next(now or known for now, known, new in changes if not now == known == new)
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
        keep_decision(tables, promotion, region)
    for version in _versions(back):
        registry.tag(version, _tags(promotion, version))
    _retire(registry, present, back)
    _point(registry, region, present, back)  # last: after it, a second run takes back one decision more
    for version in _versions(back):
        registry.verify_bundle(ModelVersion(version, digests.get(version)))
    return promotion


def _follows(known: Mapping[str, TrainedVersion], newer: str, serving: str | None, since_s: int) -> bool:
    """Whether `serving` was trained at `since_s` or later, and `newer` is not the older one of both."""
    if serving is None or serving not in known or newer not in known:
        return False
    return since_s <= known[serving].until_s <= known[newer].until_s


def _pointed(registry: Registry, region: str) -> Versions:
    """The versions to which the aliases point."""
    return Versions(*(registry.version_at(region, alias) for alias in (CHAMPION, STEWARD)))


def _there(registry: Registry, serving: Versions) -> Versions:
    """Those of `serving` that MLflow still has."""
    return Versions(*(version if version and registry.has(version) else None for version in serving))


def _versions(serving: Versions) -> list[str]:
    return sorted({version for version in serving if version is not None})


def _point(registry: Registry, region: str, before: Versions, after: Versions) -> None:
    """Move the aliases whose version changes; without one the alias is taken away."""
    for alias, old, new in zip((CHAMPION, STEWARD), before, after, strict=True):
        if new is None and old is not None:
            registry.unpoint(region, alias)
        elif new is not None and new != old:
            registry.point(alias, new)


def _retire(registry: Registry, before: Versions, after: Versions) -> None:
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
    """The tags of a version after a decision; a rollback tags only what the version may do again."""
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
