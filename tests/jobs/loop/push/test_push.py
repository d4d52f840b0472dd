"""`cachecast push` from the plans table to the receipts table, on a directory-backed cache."""

import dataclasses
import datetime as dt
import json
import os
import re
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from folder_site import folder_site, write_files
from pushes import item_of, plan_row
from table_rows import put_contents, put_files
from typer.testing import CliRunner

from features.common.errors import (
    ConflictError,
    InputError,
    LimitError,
    NotDueError,
    ServiceError,
    StaleInputError,
    TargetUnavailable,
)
from features.common.times import as_of_label
from features.schema import FILES, PLANS, RECEIPTS
from jobs.cli.main import app
from jobs.cli.plans import end_push
from jobs.ground.caches.inventory import target
from jobs.ground.settings.tree import CacheSettings, Settings
from jobs.ground.store.commits import MomentKey
from jobs.ground.store.tables import Tables
from jobs.loop.plan.items import PlannedItems, planned_items
from jobs.loop.push import journal as push_journal
from jobs.loop.push import push as job
from jobs.operator.operate import due
from prefetch.actions import Action, ItemState
from prefetch.journal.journal import Item, Journal, Receipt
from prefetch.push.push import PushSummary
from prefetch.push.worker import UNMEASURED_S

AS_OF = int(time.time()) // 3600 * 3600
N_FILES = 8
KEY = MomentKey.at(AS_OF, "d")
RUN = ["push", "run", "--cache", "d", "--as-of", as_of_label(AS_OF)]


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    """A site with one folder as cache, and a plan of eight files; two of them have an origin by name."""
    write_files(tmp_path / "origin", (f"/store/f{number}" for number in range(N_FILES)), b"x" * 100)
    tables = Tables(f"{tmp_path}/tables")
    origins = [f"xrd{n}:1094" if n < 2 else None for n in range(N_FILES)]
    tables.replace_rows(PLANS, [plan_row(n, origin=origins[n]) for n in range(N_FILES)], KEY)
    put_files(tables, ({"name": f"/store/f{n}"} for n in range(2)), size_bytes=100)
    return folder_site(tmp_path, 'evict_guard = "0s"\n', cache="d")


def push(conf: Path, *words: str) -> Any:
    of = ["--conf", str(conf)] if words == ("new-journal",) else ["--conf", str(conf), "--cache", "d"]
    answer = CliRunner().invoke(app, ["push", *words, *of, "--json"])
    if answer.exception is not None and not isinstance(answer.exception, SystemExit):
        raise answer.exception
    return json.loads(answer.stdout)


def receipts(conf: Path) -> list[str]:
    tables = Tables(Settings.load(conf, env={}).tables.root)
    rows = tables.read_arrow(RECEIPTS, as_of=as_of_label(AS_OF), owner="d").to_pylist()
    return [each["state"] for each in rows]


def test_a_plan_is_pushed_once_and_its_receipts_are_written(conf: Path, tmp_path: Path) -> None:
    label = as_of_label(AS_OF)
    assert push(conf, "run", "--as-of", label, "--dry-run")["items"] == {"prefetch": N_FILES}
    assert not (tmp_path / "cache/files/store").exists()
    first, again = push(conf, "run", "--as-of", label), push(conf, "run", "--as-of", label)
    assert (first["pushed"], first["bytes_fetched"], again["pushed"]) == (N_FILES, N_FILES * 100, 0)
    assert receipts(conf) == ["done"] * N_FILES
    dry = push(conf, "run", "--as-of", label, "--dry-run")
    left = (dry["items"], dry["already_done"], dry["prefetch_bytes"], dry["files"])
    assert left == ({}, N_FILES, 0, [])
    status = push(conf, "status")
    assert (status["items"], status["as_of"], status["pusher"]) == ({"done": N_FILES}, None, None)
    assert status["sources"] == [
        f"{source}: 0 of {n} tries failed, 0 s wasted"
        for source, n in (("the cache's own origin", 6), ("xrd0:1094", 1), ("xrd1:1094", 1))
    ]


def test_a_dry_run_lists_the_files_that_were_asked_for(conf: Path) -> None:
    tables = Tables(Settings.load(conf, env={}).tables.root)
    plan_rows = [plan_row(0), plan_row(1, reason="read once"), plan_row(2, "evict", cost_bytes=0)]
    tables.replace_rows(PLANS, plan_rows, KEY)
    rows = tables.read_arrow(FILES).to_pylist()
    tables.replace_rows(FILES, [each | {"dataset": f"cms:/D{i}/AOD"} for i, each in enumerate(rows)], ())
    dry = ("run", "--as-of", as_of_label(AS_OF), "--dry-run")

    def listed(*words: str) -> list[tuple[str, int, str]]:
        return [(file["action"], file["n_bytes"], file["name"]) for file in push(conf, *dry, *words)["files"]]

    evicted = ("evict", 100, "/store/f2")
    first, second = (("prefetch", 100, f"/store/f{n}") for n in range(2))
    assert listed() == [evicted, first, second]
    assert listed("--action", "evict,pin") == [evicted]
    assert listed("--dataset", "/D1/*") == listed("--dataset", "cms:/D1/AOD") == [second]
    assert listed("--dataset", "/D1") == listed("--reason", "nobody") == []
    assert listed("--reason", "Read once") == [second]
    screen = CliRunner().invoke(app, ["push", *dry, "--conf", str(conf), "--cache", "d"]).stdout
    assert "Files of the plan: evict 1 (100 B), prefetch 2 (200 B)." in screen
    assert "prefetch    100 B  /store/f1  (read once)" in screen
    with pytest.raises(InputError, match="no action delete; there are evict"):
        push(conf, *dry, "--action", "delete")
    with pytest.raises(InputError, match="--dry-run lists"):
        push(conf, "run", "--as-of", as_of_label(AS_OF), "--action", "evict")


def test_what_is_cancelled_stays_so(conf: Path, tmp_path: Path) -> None:
    (tmp_path / "origin").rename(tmp_path / "away")
    first = push(conf, "run", "--as-of", as_of_label(AS_OF))
    assert first["left_alone"] and not first["pushed"]
    status = push(conf, "status", "--as-of", as_of_label(AS_OF))
    assert sum(status["faults"].values()) >= 5 and "is unavailable" in status["last_errors"][0]
    cancelled = push(conf, "cancel", "--as-of", as_of_label(AS_OF))
    assert (cancelled["cancelled"], cancelled["under_way"]) == (N_FILES, 0)
    (tmp_path / "away").rename(tmp_path / "origin")
    assert push(conf, "resume")["pushed"] == push(conf, "run", "--as-of", as_of_label(AS_OF))["pushed"] == 0
    assert set(receipts(conf)) == {"cancelled"}


def test_resume_needs_no_plan_and_writes_the_receipts_of_all_it_changes(conf: Path) -> None:
    journal = Journal(Settings.load(conf, env={}).push.journal)
    names = [f"/store/f{number}" for number in range(3)]
    until_s = AS_OF + 2 * 86400
    plan = [item_of(name, "d", name, "prefetch", as_of_s=AS_OF, expires_at_s=until_s) for name in names]
    journal.plans.record_plan(plan, now_s=time.time())
    with journal.leases.held("d", time.time):
        assert push(conf, "status")["pusher"].startswith(f"process {os.getpid()} on ")
    journal.close()
    assert push(conf, "resume")["pushed"] == 3
    assert receipts(conf) == ["done"] * 3


def test_receipts_of_a_push_that_was_killed_before_it_wrote_them_come_with_the_next_one(
    conf: Path, tmp_path: Path
) -> None:
    push(conf, "run", "--as-of", as_of_label(AS_OF))
    shutil.rmtree(tmp_path / "tables" / "receipts")
    assert push(conf, "resume")["pushed"] == 0
    assert receipts(conf) == ["done"] * N_FILES


def test_receipts_that_were_read_before_others_wrote_newer_ones_do_not_replace_them(
    conf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with working(conf) as work, monkeypatch.context() as patch:
        until_s, read = AS_OF + 2 * 86400, push_journal._in_journal
        plan = [item_of("i", "d", "/store/f0", "prefetch", as_of_s=AS_OF, expires_at_s=until_s)]
        work.journal.plans.record_plan(plan, now_s=time.time())

        def slowly(*of: Any) -> Any:
            patch.undo()
            rows = read(*of)
            push(conf, "resume")
            return rows

        patch.setattr(push_journal, "_in_journal", slowly)
        push_journal.write_receipts(work.tables, work.journal, "d", AS_OF)
    assert receipts(conf) == ["done"]


def test_a_plan_pushed_while_another_push_works_is_recorded_for_later(conf: Path) -> None:
    journal = Journal(Settings.load(conf, env={}).push.journal)
    with journal.leases.held("d", time.time), pytest.raises(ConflictError, match="pushes to cache 'd'"):
        push(conf, "run", "--as-of", as_of_label(AS_OF))
    journal.close()
    assert push(conf, "resume")["pushed"] == N_FILES


@contextmanager
def working(conf: Path, *, days_later: float = 0) -> Iterator[job.PushRun]:
    settings = Settings.load(conf, env={})
    cache, journal = settings.cache("d"), Journal(settings.push.journal)
    limits = job.push_limits(settings, cache)
    later_s = days_later * 86400
    of, now_s = (Tables(settings.tables.root), journal, "d", target(cache)), lambda: time.time() + later_s
    yield job.PushRun(*of, limits, now_s, settings.push.keep)
    journal.close()


def newest(work: job.PushRun) -> Item:
    at_s = int(work.now_s())
    return item_of(f"n{at_s}", "d", "/store/n", "unpin", as_of_s=at_s)


def resume(work: job.PushRun) -> None:
    """Resume beside a newer plan: the age of plans is counted up to the newest one."""
    work.journal.plans.record_plan([newest(work)], now_s=work.now_s())
    job.push_rest(work, on_progress=lambda *_: None)


def test_a_settled_plan_is_pruned_after_a_week_and_its_receipts_stay(conf: Path, tmp_path: Path) -> None:
    push(conf, "run", "--as-of", as_of_label(AS_OF))
    assert push(conf, "status")["oldest"] == as_of_label(AS_OF)
    # As if the run had ended before its receipts were delivered.
    shutil.rmtree(tmp_path / "tables" / "receipts")
    with working(conf, days_later=6.9) as work:
        resume(work)
        assert work.journal.reports.counts("d", AS_OF)["done"] == N_FILES
    with working(conf, days_later=7.1) as work:
        resume(work)
        assert work.journal.reports.counts("d", AS_OF)["done"] == 0
    assert receipts(conf) == ["done"] * N_FILES
    assert push(conf, "run", "--as-of", as_of_label(AS_OF))["pushed"] == 0
    assert receipts(conf) == ["done"] * N_FILES
    status = push(conf, "status", "--as-of", as_of_label(AS_OF))
    assert status["items"] == {} and status["oldest"] > as_of_label(AS_OF)


def test_nothing_is_pruned_while_its_receipts_cannot_be_delivered(conf: Path, tmp_path: Path) -> None:
    push(conf, "run", "--as-of", as_of_label(AS_OF))
    shutil.rmtree(tmp_path / "tables" / "receipts")
    (tmp_path / "tables" / "receipts").write_text("in the way")
    with working(conf, days_later=8) as work:
        with pytest.raises(ServiceError, match=r"receipts.* is no folder"):
            resume(work)
        assert work.journal.reports.counts("d", AS_OF)["done"] == N_FILES
        (tmp_path / "tables" / "receipts").unlink()
        resume(work)
        assert work.journal.reports.oldest_s("d") > AS_OF
    assert receipts(conf) == ["done"] * N_FILES


def test_a_clock_that_was_a_year_ahead_costs_no_plan_and_no_pin(conf: Path) -> None:
    with working(conf) as work:
        work.target.prefetch("/store/f1", timeout_s=5)
        until_s = AS_OF + 2 * 86400
        plan = [
            item_of(action, "d", f"/store/f{n}", action, as_of_s=AS_OF, expires_at_s=until_s)
            for n, action in enumerate(("prefetch", "pin"))
        ]
        work.journal.plans.record_plan(plan, now_s=time.time())
        with work.journal.leases.held("d", time.time) as lease:
            (pin,) = lease.begin(Action.PIN, 1, now_s=time.time())
            lease.finish({pin.item_id: Receipt(ItemState.DONE)}, now_s=time.time())
    with working(conf, days_later=400) as wrong:
        summary = job.push_rest(wrong, on_progress=lambda *_: None)
        assert (summary.pushed, summary.expired) == (0, 1)
    with working(conf) as work:
        assert len(work.journal.reports.pins("d", now_s=time.time())) == 1
        assert job.push_rest(work, on_progress=lambda *_: None).pushed == 1
    assert receipts(conf) == ["done", "done"]


def test_a_plan_whose_time_is_over_says_what_to_do(conf: Path, tmp_path: Path) -> None:
    past_s = AS_OF - 30 * 86400
    expires_at = dt.datetime.fromtimestamp(past_s + 86400, dt.UTC)
    rows = [plan_row(number, expires_at=expires_at) for number in range(3)]
    Tables(f"{tmp_path}/tables").replace_rows(PLANS, rows, MomentKey.at(past_s, "d"))
    words = ["push", "run", "--conf", str(conf), "--cache", "d", "--as-of", as_of_label(past_s)]
    for _ in range(2):
        answer = CliRunner().invoke(app, words)
        message = " ".join(answer.stderr.split())
        assert answer.exit_code == 0
        assert "the time of the plan is over" in message and "cachecast plan --cache d" in message
    assert "is over" not in CliRunner().invoke(app, [*words[:-1], as_of_label(AS_OF)]).stderr


def test_a_newer_plan_pins_what_an_older_one_would_still_evict(conf: Path, tmp_path: Path) -> None:
    tables = Tables(f"{tmp_path}/tables")
    with working(conf) as work:
        work.target.prefetch("/store/f1", timeout_s=5)
        # The older plan is in the journal, and was not carried out.
        older, newer = AS_OF - 7200, AS_OF - 3600
        for at, actions in ((older, ("evict", "prefetch")), (newer, ("pin",))):
            by = {"model_version": "m/1", "needs_model": False}
            rows = [plan_row(n, action, item_id=f"{at}{action}", **by) for n, action in enumerate(actions, 1)]
            tables.replace_rows(PLANS, rows, MomentKey.at(at, "d"))
        expires = {"as_of_s": older, "expires_at_s": AS_OF + 86400}
        plan = [
            item_of(f"{older}{action}", "d", f"/store/f{n + 1}", action, **expires)
            for n, action in enumerate(("evict", "prefetch"))
        ]
        work.journal.plans.record_plan(plan, now_s=time.time())
        summary = job.push_plan(work, planned_items(tables, "d", newer), on_progress=lambda *_: None)
        assert (summary.pushed + summary.already_done, summary.failed) == (1, 0)
        assert work.target.confirm("/store/f1").held is not None
        late = job.push_plan(work, planned_items(tables, "d", older), on_progress=lambda *_: None)
        assert (late.pushed, late.already_done, late.failed) == (0, 0, 0)
    rows = tables.read_arrow(RECEIPTS, as_of=as_of_label(older), owner="d").to_pylist()
    assert {each["state"] for each in rows} == {"cancelled"}
    assert {each["error"] for each in rows} == {f"replaced by the plan of {as_of_label(newer)}"}


def models(tables: Tables, at_s: int, n_files: int) -> PlannedItems:
    """A plan of that many files, by a model, which needs no promotion."""
    by = {"model_version": "m/1", "needs_model": False}
    rows = [plan_row(n, "prefetch", item_id=f"{at_s}-{n}", **by) for n in range(n_files)]
    tables.replace_rows(PLANS, rows, MomentKey.at(at_s, "d"))
    return planned_items(tables, "d", at_s)


def test_an_older_plan_after_an_empty_one_is_not_carried_out(conf: Path, tmp_path: Path) -> None:
    tables = Tables(f"{tmp_path}/tables")
    older, empty = models(tables, AS_OF - 7200, 3), models(tables, AS_OF - 3600, 0)
    with working(conf) as work:
        job.push_plan(work, empty, on_progress=lambda *_: None)
        late = job.push_plan(work, older, on_progress=lambda *_: None)
    assert (late.pushed, late.failed) == (0, 0)
    rows = tables.read_arrow(RECEIPTS, as_of=as_of_label(AS_OF - 7200), owner="d").to_pylist()
    assert {each["error"] for each in rows} == {f"replaced by the plan of {as_of_label(AS_OF - 3600)}"}
    assert not list((tmp_path / "cache/files").rglob("f*"))


def test_a_push_if_current_looks_again_when_it_begins(conf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(due, "check_current", lambda *_, **__: None)  # the features came after it
    settings = Settings.load(conf, env={})
    models(Tables(settings.tables.root), AS_OF - 3600, 2)
    features = settings.features.spec.features_table
    Tables(settings.tables.root).replace_rows(features, [], MomentKey.at(AS_OF, "default"))
    words = ["run", "--as-of", as_of_label(AS_OF - 3600)]
    with pytest.raises(NotDueError, match="was overtaken by the features of"):
        push(conf, *words, "--if-current")
    assert push(conf, *words)["pushed"] == 2


def test_a_plan_that_was_recorded_before_it_was_overtaken_is_not_carried_out_later(
    conf: Path, tmp_path: Path
) -> None:
    """Another push had the lease, or this one was killed; its next try finds features of a later time."""
    settings, label = Settings.load(conf, env={}), as_of_label(AS_OF - 3600)
    models(Tables(settings.tables.root), AS_OF - 3600, 3)
    words = ["run", "--as-of", label, "--if-current"]
    with closing(Journal(settings.push.journal)) as journal, journal.leases.held("d", time.time):
        with pytest.raises(ConflictError, match="pushes to cache 'd'"):
            push(conf, *words)
        later = MomentKey.at(AS_OF, "default")
        Tables(settings.tables.root).replace_rows(settings.features.spec.features_table, [], later)
        for _ in range(2):
            with pytest.raises(NotDueError, match="was overtaken: there are features of"):
                push(conf, *words)
    assert push(conf, "resume")["pushed"] == 0
    assert not list((tmp_path / "cache/files").rglob("f*"))
    states = Tables(settings.tables.root).read_arrow(RECEIPTS, as_of=label, owner="d")["state"].to_pylist()
    assert states == ["cancelled"] * 3
    assert push(conf, "run", "--as-of", label)["pushed"] == 3


def evicts(journal: Journal, cache: str, n_files: int, at_s: int) -> None:
    """Record a plan that evicts the first `n_files`, as a push with --force leaves it to a steward."""
    names = [f"/store/f{number}" for number in range(n_files)]
    until_s = AS_OF + 2 * 86400
    items = [item_of(f"{n}-{at_s}", cache, n, "evict", as_of_s=at_s, expires_at_s=until_s) for n in names]
    journal.plans.record_plan(items, now_s=time.time())


def holds(tables: Tables, cache: str) -> None:
    """Record an inventory of all files."""
    put_contents(tables, cache, AS_OF, {f"/store/f{number}": 100 for number in range(N_FILES)})


def test_evictions_at_once_obey_the_share_of_the_cache(conf: Path) -> None:
    folder = conf.parent / "origin"
    conf.write_text(
        f'{conf.read_text()}[caches.x]\nname = "x"\nkind = "xcache"\nurl = "root://127.0.0.1:1"\n'
        f'capacity = "1GB"\nsteward = true\nwatermarks = [0.9, 0.95]\n'
        f'namespace = "{folder}"\ngstream = "{folder}"\n'
    )
    settings = Settings.load(conf, env={})
    holds(Tables(settings.tables.root), "x")
    with closing(Journal(settings.push.journal)) as journal:
        evicts(journal, "x", 5, AS_OF)
        with pytest.raises(LimitError, match=r"evict_share = 0\.5.*--force"):
            job.resume(settings, cache="x", on_progress=lambda *_: None, evict_now=True)
        assert journal.reports.counts("x")["planned"] == 5
    left = job.resume(settings, cache="x", on_progress=lambda *_: None)
    assert left.left_to_steward == 5


def test_evictions_up_to_the_share_and_those_that_are_forced_are_carried_out(conf: Path) -> None:
    with working(conf) as work:
        for number in range(N_FILES):
            work.target.prefetch(f"/store/f{number}", timeout_s=5)
        holds(work.tables, "d")
        limited = dataclasses.replace(work, evict_share=0.5)
        evicts(work.journal, "d", 5, AS_OF)
        with pytest.raises(LimitError):
            job.push_rest(limited, on_progress=lambda *_: None)
        evicts(work.journal, "d", 4, AS_OF + 1)  # replaces the other
        assert job.push_rest(limited, on_progress=lambda *_: None).pushed == 4
        evicts(work.journal, "d", 6, AS_OF + 2)
        assert job.push_rest(work, on_progress=lambda *_: None).pushed == 2


def test_a_plan_that_is_not_there_is_made_first(conf: Path) -> None:
    with pytest.raises(StaleInputError, match="run plan first"):
        push(conf, "run", "--as-of", as_of_label(AS_OF - 3600))


def test_limits_come_from_settings() -> None:
    settings = Settings.load(env={"CACHECAST_PUSH__BYTES_PER_S": "5MB", "CACHECAST_PUSH__RETRY_AFTER": "0s"})
    auto = CacheSettings(name="x", kind="xcache", url="root://x", capacity=1, gstream=Path("g"))
    limits = job.push_limits(settings, auto)
    assert (limits.bytes_per_s, limits.retry_after_s, limits.evict_guard_s) == (5_000_000, 0, 600)
    assert (limits.sources.failures, limits.sources.reconsider_s) == (0.5, 1800)
    # Without the namespace there is no inventory to measure the LRU age on.
    assert limits.touch_every_s == UNMEASURED_S
    with_namespace = auto.model_copy(update={"namespace": Path("/ns")})
    assert job.push_limits(settings, with_namespace).touch_every_s is None


def test_a_push_of_which_all_items_fail_says_why_and_ends_with_1(conf: Path, tmp_path: Path) -> None:
    for number in range(N_FILES):
        (tmp_path / "origin" / "store" / f"f{number}").unlink()
    answer = CliRunner().invoke(app, [*RUN, "--conf", str(conf)])
    assert answer.exit_code == 1
    assert f"failed: {N_FILES}" in answer.stdout
    assert re.search(rf"failures: - .*: {N_FILES} seconds:", " ".join(answer.stdout.split()))
    assert "cachecast push status --cache d" in answer.stderr


def test_a_push_of_which_one_item_fails_ends_with_0(conf: Path, tmp_path: Path) -> None:
    (tmp_path / "origin" / "store" / "f0").unlink()
    answer = CliRunner().invoke(app, [*RUN, "--conf", str(conf)])
    assert (answer.exit_code, "1 items failed" in answer.stderr) == (0, True)


def test_a_push_that_the_cache_has_ended_fails_so_that_a_scheduler_tries_it_again() -> None:
    end_push("xc1", PushSummary(pushed=3))
    stopped = PushSummary(pushed=3, stopped="cache 'xc1' was unavailable 5 times in a row: refused")
    with pytest.raises(TargetUnavailable, match=r"'xc1' was unavailable 5 times.*run the same push again"):
        end_push("xc1", stopped)


def fetched_and_pinned(tables: Tables) -> None:
    """Two plans: the older one fetches two files, the newer one pins them."""
    for at_s, action in ((AS_OF - 3600, "prefetch"), (AS_OF, "pin")):
        rows = [plan_row(n, action, cost_bytes=0) for n in (0, 1)]
        tables.replace_rows(PLANS, rows, MomentKey.at(at_s, "d"))


@pytest.mark.parametrize("how", ["no byte", "gone", "another"])
def test_a_journal_that_is_lost_is_replaced_by_the_operator_alone(
    conf: Path, tmp_path: Path, how: str
) -> None:
    """Its pins would be forgotten without a word, and a steward would evict what they hold."""
    tables = Tables(Settings.load(conf, env={}).tables.root)
    tables.replace_rows(RECEIPTS, [], MomentKey.at(AS_OF + 10**8, "d"))  # by a clock that was ahead
    fetched_and_pinned(tables)
    for at_s in (AS_OF - 3600, AS_OF):
        push(conf, "run", "--as-of", as_of_label(at_s))
    with pytest.raises(ConflictError, match="can be read and has"):
        push(conf, "new-journal")
    journal = tmp_path / "journal.db"
    for path in tmp_path.glob("journal.db*"):
        path.unlink()
    if how == "no byte":
        journal.touch()
    elif how == "another":
        with closing(Journal(str(journal))) as other:
            other.make()
    for words in (["resume"], ["run", "--as-of", as_of_label(AS_OF)]):
        with pytest.raises(ServiceError, match="no byte" if how == "no byte" else "new-journal"):
            push(conf, *words)
    answer = push(conf, "new-journal")
    assert answer["pins_forgotten"] == {"d": 2}
    assert (answer["set_aside"] is not None) == (how == "no byte")
    assert push(conf, "resume")["pushed"] == 0
    again = push(conf, "run", "--as-of", as_of_label(AS_OF))
    assert again["pushed"] + again["already_done"] == 2


def test_an_older_copy_of_the_journal_fetches_nothing_twice_and_pins_again(
    conf: Path, tmp_path: Path
) -> None:
    """A host that comes back from a backup has forgotten the pins since, until the plan is pushed again."""
    tables, journal = Tables(Settings.load(conf, env={}).tables.root), tmp_path / "journal.db"
    fetched_and_pinned(tables)
    before = push(conf, "run", "--as-of", as_of_label(AS_OF - 3600))
    assert before["pushed"] == 2
    shutil.copy(journal, tmp_path / "copy.db")
    second = push(conf, "run", "--as-of", as_of_label(AS_OF))
    assert (second["pushed"] + second["already_done"], second["failed"]) == (2, 0), second
    assert push(conf, "status")["pins"] == 2
    shutil.move(tmp_path / "copy.db", journal)
    again = push(conf, "run", "--as-of", as_of_label(AS_OF))
    assert (again["pushed"] + again["already_done"], again["bytes_fetched"], again["failed"]) == (2, 0, 0)
    assert push(conf, "status")["pins"] == 2


def test_a_journal_that_is_only_locked_is_not_set_aside(
    conf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A push that hangs holds it: its pins would be forgotten though nothing is lost."""
    journal = tmp_path / "journal.db"
    with closing(Journal(str(journal))) as journal_file:
        journal_file.make()
    monkeypatch.setattr("prefetch.journal.journal._PATIENCE_S", 1)
    with closing(sqlite3.connect(journal, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(ServiceError, match="does not answer"):
            push(conf, "new-journal")
    assert not list(tmp_path.glob("journal.db.lost-*"))
