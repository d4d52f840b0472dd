"""What MLflow keeps of a version: its walk over past days, and what its plans and evictions earned."""

import datetime as dt
from pathlib import Path

import numpy as np
import pytest
from planted_region import (
    DAY,
    FIRST,
    MLFLOW_WARNINGS,
    SECOND,
    TRAIN_UNTIL_S,
    Mlflow,
    away,
    serve,
    settings_of,
)
from random_plans import Idle

from features.common.errors import StaleInputError
from features.common.times import as_of_label
from features.results import CHALLENGER_PLAN, CHAMPION_PLAN, EVALUATIONS, LRU, S3FIFO, S3FIFO_PLAN, STEWARD
from features.schema import OUTCOMES, PLANS
from jobs.ground.caches import steward_days
from jobs.ground.settings.tree import Settings
from jobs.ground.store.tables import Tables
from jobs.loop.evaluate import promote
from jobs.loop.evaluate.record import Compared, Evaluated, candidates, record_days, record_run
from jobs.loop.outcomes import history
from jobs.loop.trainings import keep_training, trained_versions
from models.evaluation.metrics import gap_columns
from models.serving.mlflow_session import mlflow
from models.serving.runs import TableRead
from replay.comparison import BOUND, Candidates, compare
from replay.config import CacheConfig
from replay.policies.queues import lru
from replay.trace import Trace

pytestmark = MLFLOW_WARNINGS


def walked(days: int) -> Compared:
    """A replay of `days` days after one of warming, by planners that plan nothing."""
    rng = np.random.default_rng(3)
    time_s = np.sort(rng.integers(0, (days + 1) * DAY, 4000))
    reads = Trace(time_s, (rng.zipf(1.3, 4000) % 80).astype(np.int32), np.full(80, 100))
    policies = {STEWARD: lru, S3FIFO: None, "clairvoyant": None, BOUND: None}
    planners = {LRU: None, CHALLENGER_PLAN: Idle(), S3FIFO_PLAN: Idle(), CHAMPION_PLAN: Idle()}
    (at,) = compare(
        reads, [Candidates(800, policies, CacheConfig(800), planners, DAY, DAY)], count_from_s=DAY
    )
    return Compared(0.1, at, DAY)


def trained_run(at: Mlflow, version: str) -> dict[str, object]:
    """All that MLflow knows of the run that trained a version."""
    client = mlflow.tracking.MlflowClient(at.uri, registry_uri=at.uri)
    return dict(client.get_run(str(client.get_model_version(*version.split("/")).run_id)).to_dictionary())


@pytest.fixture
def settings(local: Mlflow, tmp_path: Path) -> Settings:
    """A site whose candidate is the second version."""
    (tmp_path / "site.toml").write_text(
        f'region = {{ name = "emea" }}\nplan = {{ horizon = "1h" }}\n'
        f'[mlflow]\nuri = "{local.uri}"\nartifacts = "{local.artifacts}"\nexperiment = "cachecast-test"\n'
        '[features]\ncycle = "1h"\n'
        'horizons = ["1h", "3h", "2d"]\ncandidates = "1d"\nactive_datasets = "1h"\n'
    )
    return Settings.load(tmp_path / "site.toml", tables=str(tmp_path / "tables"), env={})


def test_a_walk_is_recorded_for_its_candidate_and_promotion_decides_by_it(
    local: Mlflow, settings: Settings
) -> None:
    elsewhere = settings.model_copy(update={"region": settings.region.model_copy(update={"name": "apac"})})
    nobody = candidates(elsewhere, from_s=0)
    assert (nobody.candidate, nobody.champion) == (None, None)
    assert "nothing is recorded" in nobody.notes[0]
    serve(Tables(settings.tables.root), local, 1, champion=FIRST)
    rivals = candidates(settings, from_s=TRAIN_UNTIL_S - 1)
    assert rivals.champion is None
    assert "has seen accesses until" in rivals.notes[0]
    known = candidates(settings, from_s=TRAIN_UNTIL_S)
    assert known.champion is not None
    assert (known.candidate, known.champion.version) == (SECOND, FIRST)

    compared = walked(22)
    finished = trained_run(local, SECOND)
    evaluated = Evaluated("Evaluation", {"trees": 5}, [compared], DAY, (TableRead("accesses", "c1"),), known)
    record_days(settings, evaluated, last_day_s=22 * DAY)
    run_id = record_run(settings.mlflow, evaluated, Path.touch)
    assert trained_run(local, SECOND) == finished
    check_run(local, run_id, compared)
    store = Tables(settings.tables.root)
    rows = store.read_arrow(EVALUATIONS, as_of=as_of_label(23 * DAY), owner="emea").to_pylist()
    by_policy = {row["policy"]: row["scored_by"] for row in rows}
    assert by_policy[CHALLENGER_PLAN] == SECOND
    assert by_policy[CHAMPION_PLAN] == FIRST
    assert by_policy[LRU] is None
    check_trained_anew(store, local)
    decision = promote.promote(settings_of(store, local), now_s=0)
    assert decision.action == "refuse"
    plans = [comparison for comparison in decision.comparisons if comparison.policy == CHALLENGER_PLAN]
    assert {plan.against for plan in plans} == {LRU, S3FIFO_PLAN, CHAMPION_PLAN}
    order = [comparison for comparison in decision.comparisons if comparison.policy == STEWARD]
    assert {comparison.against for comparison in order} == {LRU, S3FIFO}
    assert decision.may_evict == all(comparison.won for comparison in order)
    assert decision.steward == (SECOND if decision.may_evict else None)
    assert all(comparison.n_days == 22 for comparison in decision.comparisons)
    card = mlflow.tracking.MlflowClient(local.uri).get_model_version(*SECOND.split("/")).description or ""
    assert card.index("## Evaluated") < card.index(run_id) < card.index("## Decided")


def check_trained_anew(store: Tables, at: Mlflow) -> None:
    """An evaluation says nothing of other files of the same name, which a new MLflow gives again."""
    evaluated = trained_versions(store, region="emea")[SECOND]
    keep_training(store, region="emea", until_s=evaluated.until_s, version=SECOND, digest="0" * 64)
    with pytest.raises(StaleInputError, match=f"other files of {SECOND} .* evaluate again"):
        promote.promote(settings_of(store, at), now_s=0)
    keep_training(store, region="emea", until_s=evaluated.until_s, version=SECOND, digest=evaluated.digest)


def check_run(at: Mlflow, run_id: str, compared: Compared) -> None:
    """The run of an evaluation has its figures, days and table, and is linked to what it judged."""
    client = mlflow.tracking.MlflowClient(at.uri, registry_uri=at.uri)
    run = client.get_run(run_id)
    figures, steward = run.data.metrics, compared.comparison.rows[STEWARD].result
    plans = compared.comparison.rows[CHALLENGER_PLAN].result
    assert figures["wan_bytes/10pct"] == plans.wan_bytes
    assert figures["byte_gap_closed/10pct"] == 0
    assert figures["steward/wan_bytes/10pct"] == steward.wan_bytes
    gap = gap_columns(compared.gap(STEWARD))
    assert {name: figures[f"steward/{name}/10pct"] for name in gap} == gap
    days = client.get_metric_history(run_id, "wan_bytes_per_day/10pct")
    assert [(point.step, point.value) for point in days] == list(enumerate(plans.daily.wan_bytes.tolist()))
    assert days[0].timestamp == DAY * 1000
    assert [dataset_input.dataset.name for dataset_input in run.inputs.dataset_inputs] == ["accesses"]
    version = client.get_model_version(*SECOND.split("/"))
    assert [model_input.model_id for model_input in run.inputs.model_inputs] == [version.tags["model_id"]]
    assert (version.tags["wan_saved"], version.tags["evaluation_run"]) == (
        "0.0 % at 10 % of the bytes read",
        run_id,
    )
    assert {artifact.path for artifact in client.list_artifacts(run_id)} == {"page.html", "table.csv"}
    nested = client.search_runs([run.info.experiment_id], f"tags.`mlflow.parentRunId` = '{run_id}'")
    assert {run_nested.data.params["policy"] for run_nested in nested} == set(compared.comparison.rows)
    champion = next(run_nested for run_nested in nested if run_nested.data.params["policy"] == CHAMPION_PLAN)
    first = client.get_model_version(*FIRST.split("/"))
    assert [
        model_input.model_id for model_input in client.get_run(champion.info.run_id).inputs.model_inputs
    ] == [first.tags["model_id"]]


KEY = ("2026-03-01", "2026-03-01T00:00:00Z", "c")


@pytest.fixture
def earning(local: Mlflow, tmp_path: Path) -> Settings:
    """A site with a plan by the second version, a day of a steward by it, and one of a model unknown here."""
    (tmp_path / "site.toml").write_text(
        'region = { name = "emea" }\n[caches.c]\nname = "c"\nkind = "xcache"\nurl = "root://x:1"\n'
        'capacity = "1GB"\n'
    )
    loaded = Settings.load(tmp_path / "site.toml", tables=str(tmp_path / "tables"), env={})
    tables = Tables(loaded.tables.root)
    item: dict[str, object] = {"did": "s:f", "action": "prefetch", "item_id": "i"}
    plan = {"name": "/f", "rank": 1, "value": 1.0, "cost_bytes": 7, "size_bytes": 7, "reason": "r"}
    until = {"expires_at": dt.datetime(2026, 3, 2, tzinfo=dt.UTC), "model_version": SECOND}
    tables.replace_rows(PLANS, [item | plan | until], KEY)
    counts = {"n_hits": 2, "bytes_saved": 7_000_000_000, "bytes_spent": 0, "bytes_wasted": 0}
    tables.replace_rows(OUTCOMES, [item | counts], KEY)
    for day, version in (("2026-03-01", SECOND), ("2026-03-02", "cachecast-emea/77")):
        run = steward_days.StewardDay(
            dt.datetime(2026, 3, 1, tzinfo=dt.UTC), 60, "learned", version, 90, 100, 1, 5
        )
        steward_days.keep(tables, run, cache="c", day=day)
    return loaded.model_copy(update={"mlflow": local})


def test_outcomes_tell_a_version_what_it_earned_again_and_again(local: Mlflow, earning: Settings) -> None:
    assert [history.annotate_models(earning, cache="c") for _ in range(2)] == [None, None]
    client = mlflow.tracking.MlflowClient(local.uri, registry_uri=local.uri)
    second = client.get_model_version(*SECOND.split("/"))
    assert "7 GB saved" in second.tags["earned.c"]
    assert (
        "on 1 days the steward saved 10 B of WAN traffic against plain LRU (10.0 %)"
        in second.tags["earned.c"]
    )
    assert str(second.description).count(second.tags["earned.c"]) == 1
    assert "earned.c" not in client.get_model_version(*FIRST.split("/")).tags


def test_outcomes_without_mlflow_say_so(earning: Settings) -> None:
    alone = earning.model_copy(update={"mlflow": away(patience=1)})
    assert "but not in MLflow" in str(history.annotate_models(alone, cache="c"))
