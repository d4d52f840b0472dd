"""A walk over past days, recorded for its candidate in MLflow and in the tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from planted_region import DAY, FIRST, MLFLOW_WARNINGS, SECOND, TRAIN_UNTIL_S, Mlflow, serve

from features.results import CHALLENGER_PLAN, CHAMPION_PLAN, EVALUATIONS, LRU, S3FIFO, S3FIFO_PLAN, STEWARD
from features.times import as_of_label
from jobs.evaluate import promote
from jobs.evaluate.record import contest, record
from jobs.settings.tree import Settings
from jobs.store.tables import Tables
from models.evaluation.rivals import Rivals, replay_rivals
from models.serving.mlflow_session import mlflow
from models.serving.names import model_name
from replay.config import CacheConfig
from replay.planner import Actions, CacheState
from replay.policies.lru import lru
from replay.trace import Trace

pytestmark = MLFLOW_WARNINGS


class Idle:
    """Plans nothing."""

    def actions(self, state: CacheState) -> Actions:
        none = np.zeros(0, np.int64)
        return Actions(none, none, none, none)


def walked(days: int, *stewards: str) -> Rivals:
    """A replay of `days` days after one of warming, by planners that plan nothing."""
    rng = np.random.default_rng(3)
    time_s = np.sort(rng.integers(0, (days + 1) * DAY, 4000))
    reads = Trace(time_s, (rng.zipf(1.3, 4000) % 80).astype(np.int32), np.full(80, 100))
    plans = {CHALLENGER_PLAN: Idle(), S3FIFO_PLAN: Idle(), CHAMPION_PLAN: Idle()}
    told: dict[str, Any] = {
        "capacity_fraction": 0.1,
        "cycle_s": DAY,
        "from_s": DAY,
        "plan_from_s": DAY,
        "stewards": dict.fromkeys(stewards, lru),
    }
    return replay_rivals(reads, CacheConfig(800), plans, **told, on_done=lambda name: None)


def test_without_an_order_there_is_no_row_of_a_steward() -> None:
    found = walked(days=3)
    assert STEWARD not in found.replayed
    assert {LRU, S3FIFO} <= found.replayed.keys()


def test_a_walk_is_recorded_for_its_candidate_and_promotion_decides_by_it(
    local: Mlflow, tmp_path: Path
) -> None:
    (tmp_path / "site.toml").write_text(
        f'region = {{ name = "emea" }}\nplan = {{ horizon = "1h" }}\n'
        f'[mlflow]\nuri = "{local.uri}"\nartifacts = "{local.artifacts}"\nexperiment = "cachecast-test"\n'
        '[features]\ncycle = "1h"\n'
        'horizons = ["1h", "3h", "2d"]\ncandidates = "1d"\nactive_datasets = "1h"\n'
    )
    settings = Settings.load(tmp_path / "site.toml", tables=str(tmp_path / "tables"), env={})
    elsewhere = settings.model_copy(update={"region": settings.region.model_copy(update={"name": "apac"})})
    nobody = contest(elsewhere, from_s=0)
    assert (nobody.candidate, nobody.champion) == (None, None)
    assert "nothing is recorded" in nobody.notes[0]
    serve(Tables(settings.tables.root), local, 1, champion=FIRST)
    seen = contest(settings, from_s=TRAIN_UNTIL_S - 1)
    assert seen.champion is None
    assert "has seen accesses until" in seen.notes[0]
    known = contest(settings, from_s=TRAIN_UNTIL_S)
    assert known.champion is not None
    assert (known.candidate, known.champion.version) == (SECOND, FIRST)

    rivals = walked(22, STEWARD)
    record(settings, known, [rivals], last_day_s=22 * DAY)
    store = Tables(settings.tables.root)
    rows = store.read_arrow(EVALUATIONS, as_of=as_of_label(23 * DAY), owner="emea").to_pylist()
    by_policy = {row["policy"]: row["scored_by"] for row in rows}
    assert by_policy[CHALLENGER_PLAN] == SECOND
    assert by_policy[CHAMPION_PLAN] == FIRST
    assert by_policy[LRU] is None
    client = mlflow.tracking.MlflowClient(local.uri)
    run_id = client.get_model_version_by_alias(model_name("emea"), "candidate").run_id
    told = client.get_run(str(run_id)).data
    figures = told.metrics
    assert told.tags["wan_saved"] == "0.0 % at 10 % of the bytes read"
    name = "walk/lru_challenger/at_10pct"
    assert figures[f"{name}/wan_bytes"] == rivals.replayed[CHALLENGER_PLAN].result.wan_bytes
    assert figures[f"{name}/byte_gap_closed"] == 0
    steward = rivals.replayed[STEWARD].result
    assert figures["steward/wan_bytes_10pct"] == steward.wan_bytes
    gap = rivals.gap_closed(STEWARD)
    assert gap is not None
    assert (figures["steward/gap_closed_10pct"], figures["steward/gap_closed_lower_10pct"]) == (
        gap.mean,
        gap.lower,
    )
    assert not any(name.startswith("walk/steward") for name in figures)
    decision = promote.decide(store, region="emea", mlflow=local, max_age_s=90 * DAY, now_s=0, min_days=21)
    assert decision.action == "refuse"
    plans = [one for one in decision.comparisons if one.policy == CHALLENGER_PLAN]
    assert {one.against for one in plans} == {LRU, S3FIFO_PLAN, CHAMPION_PLAN}
    order = [one for one in decision.comparisons if one.policy == STEWARD]
    assert {one.against for one in order} == {LRU, S3FIFO}
    assert decision.may_evict == all(one.won for one in order)
    assert decision.steward == (SECOND if decision.may_evict else None)
    assert all(one.n_days == 22 for one in decision.comparisons)
