"""What a version's plans and evictions earned, told to MLflow by `outcomes`."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest
from planted_region import FIRST, MLFLOW_WARNINGS, SECOND, Mlflow, away

from features.schema import OUTCOMES, PLANS
from jobs.ground.caches import steward_days
from jobs.ground.settings.tree import Settings
from jobs.ground.store.tables import Tables
from jobs.loop.outcomes import history
from models.serving.mlflow_session import mlflow

pytestmark = MLFLOW_WARNINGS
KEY = ("2026-03-01", "2026-03-01T00:00:00Z", "c")


@pytest.fixture
def settings(local: Mlflow, tmp_path: Path) -> Settings:
    """A site with a plan by the second version, a day of a steward by it, and one of a model unknown here."""
    (tmp_path / "site.toml").write_text(
        'region = { name = "emea" }\n[caches.c]\nname = "c"\nkind = "xcache"\nurl = "root://x:1"\n'
        'capacity = "1GB"\n'
    )
    made = Settings.load(tmp_path / "site.toml", tables=str(tmp_path / "tables"), env={})
    tables = Tables(made.tables.root)
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
    return made.model_copy(update={"mlflow": local})


def test_outcomes_tell_a_version_what_it_earned_again_and_again(local: Mlflow, settings: Settings) -> None:
    assert [history.annotate_models(settings, cache="c") for _ in range(2)] == [None, None]
    client = mlflow.tracking.MlflowClient(local.uri, registry_uri=local.uri)
    second = client.get_model_version(*SECOND.split("/"))
    assert "7 GB saved" in second.tags["earned.c"]
    assert (
        "on 1 days the steward saved 10 B of WAN traffic against plain LRU (10.0 %)"
        in second.tags["earned.c"]
    )
    assert str(second.description).count(second.tags["earned.c"]) == 1
    assert "earned.c" not in client.get_model_version(*FIRST.split("/")).tags


def test_outcomes_without_mlflow_say_so(settings: Settings) -> None:
    alone = settings.model_copy(update={"mlflow": away(patience=1)})
    assert "but not in MLflow" in str(history.annotate_models(alone, cache="c"))
