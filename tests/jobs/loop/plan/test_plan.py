"""The plan step: a cache's own inventory and the predictions in, plan items with reasons out."""

import datetime as dt
from pathlib import Path
from typing import Any

import pytest
from access_rows import accesses
from table_rows import put_files

from features.common.errors import InputError, StaleInputError
from features.common.times import DAY_S, as_of_label, day_label
from features.results import ARRIVALS
from features.schema import ACCESSES, CONTENTS, PLANS, PREDICTIONS
from jobs.ground.settings.plan import RuleSettings, SourceSettings
from jobs.ground.settings.tree import CacheSettings, Settings
from jobs.ground.store.tables import Tables
from jobs.loop.plan import plan
from jobs.loop.plan.cache_state import CacheAtMoment, inflows, origin_bytes
from jobs.loop.plan.items import FileFilter, planned_files
from prefetch.journal.tables import Try
from prefetch.plan.rules import is_control
from prefetch.target import Held

AS_OF = 1_772_323_200  # 2026-03-01T00:00:00Z
MB = 10**6
SETTINGS = Settings.load(env={})
CACHE = CacheSettings(name="xc1", kind="xcache", url="root://xc1:1094", capacity=100 * MB)


def lfn(i: int) -> str:
    return f"/store/mc/Run3/A/AOD/v{i % 3}/000/f{i}.root"


def predicted(probability: dict[int, float]) -> list[dict[str, object]]:
    same: dict[str, object] = {"horizon_s": SETTINGS.plan.horizon, "size_bytes": MB}
    same |= {"model_version": "m/1", "model_digest": "d1"}
    return [
        same
        | {"did": f"cms:{lfn(i)}", "probability": p, "expected_accesses": p}
        | {"last_read_s": None if i >= 90 else 3600}
        for i, p in probability.items()
    ]


def with_plan(**values: Any) -> Settings:
    return SETTINGS.model_copy(update={"plan": SETTINGS.plan.model_copy(update=values)})


def held(i: int, *, ago_s: int = 7200) -> Held:
    return Held(lfn(i), MB, MB, True, AS_OF - ago_s, False)


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    tables = Tables(str(tmp_path / "tables"))
    chances = {i: 0.01 * i for i in range(100)}
    key = (day_label(AS_OF), as_of_label(AS_OF), "default")
    tables.replace_rows(PREDICTIONS, predicted(chances), key)
    return tables


def run(
    tables: Tables, inventory: list[Held], *, settings: Settings = SETTINGS, **more: Any
) -> plan.PlanSummary:
    moment: dict[str, Any] = {"cache": CACHE, "inventory": inventory, "pinned": set(), "as_of_s": AS_OF}
    return plan.make(CacheAtMoment(tables, settings, **(moment | more)))


def rows(tables: Tables, action: str) -> list[dict[str, Any]]:
    items = tables.read_arrow(PLANS, as_of=as_of_label(AS_OF), owner="xc1").to_pylist()
    return sorted((row for row in items if row["action"] == action), key=lambda row: row["rank"])


def test_a_plan_beside_a_steward_leaves_the_room_to_it_but_not_what_a_rule_keeps_out(tables: Tables) -> None:
    full = [held(i, ago_s=7200 + i) for i in range(92)]
    alone = run(tables, full)
    assert alone.evict > 0
    beside = CACHE.model_copy(update={"steward": True})
    summary = run(tables, full, cache=beside)
    assert (summary.evict, rows(tables, "evict")) == (0, [])
    assert summary.bound_by["evict"] == "the cache's steward makes the room"
    assert (summary.pin, summary.prefetch) == (alone.pin, alone.prefetch)
    never = RuleSettings(action="never", names=(lfn(7),))
    run(tables, full, settings=with_plan(rules=(never,)), cache=beside)
    assert [row["did"] for row in rows(tables, "evict")] == [f"cms:{lfn(7)}"]


def test_what_only_monitoring_reads_is_never_placed_and_goes_first(tables: Tables) -> None:
    """Also if it was read last, or is of the control group; not while there is room."""
    probes = tuple(lfn(i) for i in range(80, 99))
    tested = with_plan(test_files=probes)
    summary = run(tables, [held(i, ago_s=9200 - i) for i in range(92)], settings=tested)
    gone = [row["name"] for row in rows(tables, "evict")]
    assert summary.evict == 2 and set(gone) <= set(probes[:12])
    assert {row["reason"] for row in rows(tables, "evict")} == {"only monitoring reads it"}
    assert not {row["needs_model"] for row in rows(tables, "evict")} - {False}
    placed = {row["name"] for action in ("pin", "prefetch") for row in rows(tables, action)}
    assert placed and not placed & set(probes)
    run(tables, [held(i, ago_s=9200 - i) for i in range(60)], settings=tested)
    assert rows(tables, "evict") == []


def test_the_best_are_pinned_the_worst_leave_and_the_likely_come(tables: Tables) -> None:
    summary = run(tables, [held(i, ago_s=7200 + i) for i in range(92)])
    planned = ~is_control([f"cms:{lfn(i)}" for i in range(100)], 0.05)
    best = [lfn(i) for i in range(91, 0, -1) if planned[i]]
    assert [row["name"] for row in rows(tables, "pin")][:3] == best[:3]
    worst = [lfn(i) for i in range(92) if planned[i]]
    assert [row["name"] for row in rows(tables, "evict")] == worst[: summary.evict]
    assert summary.pin_bytes <= 70 * MB
    assert (summary.held_files, summary.held_bytes) == (92, 92 * MB)
    assert summary.evict_bytes == 92 * MB + 5 * MB - 95 * MB  # room for one purge
    assert all(row["cost_bytes"] == 0 for action in ("pin", "evict") for row in rows(tables, action))
    assert all("chance of a read within 2d" in row["reason"] for row in rows(tables, "pin"))
    made_by = {(row["model_version"], row["model_digest"], row["needs_model"]) for row in rows(tables, "pin")}
    assert made_by == {("m/1", "d1", True)}
    assert "no model was promoted" in summary.alarms[0]
    listed = planned_files(tables, "xc1", AS_OF, FileFilter(["evict"], reason="chance"))
    by_chance = [row["name"] for row in rows(tables, "evict") if "chance" in row["reason"]]
    assert [(file.name, file.n_bytes, file.dataset) for file in listed] == [(n, MB, None) for n in by_chance]


def inflow(tables: Tables, *n_bytes: int) -> None:
    """Record reads of an hour ago, each of which missed so many bytes."""
    rows = [{"bytes_missed": n} for n in n_bytes]
    at = dt.datetime.fromtimestamp(AS_OF - 3600, dt.UTC)
    tables.replace_arrow(ACCESSES, accesses(rows, accessed_at=at, cache="xc1", source="xcache_gstream"))


@pytest.mark.parametrize("claimed", [[2**62] * 4, [-(2**62)], [-(2**62), 2**62, 2**60]])
def test_an_absurd_inflow_empties_no_cache(tables: Tables, claimed: list[int]) -> None:
    """A record may claim any bytes; the plan frees what one purge does and what it brings."""
    inflow(tables, *claimed)
    summary = run(tables, [held(i, ago_s=7200 + i) for i in range(92)])
    assert summary.evict_bytes == summary.prefetch_bytes + (2 * MB if max(claimed) > 0 else 0)
    assert summary.prefetch_bytes <= 0.05 * 100 * MB
    assert any("implausible-inflow" in alarm for alarm in summary.alarms) == (max(claimed) > 0)
    assert summary.pin > 0  # dropped by no figure that cannot be


@pytest.mark.parametrize(
    ("cycle_s", "expected"), [(DAY_S, [7]), (DAY_S // 2, [1, 6]), (5 * 3600, [0, 2, 0, 4])]
)
def test_an_inflow_is_that_of_whole_cycles(tables: Tables, cycle_s: int, expected: list[int]) -> None:
    times = ((1, DAY_S), (2, DAY_S // 2), (4, 1))
    rows = [
        {"bytes_missed": n, "accessed_at": dt.datetime.fromtimestamp(AS_OF - ago_s, dt.UTC)}
        for n, ago_s in times
    ]
    tables.replace_arrow(ACCESSES, accesses(rows, cache="xc1", source="xcache_gstream"))
    assert inflows(tables, CACHE, as_of_s=AS_OF, cycle_s=cycle_s, assumed=0.0) == (expected, None)


def test_what_is_fetched_is_likely_unread_and_charged(tables: Tables) -> None:
    inflow(tables, 600 * MB)
    slow = with_plan(cycle=4 * 3600, model_weight=1.0)
    summary = run(tables, [held(i) for i in range(80)], settings=slow)
    fetched = rows(tables, "prefetch")
    assert 0 < summary.prefetch_bytes <= 0.05 * 100 * MB
    assert all(row["probability"] >= SETTINGS.plan.min_prefetch_probability for row in fetched)
    assert all(row["cost_bytes"] == row["size_bytes"] for row in fetched)
    assert {row["reason"].split("; ")[1] for row in fetched} == {"unread file of a dataset in use"}


def test_a_plan_fetches_nothing_of_what_looked_as_likely_before_and_was_not_read(tables: Tables) -> None:
    """Two days ago all files looked as now; those from 90 on, the likeliest, were never read."""
    inventory, eager = [held(i) for i in range(60)], with_plan(prefetch_share=1.0, model_weight=1.0)

    def fetched() -> dict[str, float]:
        run(tables, inventory, settings=eager)
        return {row["did"]: row["probability"] for row in rows(tables, "prefetch")}

    before, unread = fetched(), {f"cms:{lfn(i)}" for i in range(90, 100)}
    assert before.keys() & unread
    then_s = AS_OF - SETTINGS.plan.horizon
    key = (day_label(then_s), as_of_label(then_s), "default")
    tables.replace_rows(PREDICTIONS, predicted({i: 0.01 * i for i in range(100)}), key)
    after = fetched()
    assert after and not after.keys() & unread
    assert all(chance == before.get(did, chance) for did, chance in after.items())


def test_a_file_nobody_predicts_leaves_unless_it_came_just_now(tables: Tables) -> None:
    ages = (("old", 10**6), ("new", 60))
    old, new = (Held(f"/store/x/{name}.root", MB, MB, True, AS_OF - ago_s, False) for name, ago_s in ages)
    run(tables, [held(i, ago_s=7200 + i) for i in range(92)] + [old, new])
    evicted = [row["did"] for row in rows(tables, "evict")]
    assert "cms:/store/x/old.root" in evicted
    assert "cms:/store/x/new.root" not in evicted


def test_a_second_run_changes_nothing_and_caches_do_not_meet(tables: Tables) -> None:
    run(tables, [held(i) for i in range(92)])
    before = tables.snapshot(PLANS).id, tables.snapshot(CONTENTS).id
    run(tables, [held(i) for i in range(92)])
    assert (tables.snapshot(PLANS).id, tables.snapshot(CONTENTS).id) == before
    other = CACHE.model_copy(update={"name": "xc2"})
    run(tables, [held(3)], cache=other)
    ids = [row["item_id"] for row in tables.read_arrow(PLANS).to_pylist()]
    assert len(ids) == len(set(ids))
    assert {key[2] for key in tables.snapshot(PLANS).partitions} == {"xc1", "xc2"}


def test_caches_of_one_site_share_no_file(tables: Tables) -> None:
    twins = [CACHE.model_copy(update={"name": name, "site": "EDGE"}) for name in ("xc1", "xc2")]
    both = SETTINGS.model_copy(update={"caches": {twin.name: twin for twin in twins}})
    for twin in twins:
        run(tables, [held(i) for i in range(92)], settings=both, cache=twin)
    planned = tables.read_arrow(PLANS, columns=["name", "action"]).to_pylist()
    pinned = [row["name"] for row in planned if row["action"] == "pin"]
    assert len(pinned) == len(set(pinned)) > 0


def test_a_file_is_explained_by_name_and_nothing_is_written(tables: Tables) -> None:
    moment = CacheAtMoment(tables, SETTINGS, CACHE, [held(i) for i in range(92)], set(), AS_OF)
    judged = plan.judge(moment)
    explained = plan.explain_item(judged, item=lfn(91))
    assert (explained.action, explained.on_disk, explained.of) == ("pin", True, 92)
    assert explained.predictions == {"2d": 0.91}
    assert not tables.exists(PLANS)
    with pytest.raises(InputError, match="neither in cache"):
        plan.explain_item(judged, item="/no/such.root")


def test_a_plan_of_an_incomplete_decision_time_says_so(tables: Tables) -> None:
    row = {"source": "rucio_traces", "rows": 3, "rejected_share": 0.0, "why": "3 reads", "complete": False}
    key = (day_label(AS_OF), as_of_label(AS_OF), "default")
    tables.replace_rows(ARRIVALS, [row], key)
    assert "rucio_traces is incomplete: 3 reads" in run(tables, [held(1)]).alarms
    tables.replace_rows(ARRIVALS, [row | {"why": "", "complete": True}], key)
    assert not any("rucio_traces" in alarm for alarm in run(tables, [held(1)]).alarms)


def test_an_origin_that_fails_is_left_alone_for_a_while() -> None:
    tries = [Try(("good", "bad")[i % 2], AS_OF - 600, 1.0, bool(i % 2)) for i in range(20)]
    later = [Try("good", AS_OF, 1.0, True)] * 20
    knobs: dict[str, Any] = {"plan": SETTINGS.plan, "cycle_s": 3600}
    budget = origin_bytes(["good", "bad"], [*tries, *later], as_of_s=AS_OF, **knobs)
    assert budget is not None and budget.tolist() == [2**62, 0]
    assert origin_bytes(["good", "bad"], tries, as_of_s=AS_OF + 1800, **knobs) is None
    assert origin_bytes([], tries, as_of_s=AS_OF, **knobs) is None
    limited = SETTINGS.plan.model_copy(update={"sources": (SourceSettings(hosts=("go*",), per_hour=7),)})
    budget = origin_bytes(["GOOD:1094", "bad"], tries, as_of_s=AS_OF + 1800, **(knobs | {"plan": limited}))
    assert budget is not None and budget.tolist() == [7, 2**62]


def test_a_plan_fetches_from_the_nearest_origin_never_what_the_site_has_and_says_so(tables: Tables) -> None:
    inflow(tables, 600 * MB)
    here, tape = {lfn(86), lfn(87)}, {lfn(88), lfn(89)}
    origins = {name: ["x.cern.ch", "EDGE_DISK"] for name in here}
    origins |= {name: ["EDGE_TAPE", "T1_Tape"] for name in tape}
    names = [lfn(i) for i in range(100)]
    files = [{"name": name, "origins": origins.get(name, ["FNAL", "x.cern.ch"])} for name in names]
    put_files(tables, files, size_bytes=MB)
    slow = with_plan(cycle=4 * 3600, prefetch_share=9)
    local = CACHE.model_copy(update={"storage": ("EDGE*",)})
    inventory = [held(i) for i in range(80)]
    assert run(tables, inventory, settings=slow, cache=local).prefetch
    fetched = rows(tables, "prefetch")
    assert {row["origin"] for row in fetched} == {"x.cern.ch"}
    assert not {row["name"] for row in fetched} & (here | tape)
    assert fetched[0]["reason"].endswith("; from x.cern.ch, 16 ms (central europe), nearest of several")
    dead = [Try("x.cern.ch", AS_OF - 600, 1.0, True)] * 5
    run(tables, inventory, settings=slow, cache=local, tries=dead)
    fetched = rows(tables, "prefetch")
    assert {row["origin"] for row in fetched} == {"FNAL"}
    assert fetched[0]["reason"].endswith("; from FNAL, 150 ms (america), nearer ones fail")
    # Asked for, tape is an origin; and a cache whose site has no storage fetches all.
    from_tape = slow.model_copy(update={"plan": slow.plan.model_copy(update={"from_tape": True})})
    run(tables, inventory, settings=from_tape)
    assert {row["name"] for row in rows(tables, "prefetch")} >= here | tape
    moment = CacheAtMoment(tables, slow, local, inventory, set(), AS_OF)
    for i, why in ((87, "the site's own storage has it"), (89, "only tape has it")):
        explained = plan.explain_item(plan.judge(moment), item=lfn(i))
        assert explained.action is None
        assert why in explained.because


def test_without_predictions_there_is_no_plan(tables: Tables) -> None:
    with pytest.raises(StaleInputError, match="run `cachecast features` and `cachecast predict`"):
        run(tables, [held(1)], as_of_s=AS_OF + 14400)
    assert not tables.exists(PLANS)


def test_predictions_of_another_horizon_are_no_reason_to_evict(tables: Tables) -> None:
    with pytest.raises(StaleInputError, match="within 12h"):
        run(tables, [held(1)], settings=with_plan(horizon=43200))
    assert not tables.exists(PLANS)
