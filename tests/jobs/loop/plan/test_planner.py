"""The weight of the models in production: as set, or as their evaluation found best at this capacity."""

from typing import Any

from features.common.times import DAY_S, as_of_label, day_label
from features.results import CHALLENGER_PLAN, EVALUATIONS, LRU
from jobs.ground.settings.tree import Settings
from jobs.ground.store.tables import Tables
from jobs.loop.plan.planner import model_weight
from models.evaluation.promotion import UNPROVEN

OURS = "cachecast-emea/3"


def row(capacity_bytes: int | None, weight: float | None, **changes: Any) -> dict[str, Any]:
    counts = dict.fromkeys(
        ("wan_bytes", "hit_bytes", "requests", "hits", "prefetch_bytes", "wasted_bytes"), 0
    )
    of = {"model_version": OURS, "policy": CHALLENGER_PLAN, "scored_by": OURS, "on_day": "2026-03-01"}
    at = {"capacity_fraction": 0.1, "capacity_bytes": capacity_bytes, "model_weight": weight}
    return {**of, **at, **counts, **changes}


def recorded(tables: Tables, rows: list[dict[str, Any]], *, day: int) -> None:
    at_s = day * DAY_S
    tables.replace_rows(EVALUATIONS, rows, (day_label(at_s), as_of_label(at_s), "emea"))


def weight(tables: Tables, capacity_bytes: int, *, version: str = OURS, **set_: Any) -> float:
    plan = Settings.load(env={}).plan.model_copy(update=set_)
    return model_weight(tables, plan, region="emea", version=version)(capacity_bytes)


def test_models_that_were_never_evaluated_are_unproven(tables: Tables) -> None:
    assert weight(tables, 100) == UNPROVEN
    recorded(tables, [row(100, 0.75), row(100, None, policy=LRU, scored_by=None)], day=20_000)
    assert weight(tables, 100, version="cachecast-emea/4") == UNPROVEN
    recorded(tables, [row(None, None)], day=20_001)
    assert weight(tables, 100) == 0.75


def test_the_newest_evaluation_counts_at_the_nearest_capacity(tables: Tables) -> None:
    recorded(tables, [row(100, 1.0), row(1000, 1.0, capacity_fraction=0.2)], day=20_000)
    recorded(tables, [row(100, 0.25), row(1000, 0.75, capacity_fraction=0.2)], day=20_001)
    assert [weight(tables, capacity) for capacity in (1, 310, 320, 10**6)] == [0.25, 0.25, 0.75, 0.75]


def test_a_weight_that_is_set_counts_alone(tables: Tables) -> None:
    recorded(tables, [row(100, 1.0)], day=20_000)
    assert weight(tables, 100, model_weight=0.25) == 0.25
