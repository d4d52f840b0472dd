"""The refresh: predictions, inventories and plans in; what the service then answers, against plain sums."""

import datetime as dt
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from access_rows import accesses
from placement_server import threaded
from ranges_oracle import rucio_server
from table_rows import put_files
from waiting import eventually

from features.common.errors import StaleInputError
from features.common.times import as_of_label, day_label
from features.results import PROMOTIONS
from features.schema import ACCESSES, CONTENTS, PLANS, PREDICTIONS, RECEIPTS
from jobs.ground.caches.inventory import is_here
from jobs.ground.settings.tree import CacheSettings, Settings
from jobs.ground.store.tables import Tables
from jobs.loop.trainings import promoted_models
from jobs.operator.placement import refresh
from jobs.operator.placement.current_plans import acting_plan
from models.serving.versions import CHAMPION
from prefetch.placement.database import PlacementTables
from prefetch.placement.fleet import Pending
from prefetch.placement.snapshot import Snapshot, load

AS_OF = 1_772_323_200  # 2026-03-01T00:00:00Z
HOUR, HORIZON = 3600, 2 * 86400
GB = 10**9
SETTINGS = Settings.load(env={})
CACHES = [
    CacheSettings(name=name, kind="xcache", url=f"root://{name}", site=site, capacity=size)
    for name, site, size in (("e1", "EDGE", 100 * GB), ("e2", "EDGE", 100 * GB), ("f1", "FAR", 300 * GB))
]
HELD, HOT, COLD, NEW = "cms:/H/E/AOD", "cms:/T/E/AOD", "cms:/C/E/AOD", "cms:/N/E/AOD"


def at(seconds: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(seconds, dt.UTC)


def prediction(did: str, dataset: str | None, reads: float, horizon_s: int = HORIZON) -> dict[str, Any]:
    more = {"probability": 0.5, "model_version": "m/1", "last_read_s": 60}
    known = {"size_bytes": GB, "expected_accesses": reads, "horizon_s": horizon_s}
    return {"did": did, "dataset": dataset, **known, **more}


def content(did: str, n_bytes: int, scanned_at_s: int) -> dict[str, Any]:
    flags = {"complete": n_bytes == GB, "open": False, "last_detach": None}
    sizes = {"size_bytes": GB, "bytes_on_disk": n_bytes, "scanned_at": at(scanned_at_s)}
    return {"did": did, "name": did.partition(":")[2], **sizes, **flags}


def item(action: str, did: str, *, expires_at_s: int = AS_OF + HORIZON) -> dict[str, Any]:
    numbers = {"rank": 1, "value": 5.0, "cost_bytes": GB, "size_bytes": GB, "probability": 0.5}
    words = {"item_id": f"{action}-{did}", "name": did.partition(":")[2], "reason": "because"}
    return {"did": did, "action": action, **numbers, **words, "expires_at": at(expires_at_s)}


def put(tables: Tables, table: Any, rows: list[dict[str, Any]], as_of_s: int, owner: str) -> None:
    tables.replace_rows(table, rows, (day_label(as_of_s), as_of_label(as_of_s), owner))


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    tables = Tables(str(tmp_path / "tables"))
    # Blocks of CMS are placed with their dataset; f2's dataset is known from the catalogue alone.
    predicted = [prediction("cms:/f0", f"{HELD}#block", 1.0), prediction("cms:/f1", HELD, 1.0)]
    predicted += [prediction(f"cms:/t{i}", HOT, 40_000.0) for i in range(10)]
    predicted += [prediction("cms:/c0", COLD, 0.001), prediction("cms:/n0", NEW, 0.9)]
    predicted += [prediction("cms:/c0", COLD, 99.0, horizon_s=HOUR)]
    put(tables, PREDICTIONS, predicted, AS_OF, "default")
    put_files(tables, [{"name": "/f2", "dataset": HELD}], size_bytes=GB)
    held = [content(did, GB, AS_OF - HOUR) for did in ("cms:/f0", "cms:/t0")]
    put(tables, CONTENTS, held, AS_OF - HOUR, "e1")
    put(tables, CONTENTS, [content("cms:/f1", GB, 0)], AS_OF - 2 * HOUR, "e1")
    put(tables, CONTENTS, [content("cms:/f2", GB // 2, AS_OF)], AS_OF, "f1")
    put(tables, CONTENTS, [content("cms:/n0", GB, AS_OF)], AS_OF + HOUR, "f1")
    put(tables, CONTENTS, [content("cms:/n0", GB, AS_OF)], AS_OF - 86400, "e2")
    plan = [item("prefetch", "cms:/f1"), item("evict", "cms:/t0"), item("pin", "cms:/f0")]
    put(tables, PLANS, plan, AS_OF, "e1")
    put(tables, PLANS, [item("prefetch", "cms:/n0", expires_at_s=AS_OF)], AS_OF - HOUR, "f1")
    return tables  # fmt: skip


def run(
    tables: Tables, database: Path, *, caches: Sequence[CacheSettings] = CACHES, as_of_s: int = AS_OF
) -> refresh.PlacementSummary:
    """The answer of the step with these settings."""
    serve = SETTINGS.serve.model_copy(update={"database": str(database), "min_reads": 0.05})
    plan = SETTINGS.plan.model_copy(update={"horizon": HORIZON})
    root = SETTINGS.tables.model_copy(update={"root": tables.root})
    own = {"serve": serve, "plan": plan, "tables": root, "caches": {cache.name: cache for cache in caches}}
    return refresh.run(SETTINGS.model_copy(update=own), as_of_s=as_of_s)


def stored(database: Path) -> Snapshot:
    newest = PlacementTables(str(database)).sync(Pending({}, {}, 0)).refresh
    assert newest is not None
    return load(newest.snapshot)


def acting(tables: Tables, cache: str) -> list[dict[str, Any]]:
    """The items of a cache's plan that count, by the model that was promoted."""
    champion = promoted_models(tables, region="default").get(CHAMPION)
    rows: list[dict[str, Any]] = acting_plan(tables, cache, AS_OF, champion).to_pylist()
    return rows


def sites(snapshot: Snapshot, did: str) -> tuple[str, ...] | None:
    row = snapshot.row(did)
    return None if row is None else snapshot.sites_of(row)


def test_datasets_go_where_they_are_held_and_as_far_as_they_are_read(tables: Tables, tmp_path: Path) -> None:
    summary = run(tables, tmp_path / "p.db")
    snapshot = stored(tmp_path / "p.db")
    assert (summary.datasets, summary.nowhere, summary.sites, summary.caches) == (4, 1, 2, 3)
    assert summary.no_inventory == ["e2"]
    assert sites(snapshot, HELD) == ("EDGE",)
    # 10 files × 40 000 reads × 1 GB in two days is 2.3 GB/s: more than a tenth of what either site reads.
    assert set(sites(snapshot, HOT) or ()) == {"EDGE", "FAR"}
    assert sites(snapshot, COLD) == ()
    assert len(sites(snapshot, NEW) or ()) == 1
    assert sites(snapshot, "cms:/U/E/AOD") is None


@pytest.mark.parametrize("serves_nobody", [{"drain": True}, {"kind": "directory"}])
def test_a_site_holds_a_file_of_two_caches_once_and_none_of_one_that_serves_nobody(
    tables: Tables, tmp_path: Path, serves_nobody: dict[str, object]
) -> None:
    run(tables, tmp_path / "p.db", caches=[CACHES[0].model_copy(update=serves_nobody), *CACHES[1:]])
    assert sites(stored(tmp_path / "p.db"), HELD) == ("FAR",)
    # Of three files EDGE has two, each in both of its caches.
    put(tables, CONTENTS, [content(f"cms:/f{n}", GB, AS_OF) for n in (0, 1)], AS_OF, "e2")
    held = [content(f"cms:/f{n}", n_bytes, AS_OF) for n, n_bytes in enumerate((GB, GB, GB // 2))]
    put(tables, CONTENTS, held, AS_OF, "f1")
    run(tables, tmp_path / "p.db")
    assert sites(stored(tmp_path / "p.db"), HELD) == ("FAR",)


def test_what_pushes_withhold_is_not_placed(tables: Tables) -> None:
    def placed() -> set[str]:
        return {item["did"] for item in acting(tables, "f1")}

    model = {"model_version": "m/1", "model_digest": "d1", "needs_model": True}
    by_model, known = item("pin", "cms:/f1") | model, item("pin", "cms:/f2") | model | {"needs_model": False}
    put(tables, PLANS, [by_model, known], AS_OF - 600, "f1")
    decision = {"action": "promote", "model_version": "m/1", "reasons": [], "comparisons": "[]"}
    assert placed() == {"cms:/f2"}
    for digest, expected in (("d2", {"cms:/f2"}), ("d1", {"cms:/f1", "cms:/f2"})):
        row = decision | {"champion": "m/1", "champion_digest": digest}
        put(tables, PROMOTIONS, [row], AS_OF - HOUR, "default")
        assert placed() == expected
    put(tables, PROMOTIONS, [decision | {"champion": None}], AS_OF, "default")
    assert placed() == {"cms:/f2"}
    receipt = {"item_id": by_model["item_id"], "did": "cms:/f1", "action": "pin", "state": "done"}
    receipt |= {"attempts": 1, "bytes": 0, "seconds": 0.0, "updated_at": at(AS_OF)}
    put(tables, RECEIPTS, [receipt], AS_OF - 600, "f1")
    assert placed() == {"cms:/f1", "cms:/f2"}


def test_a_prefill_adds_to_the_plan_before_it(tables: Tables) -> None:
    put(tables, PLANS, [item("prefetch", "cms:/n0"), item("pin", "cms:/f1")], AS_OF - 600, "f1")
    assert {item["did"] for item in acting(tables, "f1")} == {"cms:/n0", "cms:/f1"}
    put(tables, PLANS, [item("pin", "cms:/f2")], AS_OF - HOUR, "f1")
    put(tables, CONTENTS, [], AS_OF - HOUR, "f1")
    assert {item["did"] for item in acting(tables, "f1")} == {"cms:/n0", "cms:/f1", "cms:/f2"}
    for n in (1, 2):  # where there are prefills alone, all of the day count
        put(tables, PLANS, [item("pin", f"cms:/f{n}")], AS_OF - n * 600, "e2")
    assert {item["did"] for item in acting(tables, "e2")} == {"cms:/f1", "cms:/f2"}


def test_fractions_are_those_of_bytes_now_and_after_the_plan(tables: Tables, tmp_path: Path) -> None:
    run(tables, tmp_path / "p.db")
    snapshot = stored(tmp_path / "p.db")
    assert snapshot.caches == (("e1", "EDGE"), ("e2", "EDGE"), ("f1", "FAR"))
    known = snapshot.fractions([HELD, HOT, "cms:/f0", "cms:/f2", "cms:/n0", "cms:/t0"])
    assert known.size_bytes.tolist() == [3 * GB, 10 * GB, GB, GB, GB, GB]
    assert known.cached[0] == pytest.approx([1 / 3, 0, 1 / 6])
    assert known.predicted[0] == pytest.approx([2 / 3, 0, 1 / 6])
    assert known.cached[1] == pytest.approx([0.1, 0, 0])
    assert known.predicted[1] == pytest.approx([0, 0, 0])
    assert known.cached[3] == pytest.approx([0, 0, 0.5])
    # Later inventories, older than a day, and expired plans do not count.
    assert not known.cached[4].any()
    assert not known.predicted[4].any()


@pytest.mark.parametrize(
    ("state", "predicted"), [("failed", 1 / 3), ("cancelled", 1 / 3), ("planned", 2 / 3)]
)
def test_what_a_push_gave_up_is_not_expected(
    tables: Tables, tmp_path: Path, state: str, predicted: float
) -> None:
    tried = {"attempts": 1, "bytes": 0, "seconds": 1.0, "updated_at": at(AS_OF)}
    receipt = {"item_id": "prefetch-cms:/f1", "did": "cms:/f1", "action": "prefetch", "state": state}
    put(tables, RECEIPTS, [receipt | tried], AS_OF, "e1")
    run(tables, tmp_path / "p.db")
    snapshot = stored(tmp_path / "p.db")
    assert snapshot.fractions([HELD]).predicted[0] == pytest.approx([predicted, 0, 1 / 6])
    assert ("prefetch" in {item["action"] for item in acting(tables, "e1")}) == (state == "planned")


def test_the_same_tables_give_the_same_bytes_and_a_refresh_replaces_the_last(
    tables: Tables, tmp_path: Path
) -> None:
    first = run(tables, tmp_path / "p.db")
    before = stored(tmp_path / "p.db")
    second = run(tables, tmp_path / "p.db")
    after = stored(tmp_path / "p.db")
    assert second.refresh == first.refresh + 1
    assert (before.placed == after.placed).all()
    assert before.dataset_keys.tobytes() == after.dataset_keys.tobytes()


def access(cache: str | None, n_bytes: int | None, began_s: int, ended_s: int | None) -> dict[str, Any]:
    closed = None if ended_s is None else at(ended_s)
    times = {"accessed_at": at(began_s), "known_at": closed or at(began_s), "closed_at": closed}
    return {"cache": cache, "read_bytes": n_bytes} | times


def loads_of(tables: Tables, database: Path, rows: list[dict[str, Any]]) -> dict[str, float]:
    if rows:
        tables.replace_arrow(ACCESSES, accesses(rows, name="/f0", source="xcache_gstream"))
    run(tables, database)
    return dict(stored(database).loads)


def test_without_predictions_what_caches_hold_decides_and_one_line_says_so(
    tables: Tables, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    later = AS_OF + HOUR
    summary = run(tables, tmp_path / "p.db", as_of_s=later)
    messages = [record.message for record in caplog.records if "no predictions" in record.message]
    assert len(messages) == 1
    assert "placed by what caches hold" in messages[0]
    snapshot = stored(tmp_path / "p.db")
    # The catalogue alone knows the datasets of files; f2 is held at FAR until the inventory of an hour later.
    assert (summary.datasets, summary.nowhere) == (0, 0)
    assert snapshot.fractions(["cms:/n0", "cms:/f0"]).cached.tolist() == [[0, 0, 1], [1, 0, 0]]
    put(tables, CONTENTS, [content("cms:/f2", GB, later)], later, "e2")
    assert run(tables, tmp_path / "p.db", as_of_s=later).nowhere == 0
    assert sites(stored(tmp_path / "p.db"), HELD) == ("EDGE",)
    caplog.clear()
    run(tables, tmp_path / "p.db")
    assert "no predictions" not in caplog.text


def test_inventories_that_are_old_or_of_other_caches_place_nothing(tables: Tables, tmp_path: Path) -> None:
    late = AS_OF + 3 * 86400
    put(tables, CONTENTS, [content("cms:/f2", GB, late)], late, "stranger")
    with pytest.raises(StaleInputError, match="no inventory of the last day; run scan or predict"):
        run(tables, tmp_path / "p.db", as_of_s=late)
    assert not (tmp_path / "p.db").exists()
    put(tables, CONTENTS, [], late, "e1")
    summary = run(tables, tmp_path / "p.db", as_of_s=late)
    assert (summary.files, summary.no_inventory) == (0, ["e2", "f1"])


def test_loads_are_shares_of_the_reads_of_the_last_hour(tables: Tables, tmp_path: Path) -> None:
    begun, half = AS_OF - HOUR, AS_OF - HOUR // 2
    rows = [
        access("e1", 3 * GB, begun, half),
        # Half of it was read before the hour.
        access("e2", 2 * GB, begun - HOUR // 2, half),
        access("e2", 99 * GB, begun - HOUR, begun),
        access("f1", GB, begun, half),
        access(None, 77 * GB, begun, half),
        access("stranger", 77 * GB, begun, half),
        access("e1", 77 * GB, begun, half) | {"source": "xcache_cinfo"},
        access("e1", 77 * GB, begun, half) | {"known_at": at(AS_OF + 1)},
        access("e1", 77 * GB, half, None),
    ]
    loads = loads_of(tables, tmp_path / "p.db", rows)
    # 3 GB and 1 GB, each with one file open for half of the hour.
    assert loads == pytest.approx({"e1": (1.5 + 1) / 2, "e2": (0.5 + 1) / 2, "f1": 1.0})


def test_an_unknown_load_is_not_a_load_of_zero(tables: Tables, tmp_path: Path) -> None:
    begun = AS_OF - HOUR
    assert loads_of(tables, tmp_path / "p.db", []) == {}
    assert loads_of(tables, tmp_path / "p.db", [access("e1", GB, begun, AS_OF)]) == {"e1": 1.0}
    unsaid = [access("e1", None, begun, AS_OF), access("e2", 9 * GB, begun, begun + HOUR // 3)]
    loads = loads_of(tables, tmp_path / "p.db", unsaid)
    # Open files are 1 and 1/3; of bytes only e2's are known.
    assert loads == pytest.approx({"e1": 1.5, "e2": (0.5 + 1) / 2})


def test_absurd_reads_make_no_absurd_load(tables: Tables, tmp_path: Path) -> None:
    begun = AS_OF - HOUR
    rows = [
        *[access("e1", 2**63 - 1, begun, AS_OF)] * 2,
        access("e2", -(2**63), AS_OF - 60, begun),
        access("f1", 5, AS_OF - 10, AS_OF - 10),
    ]
    loads = loads_of(tables, tmp_path / "p.db", rows)
    assert all(0 <= load <= 2 for load in loads.values())
    assert loads["f1"] == 1.0


def test_rucio_is_sent_to_the_cache_that_plans_for_a_file(tables: Tables, tmp_path: Path) -> None:
    caches = [CACHES[0], CACHES[1].model_copy(update={"capacity": 250 * GB}), CACHES[2]]
    caches += [CACHES[0].model_copy(update={"name": "e3", "capacity": 30 * GB})]
    configured = SETTINGS.model_copy(update={"caches": {cache.name: cache for cache in caches}})
    names = [f"/store/f{i}.root" for i in range(500)]
    dids = pa.array([f"cms:{name}" for name in names])
    planned: dict[str, Any] = {}
    for cache in caches[:2] + caches[3:]:
        mine = is_here(configured, cache, dids)
        assert mine is not None
        planned |= {name: f"{cache.name}:1094" for name, is_mine in zip(names, mine, strict=True) if is_mine}
    # The service's configuration has other sizes, and a cache that the last `place` did not know.
    joined = {id: ("EDGE", size) for size, id in enumerate(("e3", "stranger", "e2", "e1"), start=1)}
    with threaded(tmp_path / "p.db", lambda: AS_OF, caches=joined) as started:
        for id in joined:
            started.beat(id)
        run(tables, tmp_path / "p.db", caches=caches)
        assert eventually(lambda: bool(started.get("/health").json()["as_of"]))
        reply = started.get("/serverRanges").json()["EDGE"]
        assert {name: rucio_server(reply, name) for name in names} == planned
        request = {"client": "EDGE", "filename": names[0]}
        assert httpx.post(f"{started.url}/prefix", json=request).text == planned[names[0]]
        health = started.get("/health").json()
        assert (health["unplanned"], health["silent"]) == (["EDGE/stranger"], ["FAR/f1"])
