"""Step `promote`: decide about a region's champion by its newest evaluation, and record the decision."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

from features.errors import StaleInputError
from features.results import CHAMPION_PLAN, EVALUATIONS, PROMOTIONS
from features.times import as_of_label, day_label, parse_as_of
from features.units import duration_label
from jobs.settings.tree import MlflowSettings, Settings
from jobs.store.tables import Tables, read_partitions
from jobs.train.registry import awaited_registry
from models.evaluation.promotion import Comparison, DailyWan, Decision
from models.evaluation.promotion import decide as decide_by_replay
from models.serving.registry import CHAMPION, MAY_PUSH_TAG, Registry

Row = Mapping[str, Any]
_TAG_CHARS = 4000


@dataclasses.dataclass(frozen=True)
class Promotion:
    """One decision, a row of the table promotions. `champion`: from then on; None: there is none."""

    action: str
    decided_at: str
    model_version: str
    champion: str | None
    evaluated_as_of: str | None
    reasons: tuple[str, ...]
    comparisons: tuple[Comparison, ...]


def promote(settings: Settings) -> Promotion:
    """Decide about the region's champion by its newest evaluation; raises as `decide`."""
    return decide(
        Tables(settings.tables.root),
        region=settings.region.name,
        mlflow=settings.mlflow,
        max_age_s=settings.training.max_age,
        now_s=int(time.time()),
        min_days=settings.training.min_test_days,
    )


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
    tables: Tables, *, region: str, mlflow: MlflowSettings, max_age_s: int, now_s: int, min_days: int
) -> Promotion:
    """Promote the model of the region's newest evaluation if it won, else refuse it; record the decision.

    A champion that is too old to serve at the end of the evaluation is no rival. Raises StaleInputError (no
    evaluation, or its model is gone), ModelError (the challenger's files were changed or cannot be read),
    ServiceError (MLflow is unavailable); nothing has changed then. The files of a champion that stays are
    checked after the decision is recorded, with the same errors.
    """
    as_of, rows = _newest_evaluation(tables, region)
    challenger = str(rows[0]["model_version"])
    registry = awaited_registry(mlflow)
    present = registry.version_at(region, CHAMPION)
    remarks = []
    rival = present if present != challenger else None
    if rival and parse_as_of(as_of) - registry.until_s(rival) > max_age_s:
        remarks.append(f"the champion {rival} is older than {duration_label(max_age_s)}, so it is no rival")
        rival = None
    decision = _decided(rows, rival, min_days)
    promotion = Promotion(
        action="promote" if decision.promote else "refuse",
        decided_at=as_of_label(now_s),
        model_version=challenger,
        champion=challenger if decision.promote else present,
        evaluated_as_of=as_of,
        reasons=(*remarks, *decision.reasons),
        comparisons=decision.comparisons,
    )
    if decision.promote:
        registry.vouch(challenger)
        registry.point(CHAMPION, challenger, tags=_tags(promotion, challenger))
    else:
        registry.tag(challenger, _tags(promotion, challenger))
    _keep(tables, promotion, region)
    _retire(registry, present, promotion.champion)
    if present is not None and promotion.champion == present:
        registry.vouch(present)
    return promotion


def take_back(tables: Tables, *, region: str, mlflow: MlflowSettings, now_s: int) -> Promotion:
    """Restore the champion before the present one; without an earlier one there is no champion.

    If the alias was moved since the last decision, only that move is undone. Raises StaleInputError if there
    is nothing to undo, ServiceError, and ModelError if the files of the restored version were changed: the
    alias points to it nevertheless, so repeat the command to restore the one before.
    """
    registry = awaited_registry(mlflow)
    champions = _champions(_decisions(tables, region))
    if not champions:
        raise StaleInputError(f"region {region!r} never had a champion; there is nothing to undo")
    present = registry.version_at(region, CHAMPION)
    was_moved = present != champions[-1]
    before = champions[-2] if len(champions) > 1 else None
    back = champions[-1] if was_moved else before
    reason = "the alias was moved since the last decision" if was_moved else "requested by an operator"
    promotion = Promotion("rollback", as_of_label(now_s), present or champions[-1], back, None, (reason,), ())
    if not was_moved:
        _keep(tables, promotion, region)
    if back is None:
        registry.unpoint(region, CHAMPION)
    else:
        registry.point(CHAMPION, back, tags=_tags(promotion, back))
    _retire(registry, present, back)
    if back is not None:
        registry.vouch(back)
    return promotion


def last_decision(tables: Tables, *, region: str) -> Promotion:
    """The newest decision about the region. Raises StaleInputError if there was none."""
    decisions = _decisions(tables, region)
    if not decisions:
        raise StaleInputError(f"nothing was decided about region {region!r} yet; run `cachecast promote`")
    return decisions[-1]


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


def _decided(rows: Sequence[Row], rival: str | None, min_days: int) -> Decision:
    judged = {row["scored_by"] for row in rows if row["policy"] == CHAMPION_PLAN}
    if rival and judged and judged != {rival}:
        others = ", ".join(sorted(map(str, judged)))
        reason = f"the evaluation was against {others}, but the champion is {rival}; evaluate again"
        return Decision(False, (reason,), ())
    return decide_by_replay(_replays(rows), has_champion=rival is not None, min_days=min_days)


def _replays(rows: Sequence[Row]) -> list[DailyWan]:
    by_capacity: dict[float, dict[str, dict[str, int]]] = {}
    for row in rows:
        policies = by_capacity.setdefault(row["capacity_fraction"], {})
        policies.setdefault(row["policy"], {})[row["on_day"]] = row["wan_bytes"]
    return [DailyWan(fraction, policies) for fraction, policies in sorted(by_capacity.items())]


def _champions(decisions: Sequence[Promotion]) -> list[str]:
    """The champions in order, without those whose promotion was undone."""
    found: list[str] = []
    for one in decisions:
        if one.action == "rollback":
            found.pop()
        elif one.action == "promote" and one.model_version not in found[-1:]:
            found.append(one.model_version)
    return found


def _decisions(tables: Tables, region: str) -> list[Promotion]:
    """Every decision about the region, the oldest first."""
    if not tables.exists(PROMOTIONS):
        return []
    rows = tables.read_arrow(PROMOTIONS, owner=region).to_pylist()
    return [
        Promotion(
            action=row["action"],
            decided_at=row["as_of"],
            model_version=row["model_version"],
            champion=row["champion"],
            evaluated_as_of=row["evaluated_as_of"],
            reasons=tuple(row["reasons"]),
            comparisons=tuple(Comparison(**one) for one in json.loads(row["comparisons"])),
        )
        for row in sorted(rows, key=lambda row: str(row["as_of"]))
    ]


def _keep(tables: Tables, promotion: Promotion, region: str) -> None:
    at = parse_as_of(promotion.decided_at)
    row = dataclasses.asdict(promotion) | {
        "comparisons": json.dumps([dataclasses.asdict(one) for one in promotion.comparisons])
    }
    tables.replace_rows(PROMOTIONS, [row], (day_label(at), promotion.decided_at, region))


def _retire(registry: Registry, before: str | None, champion: str | None) -> None:
    """Tag the former champion: it may not push any more."""
    if before is not None and before != champion:
        registry.tag(before, {MAY_PUSH_TAG: f"no: the champion is {champion or 'none'}"})


def _tags(promotion: Promotion, version: str) -> dict[str, str]:
    reasons = "; ".join(promotion.reasons)
    may_push = "yes" if promotion.champion == version else f"no: {reasons}"
    return {
        MAY_PUSH_TAG: may_push[:_TAG_CHARS],
        "decision": promotion.action,
        "decided_at": promotion.decided_at,
        "evaluated_as_of": promotion.evaluated_as_of or "",
        "reasons": reasons[:_TAG_CHARS],
    }
