"""The replay step: tables or several caches in, rows of a comparison out, never by what none could know."""

import datetime as dt
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from access_rows import accesses
from cachecast_main import asked

from features.common.errors import ConfigError, InputError, StaleInputError
from features.common.progress import unwatched
from features.common.times import DAY_S, as_of_label, day_label
from features.results import REPLAY_DAYS, REPLAY_FILLS, REPLAYS
from features.schema import ACCESSES, PREDICTIONS
from jobs.ground.settings.tree import Settings
from jobs.ground.store.tables import Tables
from jobs.studies.simulate import site_replay
from jobs.studies.simulate.accesses import Accesses
from jobs.studies.simulate.fleet import load_fleet, load_levels, replay_fleet, replay_levels
from jobs.studies.simulate.replay_trace import Caches
from models.learning.order import Learning
from prefetch.plan.rules import Objective
from replay.read import LoadedTrace
from replay.trace import Trace

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
    rows = [
        {"name": name, "accessed_at": dt.datetime.fromtimestamp(at_s, dt.UTC)}
        for at_s, name in sorted(hot + cold)
    ]
    tables.replace_arrow(
        ACCESSES, accesses(rows, scope="x", size_bytes=10**6, source="rucio_traces", site="A")
    )
    for as_of_s in range(START + 2 * DAY_S, START + 4 * DAY_S, CYCLE):
        rare = [f"cold{i}" for i in range(COLD) if START + 60 + i * 4 * DAY_S // COLD < as_of_s]
        rows = [predicted(f"hot{i}", 0.95) for i in range(HOT)] + [predicted(name, 0.01) for name in rare]
        tables.replace_rows(PREDICTIONS, rows, (day_label(as_of_s), as_of_label(as_of_s), "default"))
    return tables


def predicted(name: str, p: float) -> dict[str, object]:
    same = {"size_bytes": 10**6, "last_read_s": 60, "model_version": "m/1"}
    same["horizon_s"] = SETTINGS.plan.horizon
    return {"did": f"x:{name}", "probability": p, "expected_accesses": p} | same


POLICIES = ("lru", "lru+plan", "clairvoyant")


def run(
    tables: Tables,
    *,
    policies: tuple[str, ...] = POLICIES,
    objective: Objective = Objective.BYTES,
    **more: Any,
) -> list[dict[str, Any]]:
    caches = Caches(policies=policies, capacities=[], fractions=[0.12], watermarks=(0.9, 0.95))
    settings = SETTINGS.model_copy(
        update={
            "tables": SETTINGS.tables.model_copy(update={"root": tables.root}),
            "plan": SETTINGS.plan.model_copy(update={"control_share": 0.0, "objective": objective}),
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


def test_a_plan_by_core_hours_is_worth_what_production_says(tables: Tables) -> None:
    """All files come from one origin: the order by hours is that by bytes, and no file is worth nothing."""
    bytes_by = {
        objective: {row["policy"]: row["wan_bytes"] for row in run(tables, objective=objective)}
        for objective in Objective
    }
    assert bytes_by[Objective.CPU_HOURS] == bytes_by[Objective.BYTES]


def test_the_tables_hold_what_was_returned(tables: Tables) -> None:
    rows = run(tables)
    stored = {row["policy"]: row for row in tables.read_arrow(REPLAYS).to_pylist()}
    for row in rows:
        columns = stored[row["policy"]].keys() & row.keys()
        assert {k: stored[row["policy"]][k] for k in columns} == {k: row[k] for k in columns}
        assert set(REPLAYS.column_names) <= columns
    days = tables.read_arrow(REPLAY_DAYS).to_pandas()
    assert set(days["policy"]) >= stored.keys() - {"bound"}
    for policy, part in days[days["policy"] != "bound"].groupby("policy"):
        assert part["hits"].sum() == stored[policy]["hits"]
        assert part["wan_bytes"].sum() == stored[policy]["wan_bytes"]
        assert list(part["on_day"]) == ["2026-03-03", "2026-03-04"]
    fills = tables.read_arrow(REPLAY_FILLS).to_pandas()
    assert np.all(fills["used_bytes"] <= fills["capacity_bytes"])
    assert set(fills["policy"]) == {"lru", "lru+plan"}
    assert [row["policy"] for row in run(tables, policies=("fifo",), only={"site": "A"})] == ["fifo", "bound"]
    assert {row["policy"] for row in tables.read_arrow(REPLAYS).to_pylist()} == stored.keys()


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


def test_only_the_demand_source_is_replayed(tables: Tables) -> None:
    (source,) = set(tables.read_arrow(ACCESSES, columns=["source"])["source"].to_pylist())
    same = run(tables, policies=("lru",), demand_sources={"*": source})
    assert same[0]["requests"] == run(tables, policies=("lru",))[0]["requests"]
    with pytest.raises(StaleInputError, match=r"\[sources\] demand"):
        run(tables, policies=("lru",), demand_sources={"*": "another"})


def test_a_steward_learns_by_when_the_reads_of_the_tables_became_known(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    learned_from: list[Learning] = []
    monkeypatch.setattr(Learning, "learn", lambda learning, *_: learned_from.append(learning))
    with pytest.raises(InputError, match="too few accesses before --from"):
        run(tables, policies=("steward",))
    words = ("--tables", tables.root, "--from", "2026-03-03", "--to", "2026-03-04", "--capacity", "50MB")
    with pytest.raises(InputError, match="too few for a steward"):
        asked("worth-it", *words)
    for learning in learned_from:
        assert learning.known_s is not None
        assert learning.known_s.tolist() == learning.trace.time_s.tolist()
    assert len(learned_from) == 2


def write(folder: Path, text: str) -> Path:
    path = folder / "fleet.toml"
    path.write_text(text)
    return path


ONE = '[[caches]]\nname = "a"\ncapacity = "1TB"\n'
LEVELS = """
[[levels]]
name = "node"
by = "reader"
count = 2
capacity = "10B"
[[levels]]
name = "site"
capacity = "{capacity}"
link = "1B"
"""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("caches = 7", "fleet.toml"),
        ("[[caches]]\nname = 'a'", "capacity"),
        ("[[caches]]\nname = 'a/b'\ncapacity = '1TB'", "name"),
        ("[[caches]]\nname = 'a'\ncapacity = '1TB'\nsize = 3", "size"),
        ("wan_per_s = '5GB'\n[[caches]]\nname = 'a'\ncapacity = '1TB'", "wan_per_s"),
        ("[[caches]]\nname = 'a'\ncapacity = '1TB'\n[[caches]]\nname = 'a'\ncapacity = '1TB'", "same name"),
        ("[[caches]]\nname = 'a'\ncapacity = '1TB'\nwatermarks = [0.9, 0.8]", "watermarks"),
        ("", "caches"),
        ("[[", "not TOML"),
        (ONE + "cold_every = 99999999999999999999", "fleet.toml"),
        (
            "".join(f'[[caches]]\nname = "b{i}"\ncapacity = "1TB"\ncount = 1000\n' for i in range(11)),
            "fleet.toml",
        ),
        (LEVELS.format(capacity="none"), "capacity"),
        (LEVELS.format(capacity="1kB").replace("node", "site"), "names of their own"),
        (LEVELS.format(capacity="1kB").replace("node", "origin"), "names of their own"),
        (LEVELS.format(capacity="1kB").replace('"reader"', '"luck"'), "by"),
        ("levels = []", "levels"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, words: str) -> None:
    load = load_levels if "levels" in text else load_fleet
    with pytest.raises(ConfigError, match=words):
        load(write(tmp_path, text))


def test_rows_are_of_all_and_of_each(tmp_path: Path) -> None:
    path = write(tmp_path, "[[caches]]\nname = 'n'\ncount = 2\ncapacity = '1000'\nssd = '300'")
    rng = np.random.default_rng(1)
    trace = Trace(
        np.sort(rng.integers(0, 90_000, 3000)),
        rng.integers(0, 100, 3000, dtype=np.int32),
        rng.integers(1, 60, 100),
        names=pa.array([f"x:f{i}" for i in range(100)]),
    )
    loaded, rates = LoadedTrace(trace, pa.table({}), ()), {"ssd": 100, "hdd": 10}
    rows: Any = replay_fleet(loaded, load_fleet(path), count_from_s=None, read_rates=rates).rows
    assert [row["cache"] for row in rows] == ["all", "n-1", "n-2"]
    for key in ("requests", "hits", "bytes_requested", "wan_bytes", "capacity_bytes"):
        assert rows[0][key] == rows[1][key] + rows[2][key]
    assert rows[0]["requests"] == 3000
    hit_bytes = rows[0]["bytes_requested"] * rows[0]["byte_hit_ratio"]
    ssd = rows[0]["ssd_hit_bytes"]
    assert 0 < ssd < hit_bytes
    assert rows[0]["read_wait_s"] == pytest.approx(ssd / 100 + (hit_bytes - ssd) / 10)


def test_levels_of_a_file_are_replayed_for_the_users_of_a_trace(tmp_path: Path) -> None:
    levels = load_levels(write(tmp_path, LEVELS.format(capacity="1kB")))
    assert levels is not None
    reads = Trace(np.array([0, 100, 200, 300]), np.zeros(4, np.int32), np.array([5]))
    users = pa.table({"user": ["ann", "bob", "ann", "bob"]})
    answer = replay_levels(LoadedTrace(reads, users, ()), levels, count_from_s=None)
    hits = {row["cache"]: row["hits"] for row in answer.rows}
    assert hits == {"node": 2, "site": 1, "origin": 1, "all": 3}
    assert (answer.rows[-1]["in_bytes"], answer.rows[-1]["mean_wait_s"]) == (5, 1.25)
