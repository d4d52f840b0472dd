"""The replay step: tables in, the rows of a comparison out, never by what a plan could not have known."""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from cachecast_main import asked
from typer.testing import CliRunner

from features.common.errors import StaleInputError
from features.common.progress import unwatched
from features.common.times import DAY_S, as_of_label, day_label
from features.results import REPLAY_DAYS, REPLAY_FILLS, REPLAYS
from features.schema import ACCESSES, PREDICTIONS
from jobs.cli.main import app
from jobs.ground.settings.tree import Settings
from jobs.ground.store.tables import Tables
from jobs.studies.simulate import site_replay
from jobs.studies.simulate.accesses import Accesses
from jobs.studies.simulate.replay_trace import Caches

START = 1_772_323_200  # 2026-03-01T00:00:00Z
CYCLE = 3600
SETTINGS = Settings.load(env={})
HOT, COLD = 20, 400


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    """Four days: 20 files read every twelve hours in turn, among 400 that are read once each."""
    tables = Tables(str(tmp_path_factory.mktemp("replay")))
    hot = [(START + i * 12 * 3600 // HOT, f"hot{i % HOT}") for i in range(4 * 2 * HOT)]
    cold = [(START + 60 + i * 4 * DAY_S // COLD, f"cold{i}") for i in range(COLD)]
    tables.replace_arrow(
        ACCESSES, pa.Table.from_pylist([access(at, name) for at, name in sorted(hot + cold)])
    )
    for as_of_s in range(START + 2 * DAY_S, START + 4 * DAY_S, CYCLE):
        seen = [f"cold{i}" for i in range(COLD) if START + 60 + i * 4 * DAY_S // COLD < as_of_s]
        rows = [predicted(f"hot{i}", 0.95) for i in range(HOT)] + [predicted(name, 0.01) for name in seen]
        tables.replace_rows(PREDICTIONS, rows, (day_label(as_of_s), as_of_label(as_of_s), "default"))
    return tables


def access(at_s: int, name: str) -> dict[str, Any]:
    at = dt.datetime.fromtimestamp(at_s, dt.UTC)
    known = {"did": f"x:{name}", "scope": "x", "name": name, "accessed_at": at, "known_at": at, "n_reads": 1}
    more = {
        "size_bytes": 10**6,
        "source": "rucio_traces",
        "event_id": f"{at_s}{name}",
        "day": day_label(at_s),
    }
    return dict.fromkeys(ACCESSES.column_names) | known | more


def predicted(name: str, p: float) -> dict[str, object]:
    same = {
        "horizon_s": SETTINGS.plan.horizon,
        "size_bytes": 10**6,
        "last_read_s": 60,
        "model_version": "m/1",
    }
    return {"did": f"x:{name}", "probability": p, "expected_accesses": p} | same


POLICIES = ("lru", "lru+plan", "clairvoyant")


def run(tables: Tables, *, policies: tuple[str, ...] = POLICIES, **more: Any) -> list[dict[str, Any]]:
    caches = Caches(policies=policies, capacities=[], fractions=[0.12], watermarks=(0.9, 0.95))
    settings = SETTINGS.model_copy(
        update={
            "tables": SETTINGS.tables.model_copy(update={"root": tables.root}),
            "plan": SETTINGS.plan.model_copy(update={"control_share": 0.0}),
            "sources": SETTINGS.sources.model_copy(update={"demand": more.pop("demand_sources", {})}),
        }
    )
    on_progress = more.pop("on_progress", unwatched)
    accesses = Accesses(None, **{"first_day_s": START + 2 * DAY_S, "last_day_s": START + 3 * DAY_S} | more)
    return site_replay.run(settings, caches, accesses, on_progress=on_progress).rows


def test_a_plan_that_knows_the_hot_files_closes_the_gap(tables: Tables) -> None:
    steps: list[tuple[int, int, str]] = []
    by = {row["policy"]: row for row in run(tables, on_progress=lambda *step: steps.append(step))}
    assert list(by) == ["lru", "lru+plan", "clairvoyant", "bound"]
    assert {row["requests"] for row in by.values()} == {2 * 2 * HOT + COLD // 2}
    assert by["lru"]["wan_bytes"] > by["lru+plan"]["wan_bytes"] >= by["bound"]["wan_bytes"]
    assert by["lru+plan"]["byte_gap_closed"] > 0.5
    assert by["bound"]["hits"] is None
    assert steps[-1][0] == steps[-1][1]


def test_the_tables_hold_what_was_returned(tables: Tables) -> None:
    rows = run(tables)
    stored = {row["policy"]: row for row in tables.read_arrow(REPLAYS).to_pylist()}
    for row in rows:
        kept = stored[row["policy"]].keys() & row.keys()
        assert {k: stored[row["policy"]][k] for k in kept} == {k: row[k] for k in kept}
        assert set(REPLAYS.column_names) <= kept
    days = tables.read_arrow(REPLAY_DAYS).to_pandas()
    for policy, part in days[days["policy"] != "bound"].groupby("policy"):
        assert part["hits"].sum() == stored[policy]["hits"]
        assert part["wan_bytes"].sum() == stored[policy]["wan_bytes"]
        assert list(part["on_day"]) == ["2026-03-03", "2026-03-04"]
    fills = tables.read_arrow(REPLAY_FILLS).to_pandas()
    assert np.all(fills["used_bytes"] <= fills["capacity_bytes"])
    assert set(fills["policy"]) == {"lru", "lru+plan"}


def test_a_boundary_without_predictions_is_refused_with_the_remedy(tables: Tables) -> None:
    with pytest.raises(
        StaleInputError, match="24 of the replayed plan boundaries, the first at 2026-03-02T00"
    ):
        run(tables, first_day_s=START + DAY_S)
    without = run(tables, first_day_s=START + DAY_S, policies=("lru", "clairvoyant"))
    assert [row["policy"] for row in without] == ["lru", "clairvoyant", "bound"]


def test_tables_without_predictions_are_told_the_command_and_the_other_policies(
    tables: Tables, tmp_path: Path
) -> None:
    fresh = Tables(str(tmp_path))
    fresh.replace_arrow(ACCESSES, tables.read_arrow(ACCESSES))
    with pytest.raises(StaleInputError, match=r"`cachecast predict` for those days, .*: --policy lru,clair"):
        run(fresh)


def test_the_bound_is_a_policy_too(tables: Tables) -> None:
    assert [row["policy"] for row in run(tables, policies=("lru", "Bound"))] == ["lru", "bound"]


def test_days_without_accesses_are_refused(tables: Tables) -> None:
    asked, there = (
        r"from 2027-04-05 to 2027-04-06, nor in the \S+ before",
        "accesses of 2026-03-01 to 2026-03-0",
    )
    with pytest.raises(StaleInputError, match=f"no access {asked}; there are {there}"):
        run(tables, first_day_s=START + 400 * DAY_S, last_day_s=START + 401 * DAY_S)


def test_the_commands_read_the_tables(tables: Tables) -> None:
    words = ["--tables", tables.root, "--from", "2026-03-03", "--to", "2026-03-04", "--json"]
    rows = asked("replay", *words, "--capacity-fraction", "0.12")
    assert [row["policy"] for row in rows] == ["lru", "lru+plan", "clairvoyant", "bound"]
    assert {row["requests"] for row in rows} == {2 * 2 * HOT + COLD // 2}
    curve = asked("curve", *words, "--capacity-fraction", "0.12")
    assert curve["requests"] == rows[0]["requests"]
    assert curve["footprint_bytes"] == (HOT + COLD) * 10**6
    there = next(p for p in curve["points"] if p["capacity_bytes"] == rows[0]["capacity_bytes"])
    assert there["byte_hit_ratio"] <= rows[-1]["byte_hit_ratio"]
    # With room for all, only the first reads of the cold files are missed.
    assert curve["points"][-1]["hit_ratio"] == 1 - (COLD // 2) / curve["requests"]


def test_tables_that_cannot_be_written_are_refused_before_the_replay(tables: Tables, tmp_path: Path) -> None:
    (tmp_path / "replays").touch()
    words = ["--tables", str(tmp_path), "--from", "2026-03-03", "--to", "2026-03-04"]
    told = str(CliRunner().invoke(app, ["replay", *words]).exception)
    assert re.fullmatch("tables: .*replays is no folder; mend that, or name other tables by .*", told)


def test_only_the_demand_source_is_replayed(tables: Tables) -> None:
    (source,) = set(tables.read_arrow(ACCESSES, columns=["source"])["source"].to_pylist())
    same = run(tables, policies=("lru",), demand_sources={"*": source})
    assert same[0]["requests"] == run(tables, policies=("lru",))[0]["requests"]
    with pytest.raises(StaleInputError, match=r"\[sources\] demand"):
        run(tables, policies=("lru",), demand_sources={"*": "another"})
