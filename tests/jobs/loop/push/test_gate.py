"""Push is the gate: what models chose reaches a cache only under a promotion of those very files."""

import json
import sqlite3
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from folder_site import folder_site, write_files
from pushes import plan_row
from typer.testing import CliRunner

from features.common.errors import ConflictError, UnprovenError
from features.common.times import DAY_S, as_of_label, day_label
from features.results import PROMOTIONS
from features.schema import PLANS
from jobs.cli.main import app
from jobs.ground.settings.tree import Settings
from jobs.ground.store.tables import Tables
from jobs.loop.push import push as job
from jobs.operator.operate import status
from prefetch.journal.journal import Journal
from prefetch.push.push import PushSummary

AS_OF = int(time.time()) // 3600 * 3600
OURS, DIGEST = "cachecast-default/1", "d" * 64
ACTIONS = ("prefetch", "prefetch", "pin", "evict")
N = len(ACTIONS)


@pytest.fixture
def site(tmp_path: Path) -> Settings:
    """A site with one folder as cache, which holds two of four files, and a plan by a model."""
    for folder, numbers in (("origin", range(N)), ("cache/files", range(2, N))):
        write_files(tmp_path / folder, (f"/store/f{number}" for number in numbers), b"x" * 100)
    settings = Settings.load(folder_site(tmp_path, 'evict_guard = "0s"\n', cache="d"), env={})
    planned(settings)
    return settings


def planned(settings: Settings, of: Sequence[Any] = ((OURS, DIGEST),), *, known: Sequence[int] = ()) -> None:
    """A plan whose items are by the models `of`, in turn; those `known` need none."""
    rows = []
    for number, action in enumerate(ACTIONS):
        version, digest = of[number % len(of)]
        by = {"model_version": version, "model_digest": digest, "needs_model": number not in known}
        rows.append(plan_row(number, action, **by))
    key = (day_label(AS_OF), as_of_label(AS_OF), "d")
    Tables(settings.tables.root).replace_rows(PLANS, rows, key)


def moved_by_one(settings: Settings) -> None:
    """The plan, whose items have other ranks: another plan of that time."""
    tables = Tables(settings.tables.root)
    rows = tables.read_arrow(PLANS, owner="d").to_pylist()
    ranked = [row | {"rank": row["rank"] + 1} for row in rows]
    tables.replace_rows(PLANS, ranked, (day_label(AS_OF), as_of_label(AS_OF), "d"))


def decided(settings: Settings, at_s: int, *champion: str | None, region: str = "default") -> None:
    """The decision of `at_s` that lets `champion`, a version and a digest, serve."""
    version, digest = champion
    row: dict[str, object] = {"action": "promote", "model_version": str(version)}
    row |= {"reasons": [], "comparisons": "[]"}
    row |= {"champion": version, "champion_digest": digest}
    key = (day_label(at_s), as_of_label(at_s), region)
    Tables(settings.tables.root).replace_rows(PROMOTIONS, [row], key)


def push(settings: Settings, *, unproven: bool = False) -> PushSummary:
    return job.run(
        settings, cache="d", as_of_s=AS_OF, on_progress=lambda *_: None, force=True, unproven=unproven
    )


def in_journal(settings: Settings) -> int:
    with closing(Journal(settings.push.journal)) as journal:
        return sum(journal.reports.counts("d").values())


def unproven(settings: Settings, *, days_later: int = 0) -> int:
    now_s = int(time.time()) + days_later * DAY_S
    (cache,) = status.run(settings, now_s=now_s).caches
    names = [alarm.name for alarm in status.run(settings, now_s=now_s).alarms]
    assert ("unproven" in names) == bool(cache.unproven)
    return cache.unproven


def fetched(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in (tmp_path / "cache/files/store").iterdir())


Decided = tuple[int, str | None, str | None, str]
BY_OURS, PROMOTED = (OURS, DIGEST), (1, OURS, DIGEST, "default")
NOT_COVERED: dict[str, tuple[list[Decided], list[tuple[str, str | None]]]] = {
    "nothing was promoted": ([], [BY_OURS]),
    "the champion of another region": ([(1, OURS, DIGEST, "elsewhere")], [BY_OURS]),
    "another version": ([(1, "cachecast-default/2", DIGEST, "default")], [BY_OURS]),
    "another version since": ([PROMOTED, (2, "cachecast-default/2", "e" * 64, "default")], [BY_OURS]),
    "a rollback since": ([PROMOTED, (2, None, None, "default")], [BY_OURS]),
    "the same version with other files": ([(1, OURS, "e" * 64, "default")], [BY_OURS]),
    "a promotion without a digest": ([(1, OURS, None, "default")], [BY_OURS]),
    "a plan without a digest": ([PROMOTED], [(OURS, None)]),
    "a plan with rows by other files": ([PROMOTED], [BY_OURS, (OURS, "e" * 64)]),
    "a plan with rows by another version": ([PROMOTED], [BY_OURS, ("other/1", DIGEST)]),
}


@pytest.mark.parametrize("how", NOT_COVERED)
def test_what_no_promotion_covers_is_a_dry_run(site: Settings, tmp_path: Path, how: str) -> None:
    decisions, of = NOT_COVERED[how]
    for at_s, version, digest, region in decisions:
        decided(site, at_s, version, digest, region=region)
    planned(site, of)
    done = push(site)
    assert done.withheld == {"prefetch": 2, "pin": 1, "evict": 1}
    assert (done.pushed, done.already_done, in_journal(site)) == (0, 0, 0)
    assert fetched(tmp_path) == ["f2", "f3"]


def test_the_command_says_what_it_withheld_and_fails(site: Settings, tmp_path: Path) -> None:
    words = ["push", "run", "--conf", str(tmp_path / "site.toml"), "--cache", "d", "--force"]
    words += ["--as-of", as_of_label(AS_OF)]
    refused = CliRunner().invoke(app, [*words, "--json"])
    assert isinstance(refused.exception, UnprovenError)
    answer = json.loads(refused.stdout)
    assert answer["withheld"] == {"prefetch": 2, "pin": 1, "evict": 1}
    assert OURS in answer["unproven"] and "no model was promoted" in answer["unproven"]
    dry = json.loads(CliRunner().invoke(app, [*words, "--dry-run", "--json"]).stdout)
    assert dry["unproven"] == answer["unproven"]
    decided(site, 1, OURS, DIGEST)
    done = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)
    assert (done["pushed"] + done["already_done"], done["withheld"], done["unproven"]) == (N, {}, None)
    assert unproven(site) == 0


def test_rules_and_queued_jobs_need_no_model(site: Settings, tmp_path: Path) -> None:
    planned(site, known=[0])
    done = push(site)
    assert (done.pushed, done.withheld) == (1, {"prefetch": 1, "pin": 1, "evict": 1})
    assert fetched(tmp_path) == ["f0", "f2", "f3"]
    assert unproven(site) == 0
    planned(site, known=range(N))
    assert push(site).withheld == {}


def test_unproven_items_show_as_long_as_they_stand(site: Settings, tmp_path: Path) -> None:
    done = push(site, unproven=True)
    assert (done.pushed + done.already_done, done.withheld) == (N, {})
    assert fetched(tmp_path) == ["f0", "f1", "f2"]
    assert unproven(site) == 1  # it is pinned; what is fetched or evicted is done
    again = push(site, unproven=True)
    assert (again.pushed, again.already_done, unproven(site)) == (0, 0, 1)
    assert push(site).withheld == {}  # the journal has the plan: it is resumed as it was recorded
    assert unproven(site) == 1
    assert unproven(site, days_later=3) == 0
    assert job.cancel(site, cache="d", as_of_s=None).unpinned == 0
    assert job.cancel(site, cache="d", as_of_s=AS_OF + 1, unpin=True).unpinned == 0
    assert job.cancel(site, cache="d", as_of_s=AS_OF, unpin=True).unpinned == 1
    with closing(Journal(site.push.journal)) as journal:
        assert journal.reports.pins("d", now_s=time.time()) == []
    assert unproven(site) == 0


def test_a_plan_recorded_under_a_promotion_stays_what_it_was(site: Settings, tmp_path: Path) -> None:
    decided(site, 1, OURS, DIGEST)
    (tmp_path / "origin").rename(tmp_path / "away")
    push(site)
    (tmp_path / "away").rename(tmp_path / "origin")
    decided(site, 2, None, None)
    time.sleep(0.01)
    done = push(site)
    assert (done.withheld, unproven(site)) == ({}, 0)
    planned(site, [(OURS, DIGEST)], known=[0])  # another plan of that time, though: it is judged anew
    moved_by_one(site)
    assert sum(push(site).withheld.values()) == N - 1


def test_a_push_beside_one_that_insists_adds_nothing_unproven(site: Settings) -> None:
    """Whoever is first, the other resumes or withholds; nothing is recorded as covered that is not."""
    planned(site, known=[0])
    ends = list[object]()

    def go(insists: bool) -> None:
        try:
            ends.append(push(site, unproven=insists))
        except ConflictError as error:
            ends.append(error)

    threads = [threading.Thread(target=go, args=(insists,)) for insists in (True, False) * 3]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ends) == len(threads)
    with closing(sqlite3.connect(site.push.journal)) as database:
        bases = dict(database.execute("SELECT item_id, basis FROM push_items"))
    assert bases.pop("prefetch0") == "known"
    assert set(bases.values()) <= {"unproven"}


def test_a_withheld_plan_replaces_none_that_stands(site: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    decided(site, 1, OURS, DIGEST)
    monkeypatch.setattr(job, "push_rest", lambda *_, **__: PushSummary())
    push(site)
    before = states(site)
    planned(site, [("another/1", DIGEST)], known=[0])
    moved_by_one(site)
    done = push(site)
    assert (sum(done.withheld.values()), "stands" in (done.unproven or "")) == (N - 1, True)
    assert states(site) == before


def states(settings: Settings) -> list[tuple[str, str]]:
    with closing(sqlite3.connect(settings.push.journal)) as database:
        return sorted(database.execute("SELECT item_id, state FROM push_items"))


def test_the_rows_that_were_checked_are_the_rows_that_are_pushed(
    site: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    decided(site, 1, OURS, DIGEST)
    n_read = 0

    def check(tables: Tables, plan: Any, **_: object) -> None:
        nonlocal n_read
        n_read += plan.num_rows
        planned(site, [("another/1", "e" * 64)])  # by someone else, meanwhile

    monkeypatch.setattr(job, "check_planned_evictions", check)
    done = job.run(site, cache="d", as_of_s=AS_OF, on_progress=lambda *_: None)
    assert (n_read, done.pushed + done.already_done, done.withheld) == (N, N, {})
