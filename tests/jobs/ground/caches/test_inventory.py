"""How much a plan, a push, a scan and a sync may take away by an inventory."""

import contextlib
import random
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from folder_site import folder_site, write_files
from table_rows import put_contents

from features.common import files
from features.common.errors import LimitError, PushRejected, StaleInputError, TargetUnavailable
from features.common.times import as_of_label
from features.schema import CONTENTS, PLANS, PREDICTIONS
from jobs.ground.caches import inventory
from jobs.ground.settings.plan import RuleSettings
from jobs.ground.settings.tree import CacheSettings, Settings
from jobs.ground.store.commits import MomentKey
from jobs.ground.store.tables import Tables
from jobs.loop.ingest import scan
from jobs.loop.plan import plan
from jobs.loop.plan.cache_state import CacheAtMoment
from jobs.loop.plan.items import contents
from jobs.loop.push import push
from jobs.loop.push import rucio_sync as rucio
from jobs.loop.push.rucio_sync import ReplicaDrift
from prefetch.actions import Action
from prefetch.journal.journal import Item, Journal
from prefetch.journal.tables import KNOWN
from prefetch.lfn import Did
from prefetch.rucio.rse import ReportedReplicas, changes
from prefetch.target import Held
from prefetch.xcache.client import XCacheTarget

AS_OF = 1_772_323_200
MB = 10**6
SETTINGS = Settings.load(env={})
CACHE = CacheSettings(name="xc1", kind="xcache", url="root://127.0.0.1:9", capacity=100 * MB)


def lfn(i: int) -> str:
    return f"/store/mc/Run3/A/AOD/v0/000/f{i}.root"


def held(numbers: Sequence[int]) -> list[Held]:
    return [Held(lfn(i), MB, MB, True, AS_OF - 7200, False) for i in numbers]


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    """Predictions of 40 files, and an inventory of an hour before that shows them all."""
    tables = Tables(str(tmp_path / "tables"))
    same = {"horizon_s": SETTINGS.plan.horizon, "size_bytes": MB, "last_read_s": 3600, "model_version": "m/1"}
    chances = {f"cms:{lfn(i)}": 0.01 * i for i in range(40)}
    rows = [same | {"did": did, "probability": p, "expected_accesses": p} for did, p in chances.items()]
    tables.replace_rows(PREDICTIONS, rows, MomentKey.at(AS_OF, "default"))
    scanned(tables, AS_OF - 3600, range(40))
    return tables


def scanned(tables: Tables, at_s: int, numbers: Sequence[int]) -> None:
    """What a scan of the cache leaves."""
    put_contents(tables, "xc1", at_s, {lfn(i): MB for i in numbers})


def controller(tables: Tables, most_age_s: int = 3 * 3600) -> Settings:
    """Settings of a controller with these tables and a journal beside them."""
    return SETTINGS.model_copy(
        update={
            "plan": SETTINGS.plan.model_copy(update={"inventory_age": most_age_s}),
            "tables": SETTINGS.tables.model_copy(update={"root": tables.root}),
            "push": SETTINGS.push.model_copy(update={"journal": f"{tables.root}.journal.db"}),
        }
    )


def planned(tables: Tables, files: list[Held], *, settings: Settings = SETTINGS, force: bool = False) -> Any:
    return plan.make(CacheAtMoment(tables, settings, CACHE, files, set(), AS_OF), force=force)


@pytest.mark.parametrize("n_held", [0, 19])
def test_a_cache_that_lost_most_of_its_bytes_is_not_planned(tables: Tables, n_held: int) -> None:
    with pytest.raises(LimitError, match=r"lost_share = 0\.5.*--force"):
        planned(tables, held(range(n_held)))
    assert not tables.exists(PLANS)
    assert len(tables.head(CONTENTS).partitions) == 1, "the inventory that counts is still the last one"
    assert planned(tables, held(range(n_held)), force=True).held_files == n_held


def test_a_cache_that_turned_over_is_planned(tables: Tables) -> None:
    assert planned(tables, held(range(20, 60))).held_files == 40


def test_a_plan_that_evicts_most_of_a_cache_is_refused_and_not_pushed(tables: Tables) -> None:
    never = RuleSettings(action="never", names=("*/f*.root",))
    changed = {"plan": SETTINGS.plan.model_copy(update={"rules": (never,)}), "caches": {"xc1": CACHE}}
    root = SETTINGS.tables.model_copy(update={"root": tables.root})
    settings = SETTINGS.model_copy(update=changed | {"tables": root})
    with pytest.raises(LimitError, match=r"evict_share = 0\.5.*--force"):
        planned(tables, held(range(40)), settings=settings)
    assert planned(tables, held(range(40)), settings=settings, force=True).evict > 30
    with pytest.raises(LimitError, match="evict_share"):
        push.run(settings, cache="xc1", as_of_s=AS_OF, on_progress=lambda *_: None)


@pytest.mark.parametrize(
    ("cache", "most_age_s", "why"),
    [
        ("xc1", 3600, None),  # its server is asked, and does not answer
        ("xc1", 3599, r"is of 2026-02-28T23:00:00Z, more than \[plan\] inventory_age .*cachecast scan"),
        ("xc2", 3600, r"no inventory of cache 'xc2'.*cachecast scan"),
    ],
)
def test_a_cache_elsewhere_is_planned_by_a_young_inventory_of_its_host_and_one_here_by_its_server(
    tables: Tables, tmp_path: Path, cache: str, most_age_s: int, why: str | None
) -> None:
    elsewhere = CACHE.model_copy(update={"name": cache})
    kind = TargetUnavailable if why is None else StaleInputError
    with pytest.raises(kind, match=why or "does not answer, so that nothing tells"):
        inventory.verified(controller(tables, most_age_s), elsewhere, at_s=AS_OF)
    here = CACHE.model_copy(update={"namespace": tmp_path})
    with pytest.raises(TargetUnavailable, match="does not answer"):
        inventory.verified(controller(tables, most_age_s), here, at_s=AS_OF)


class Server:
    """Answers for a cache elsewhere: what it holds, and how far its clock is ahead."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, names: set[str]) -> None:
        self.names, self.skew_s, self.asked = names, 0.0, set[str]()
        monkeypatch.setattr(XCacheTarget, "_require_answer", lambda *_: None)
        monkeypatch.setattr(XCacheTarget, "server_holds", lambda _, name: self._holds(name))
        monkeypatch.setattr(XCacheTarget, "clock_skew_s", lambda _: self.skew_s)

    def _holds(self, name: str) -> bool:
        self.asked.add(name)
        return name in self.names


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    """Of a cache that holds the 40 files."""
    return Server(monkeypatch, set(map(lfn, range(40))))


def latest_names(tables: Tables, at_s: int = AS_OF) -> tuple[set[str], int]:
    held, taken_s = inventory.verified(controller(tables), CACHE, at_s=at_s)
    return {file.name for file in held}, taken_s


def test_a_scan_that_came_late_is_newer_than_the_copy_that_a_plan_wrote_meanwhile(
    tables: Tables, server: Server
) -> None:
    """Scans begin at :50 and end after the plan of the hour, which copies the one before."""
    copy = held(range(40))
    dids = pa.array([f"cms:{file.name}" for file in copy])
    key = MomentKey.at(AS_OF, "xc1")
    tables.replace_partition(CONTENTS, contents(copy, dids, taken_s=AS_OF - 3600), key)
    tables.replace_rows(PLANS, [], key)
    scanned(tables, AS_OF - 600, range(1, 40))
    assert latest_names(tables, AS_OF + 3600) == (set(map(lfn, range(1, 40))), AS_OF - 600)


def test_an_empty_inventory_grows_old_whatever_plans_were_made_from_it(
    tables: Tables, server: Server
) -> None:
    scanned(tables, AS_OF - 1800, [])
    assert latest_names(tables) == (set(), AS_OF - 1800)
    for hour in range(3):
        key = MomentKey.at(AS_OF + hour * 3600, "xc1")
        tables.replace_rows(CONTENTS, [], key)
        tables.replace_rows(PLANS, [], key)
    with pytest.raises(StaleInputError, match="is of 2026-02-28T23:30:00Z, more than"):
        latest_names(tables, AS_OF + 3 * 3600)


def test_what_was_pushed_since_the_scan_is_part_of_the_inventory(tables: Tables, server: Server) -> None:
    """Else the next plan would evict and fetch the same again, and count the room twice."""
    settings = controller(tables)
    done = [(lfn(0), Action.EVICT), (lfn(1), Action.EVICT), (lfn(50), Action.PREFETCH)]
    expires_s = AS_OF + 3600
    items = [
        Item(f"i{n}", "xc1", AS_OF - 900, f"cms:{name}", name, action, n, MB, 0, expires_s, basis=KNOWN)
        for n, (name, action) in enumerate(done, 1)
    ]
    with contextlib.closing(Journal(settings.push.journal)) as journal:
        journal.plans.record_plan(items, now_s=AS_OF - 900)
        for lease_s, name in ((AS_OF - 800, "i1"), (AS_OF - 700, "i3"), (AS_OF + 5, "i2")):
            with contextlib.closing(sqlite3.connect(settings.push.journal)) as connection, connection:
                connection.execute(
                    "UPDATE push_items SET state = 'done', updated_at_s = ? WHERE item_id = ?",
                    (lease_s, name),
                )
    server.names = server.names - {lfn(0)} | {lfn(50)}
    assert latest_names(tables) == (set(map(lfn, [*range(1, 40), 50])), AS_OF - 3600)
    scanned(tables, AS_OF - 600, range(40))  # read again by a job meanwhile
    assert latest_names(tables)[0] == set(map(lfn, range(40)))


def test_a_half_true_inventory_is_refused(tables: Tables, server: Server) -> None:
    """One of two disks was lost: a scan before shows what lay there."""
    assert latest_names(tables)[1] == AS_OF - 3600
    assert server.asked == set(map(lfn, range(40)))
    server.names = {lfn(i) for i in range(40) if i % 2 or i > 34}
    with pytest.raises(TargetUnavailable, match=r"does not hold .* files of its inventory of"):
        latest_names(tables)


def test_an_inventory_that_is_true_where_a_sample_was_drawn_before_is_refused(
    tables: Tables, server: Server
) -> None:
    """By somebody who may write the table: 2 % of it is true, namely what was asked for the last time."""
    scanned(tables, AS_OF - 3000, range(3000))
    server.names = set(map(lfn, range(3000)))
    latest_names(tables)
    assert len(server.asked) == inventory.N_DRAWN
    scanned(tables, AS_OF - 2000, range(3000))
    server.names, server.asked = server.asked, set()
    for _ in range(5):
        with pytest.raises(TargetUnavailable, match="of 60 files of its inventory of"):
            latest_names(tables)
    assert len(server.asked) > 4 * inventory.N_DRAWN  # each time others


def test_the_sample_finds_half_an_inventory_false_and_forgives_a_sixth(server: Server) -> None:
    """As the constant says, counted over 400 draws; sums of binomials give 99.3 % and 0.02 %."""
    names, at = list(map(lfn, range(3000))), XCacheTarget("xc1", CACHE.url)

    def refused(every: int, seed: int) -> bool:
        server.names = {lfn(i) for i in range(3000) if i % every}
        try:
            at.check_listed(random.Random(seed).sample(names, inventory.N_DRAWN), "yesterday")
        except TargetUnavailable:
            return True
        return False

    assert sum(refused(2, seed) for seed in range(200)) >= 196
    assert not any(refused(6, seed) for seed in range(200))


def test_a_folder_that_does_not_answer_is_an_error_of_its_cache(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hung = tmp_path / "hung"
    cache = CacheSettings(name="slow", kind="directory", url=str(hung), origin=tmp_path, capacity=MB)
    monkeypatch.setattr(files, "silent", lambda places: f"{next(iter(places))} hangs")
    with pytest.raises(TargetUnavailable, match=f"cache 'slow': {hung} hangs"):
        inventory.verified(SETTINGS, cache, at_s=AS_OF)
    assert not hung.exists()


def test_an_inventory_whose_samples_the_server_denies_is_no_ground_for_a_plan(
    tables: Tables, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(*_: object) -> bool:
        raise PushRejected("root://xc1/a: permission denied")

    monkeypatch.setattr(XCacheTarget, "server_holds", denied)
    with pytest.raises(PushRejected, match=r"denied.* inventory of 2026-02-28T23:00:00Z.*`proxy` or `token`"):
        latest_names(tables)


@pytest.mark.parametrize(
    ("skew_s", "words"), [(-7200.0, "7200 s behind ours"), (600.0, "600 s ahead of ours")]
)
def test_an_inventory_by_another_clock_is_no_ground_for_a_plan(
    tables: Tables, server: Server, skew_s: float, words: str
) -> None:
    server.skew_s = skew_s
    for at_s in (AS_OF, AS_OF + 9 * 3600, AS_OF - 7200):  # it is young, too old, and of the future
        with pytest.raises(StaleInputError, match=words):
            latest_names(tables, at_s)


def test_evictions_of_a_cache_without_an_inventory_are_refused(tables: Tables) -> None:
    planned_rows = pa.table({"did": [f"cms:{lfn(1)}"], "action": ["evict"]})
    with pytest.raises(LimitError, match="no inventory"):
        inventory.check_planned_evictions(tables, planned_rows, cache="other", at_s=AS_OF, share=0.5)
    inventory.check_planned_evictions(tables, planned_rows, cache="xc1", at_s=AS_OF, share=0.5)
    nothing = planned_rows.slice(0, 0)
    inventory.check_planned_evictions(tables, nothing, cache="other", at_s=AS_OF, share=0.5)


def test_a_file_with_an_unreadable_record_is_left_as_it_is(tables: Tables) -> None:
    damaged = [Held(lfn(i), 0, 0, False, None, False, unreadable=True) for i in (38, 39)]
    planned(tables, [*held(range(38)), *damaged])
    named = {row["name"] for row in tables.read_arrow(PLANS).to_pylist()}
    assert named.isdisjoint({lfn(38), lfn(39)})
    known = {lfn(i) for i in range(38)}
    assert set(tables.read_arrow(CONTENTS, as_of=as_of_label(AS_OF))["name"].to_pylist()) == known


def test_a_scan_of_an_unmounted_folder_is_refused(tables: Tables, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(LimitError, match="lost_share"):
        scan.scan(tables, namespace=tmp_path / "empty", cache="xc1", as_of_s=AS_OF, lost_share=0.5)
    assert len(tables.head(CONTENTS).partitions) == 1


@pytest.mark.parametrize("dry_run", [True, False])
def test_replicas_are_not_withdrawn_by_an_empty_folder(tmp_path: Path, dry_run: bool) -> None:
    (tmp_path / "origin").mkdir()
    rucio_lines = (
        'broker = "stomp://127.0.0.1:1"\nurl = "http://127.0.0.1:1"\nusername = "u"\npassword = "p"\n'
    )
    conf = folder_site(tmp_path, f'rse = "XCACHE"\n[rucio]\n{rucio_lines}')
    dids = [Did("cms", lfn(i)) for i in range(10)]
    reported = ReportedReplicas(str(tmp_path / "journal.db"))
    reported.note("XCACHE", dids, "there", now_s=1.0)
    settings = Settings.load(conf, env={})

    def sync(*, force: bool = False) -> Any:
        return rucio.sync(
            settings, cache="dir", dry_run=dry_run or force, wait_s=0, recheck=False, force=force
        )

    with pytest.raises(LimitError, match=r"10 of 10 replicas at XCACHE .*withdraw_share = 0\.2.*--force"):
        sync()
    drift = sync(force=True)
    assert isinstance(drift, ReplicaDrift) and drift.to_remove == 10
    assert set(reported.states("XCACHE").values()) == {"there"}
    write_files(tmp_path / "cache/files", map(lfn, range(8)), b"x")
    inventory.check_withdrawals(2, 10, rse="XCACHE", share=settings.rucio.withdraw_share)
    if dry_run:
        assert sync().to_remove == 2
    reported.close()


def test_an_unreadable_file_is_neither_told_nor_withdrawn() -> None:
    there, new, gone = (Did("cms", lfn(i)) for i in range(3))
    what = changes([], {there: "there", gone: "there"}, [there, new])
    assert (what.add, what.remove) == ([], [gone])
