"""The plan step: a cache's own inventory and the predictions in, plan items with reasons out."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from features.errors import StaleInputError
from features.schema import ACCESSES, CONTENTS, PLANS, PREDICTIONS
from features.times import as_of_label, day_label
from jobs import plan
from jobs.settings import CacheSettings, Settings
from jobs.tables import Tables
from prefetch.control import is_control
from prefetch.target import Held

AS_OF = 1_772_323_200  # 2026-03-01T00:00:00Z
MB = 10**6
SETTINGS = Settings.load(env={})
CACHE = CacheSettings(name="xc1", kind="xcache", url="root://xc1:1094", capacity=100 * MB)


def lfn(i: int) -> str:
    return f"/store/mc/Run3/A/AOD/v{i % 3}/000/f{i}.root"


def predicted(probability: dict[int, float]) -> list[dict[str, object]]:
    return [
        {
            "did": f"cms:{lfn(i)}",
            "horizon_s": SETTINGS.plan.horizon,
            "probability": p,
            "expected_accesses": p,
            "size_bytes": MB,
            "last_read_s": None if i >= 90 else 3600,
            "model_version": "m/1",
        }
        for i, p in probability.items()
    ]


def held(i: int, *, ago_s: int = 7200) -> Held:
    return Held(lfn(i), MB, MB, True, AS_OF - ago_s, False)


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    tables = Tables(str(tmp_path / "tables"))
    chances = {i: 0.01 * i for i in range(100)}
    key = (day_label(AS_OF), as_of_label(AS_OF), "default")
    tables.replace_rows(PREDICTIONS, predicted(chances), key)
    return tables


def run(tables: Tables, inventory: list[Held], **more: Any) -> plan.PlanSummary:
    knobs = {
        "pinned": set(),
        "as_of_s": AS_OF,
        "region": "default",
        "cycle_s": SETTINGS.features.cycle,
    } | more
    return plan.run(tables, cache=CACHE, inventory=inventory, plan=SETTINGS.plan, **knobs)


def rows(tables: Tables, action: str) -> list[dict[str, Any]]:
    found = tables.read_arrow(PLANS, as_of=as_of_label(AS_OF), owner="xc1").to_pylist()
    return sorted((row for row in found if row["action"] == action), key=lambda row: row["rank"])


def test_the_best_are_pinned_the_worst_leave_and_the_likely_come(tables: Tables) -> None:
    summary = run(tables, [held(i) for i in range(92)])
    planned = {
        name: not flag
        for name, flag in zip(
            range(100), is_control([f"cms:{lfn(i)}" for i in range(100)], 0.05), strict=True
        )
    }
    assert [row["name"] for row in rows(tables, "pin")][:3] == [
        lfn(i) for i in range(91, 0, -1) if planned[i]
    ][:3]
    assert [row["name"] for row in rows(tables, "evict")][:3] == [lfn(i) for i in range(92) if planned[i]][:3]
    assert summary.pin_bytes <= 70 * MB
    assert (summary.held_files, summary.held_bytes) == (92, 92 * MB)
    assert summary.evict_bytes >= 92 * MB + 7 * MB - 95 * MB
    assert all(row["cost_bytes"] == 0 for action in ("pin", "evict") for row in rows(tables, action))
    assert all("chance of a read within 2d" in row["reason"] for row in rows(tables, "pin"))


def test_what_is_fetched_is_likely_unread_and_charged(tables: Tables) -> None:
    told = [dict(row, cache="xc1", bytes_missed=600 * MB) for row in one_access()]
    tables.replace_arrow(ACCESSES, pa.Table.from_pylist(told))
    summary = run(tables, [held(i) for i in range(80)])
    fetched = rows(tables, "prefetch")
    assert 0 < summary.prefetch_bytes <= 0.05 * 100 * MB
    assert all(row["probability"] >= SETTINGS.plan.min_prefetch_probability for row in fetched)
    assert all(row["cost_bytes"] == row["size_bytes"] for row in fetched)
    assert {row["reason"].split("; ")[1] for row in fetched} == {"unread file of a dataset in use"}


def one_access() -> list[dict[str, Any]]:
    at = dt.datetime.fromtimestamp(AS_OF - 3600, dt.UTC)
    empty = dict.fromkeys(ACCESSES.column_names)
    filled = {"did": "cms:/x", "scope": "cms", "name": "/x", "accessed_at": at, "known_at": at, "n_reads": 1}
    return [empty | filled | {"source": "xcache_gstream", "event_id": "e1", "day": day_label(AS_OF - 3600)}]


def test_a_file_nobody_predicts_leaves_unless_it_came_just_now(tables: Tables) -> None:
    old, new = (
        Held("/store/x/old.root", MB, MB, True, AS_OF - 10**6, False),
        Held("/store/x/new.root", MB, MB, True, AS_OF - 60, False),
    )
    run(tables, [held(i) for i in range(92)] + [old, new])
    evicted = [row["did"] for row in rows(tables, "evict")]
    assert "cms:/store/x/old.root" in evicted or is_control(["cms:/store/x/old.root"], 0.05)[0]
    assert "cms:/store/x/new.root" not in evicted


def test_a_pin_that_is_no_longer_worth_it_is_taken_back(tables: Tables) -> None:
    run(tables, [held(i) for i in range(92)], pinned={lfn(2), lfn(91)})
    assert [row["name"] for row in rows(tables, "unpin")] == [lfn(2)]


def test_a_second_run_changes_nothing_and_caches_do_not_meet(tables: Tables) -> None:
    run(tables, [held(i) for i in range(92)])
    before = tables.snapshot(PLANS).id, tables.snapshot(CONTENTS).id
    run(tables, [held(i) for i in range(92)])
    assert (tables.snapshot(PLANS).id, tables.snapshot(CONTENTS).id) == before
    other = CACHE.model_copy(update={"name": "xc2"})
    plan.run(
        tables, cache=other, inventory=[held(3)], pinned=set(), as_of_s=AS_OF, region="default",
        plan=SETTINGS.plan, cycle_s=SETTINGS.features.cycle,
    )  # fmt: skip
    ids = [row["item_id"] for row in tables.read_arrow(PLANS).to_pylist()]
    assert len(ids) == len(set(ids))
    assert {key[2] for key in tables.snapshot(PLANS).partitions} == {"xc1", "xc2"}


def test_without_predictions_there_is_no_plan(tables: Tables) -> None:
    with pytest.raises(StaleInputError, match="run features and predict"):
        run(tables, [held(1)], as_of_s=AS_OF + 14400)
    assert not tables.exists(PLANS)


def test_predictions_of_another_horizon_are_no_reason_to_evict(tables: Tables) -> None:
    other = SETTINGS.plan.model_copy(update={"horizon": 43200})
    with pytest.raises(StaleInputError, match="within 12h"):
        plan.run(
            tables, cache=CACHE, inventory=[held(1)], pinned=set(), as_of_s=AS_OF, region="default",
            plan=other, cycle_s=SETTINGS.features.cycle,
        )  # fmt: skip
    assert not tables.exists(PLANS)
