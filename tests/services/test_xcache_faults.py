"""A push to a real XCache while things break: nothing lost, nothing twice, and receipts that say what was."""

import contextlib
import dataclasses
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import commands
import pytest
import trickling_proxy
from daemons import open_folder
from journals import states
from pushes import item_of
from steward_site import MIB, memory_disk
from waiting import eventually
from xcache_server import has_ended

from jobs.local_site.local.xrootd import Loopback, loopback
from prefetch.journal.journal import Item, Journal, Receipt
from prefetch.journal.tables import PREFILL
from prefetch.push.push import PushLimits, PushSummary, push
from prefetch.xcache import cinfo
from prefetch.xcache.client import BLOCK_BYTES, XCacheTarget
from prefetch.xcache.session import RemoteFile

pytestmark = [pytest.mark.long, pytest.mark.service, pytest.mark.xrootd, pytest.mark.usefixtures("xrootd")]
SIZE = 300_000
AS_OF_S = int(time.time())
RECONSIDER_S = 1800
LIMITS = PushLimits(parallel=4, timeout_s=20, retry_after_s=0.1, evict_guard_s=0)
ODD = "/store/mc/with space+a&b=c%20;é日本'\"$HOME.root"


def item(name: str, action: str = "prefetch", rank: int = 1, size_bytes: int = SIZE) -> Item:
    item_id = f"{action}{name}{time.monotonic_ns()}"[-64:]
    return item_of(item_id, "one", name, action, as_of_s=AS_OF_S, rank=rank, size_bytes=size_bytes)


def files(xcache: Loopback, what: str, n_files: int, size_bytes: int = SIZE) -> list[str]:
    """New ones, also where a test is tried again beside the same cache."""
    names = [f"/store/mc/{what}{number:02}.{time.monotonic_ns()}.root" for number in range(n_files)]
    for name in names:
        xcache.add_file(name, os.urandom(size_bytes))
    return names


def run(
    xcache: Loopback,
    journal: Journal,
    plan: list[Item],
    *,
    later_s: float = 0,
    at_item: tuple[int, Callable[[], None]] | None = None,
    **limits: Any,
) -> PushSummary:
    """Push; with `at_item` something happens after so many items were tried."""
    journal.plans.record_plan(plan, now_s=time.time())
    tried = 0

    def count(_item: Item, _receipt: Receipt) -> None:
        nonlocal tried
        tried += 1
        if at_item is not None and tried == at_item[0]:
            at_item[1]()

    return push(
        target(xcache),
        journal,
        cache="one",
        limits=dataclasses.replace(LIMITS, **limits),
        now_s=lambda: time.time() + later_s,
        on_progress=count,
    )


def target(xcache: Loopback) -> XCacheTarget:
    return XCacheTarget("one", xcache.cache_url, xcache.namespace)


def uses(xcache: Loopback, name: str) -> int:
    """How often the cache was asked for `name`, by its own record."""
    return cinfo.read(xcache.namespace / f"{name[1:]}.cinfo").n_accesses


def whole(xcache: Loopback, name: str) -> bool:
    return (xcache.namespace / name[1:]).read_bytes() == (xcache.origin_root / name[1:]).read_bytes()


def errors(journal: Journal) -> dict[str, str]:
    return {row["did"][2:]: row["error"] or "" for row in journal.reports.receipts()}


def test_each_fault_of_a_file_is_told_in_its_receipt(xcache: Loopback, journal: Journal) -> None:
    good, stale, changed, closed = files(xcache, "receipt", 4)
    xcache.add_file(ODD, b"odd" * 1000)
    xcache.add_file("/store/mc/empty.root", b"")
    target(xcache).prefetch(stale, timeout_s=20)
    for name in (stale, changed):
        xcache.add_file(name, os.urandom(SIZE + 1000))
    (xcache.origin_root / closed[1:]).chmod(0)
    plan = [item(name) for name in (good, changed, closed, "/store/mc/none.root")]
    plan += [
        item(stale, size_bytes=SIZE + 1000),
        item(ODD, size_bytes=3000),
        item("/store/mc/empty.root", size_bytes=0),
    ]
    summary = run(xcache, journal, plan)
    assert (summary.pushed, summary.failed, summary.stopped) == (3, 4, None)
    by_name = errors(journal)
    assert not any(by_name[name] for name in (good, ODD, "/store/mc/empty.root"))
    assert "the cache holds a complete file of 300000 bytes" in by_name[stale]
    assert "its source has a file of 301000 bytes" in by_name[changed]
    assert "not authorised" in by_name[closed] and "no such file" in by_name["/store/mc/none.root"]
    assert journal.reports.faults("one") == {"file": 4}
    assert whole(xcache, good) and whole(xcache, ODD)
    assert [uses(xcache, name) for name in (good, ODD)] == [1, 1]


def test_a_cache_that_restarts_mid_push_loses_and_repeats_nothing(xcache: Loopback, journal: Journal) -> None:
    names = files(xcache, "restart", 24)
    plan = [item(name, rank=rank) for rank, name in enumerate(names)]
    summary = run(xcache, journal, plan, at_item=(8, xcache.restart_cache), attempts=9)
    while summary.stopped is not None:
        summary = run(xcache, journal, [], attempts=9)
    assert states(journal) == {"done": 24}
    assert all(whole(xcache, name) for name in names)
    # Only what was under way may have been asked for again.
    assert sum(uses(xcache, name) for name in names) <= 24 + 2 * LIMITS.parallel
    assert (run(xcache, journal, []).pushed, journal.reports.faults("one")) == (0, {})


def test_an_origin_that_dies_mid_push_is_left_alone_until_reconsidered(
    xcache: Loopback, journal: Journal
) -> None:
    names = files(xcache, "origin", 24)
    plan = [item(name, rank=rank) for rank, name in enumerate(names)]
    summary = run(xcache, journal, plan, at_item=(4, xcache.origin.stop), parallel=2, attempts=9)
    try:
        assert summary.stopped is None and summary.failed == 0 and 4 <= summary.pushed < len(names)
        (left,) = summary.left_alone
        assert left.startswith("the cache's own origin: ") and "s wasted" in left
        assert states(journal)["planned"] == 24 - summary.pushed
        assert journal.reports.faults("one").keys() == {"source"}
        text = "\n".join(errors(journal).values())
        # A cache that is slow to give up lets its client time out, and answers on another connection.
        assert re.search("connection (refused|error)|waits for the origin", text, re.IGNORECASE), text
        # Held files do not need the origin.
        pin = dataclasses.replace(item(names[0], "pin"), kind=PREFILL)
        beside = [dataclasses.replace(pin, as_of_s=AS_OF_S + 1)]
        assert run(xcache, journal, beside, touch_every_s=0).pushed == 1
    finally:
        xcache.origin.start()
    time.sleep(6)  # the cache looks for its origin again after `XRD_STREAMERRORWINDOW`
    later = run(xcache, journal, [], later_s=RECONSIDER_S + 60, attempts=9)
    # Two were under way when the origin died: they may have been whole, and then are not pushed again.
    assert 24 - summary.pushed - 2 <= later.pushed <= 24 - summary.pushed
    assert later.left_alone == ()
    assert states(journal) == {"done": 25} and all(whole(xcache, name) for name in names)


def test_a_silent_origin_holds_up_its_own_files_only(xcache: Loopback, journal: Journal) -> None:
    (held,) = files(xcache, "held", 1)
    (slow,) = files(xcache, "slow", 1)
    target(xcache).prefetch(held, timeout_s=20)
    assert xcache.origin.pid is not None
    with commands.held(xcache.origin.pid):
        plan = [item(slow, rank=1), item(held, rank=2)]
        summary = run(xcache, journal, plan, timeout_s=2, attempts=1)
        assert (summary.failed, summary.already_done, summary.stopped) == (1, 1, None)
        assert "the cache itself answers: it waits for the origin" in errors(journal)[slow]
        again = run(xcache, journal, [item(held, "pin", size_bytes=0)], touch_every_s=0)
        assert again.pushed == 1
    assert run(xcache, journal, [item(slow)], timeout_s=4, attempts=9).pushed == 1
    assert whole(xcache, slow)


def test_an_origin_that_trickles_holds_no_slot_and_is_left_alone(journal: Journal) -> None:
    """At 20 000 bytes a second blocks come, but no file in time."""
    with (
        open_folder() as folder,
        trickling_proxy.door() as door,
        loopback(folder / "lb", more=f"pss.origin 127.0.0.1:{door.port}\n") as xcache,
    ):
        door.upstream = xcache.origin.port
        (held,) = files(xcache, "held", 1)
        target(xcache).prefetch(held, timeout_s=20)
        door.bytes_per_s = 20_000
        slow = files(xcache, "trickle", 12)
        plan = [dataclasses.replace(item(name, rank=n), source="o:1094") for n, name in enumerate(slow)]
        plan.append(item(held, rank=99))
        first = run(xcache, journal, plan, parallel=3, timeout_s=1, attempts=9)
        assert (first.already_done, first.pushed, first.failed, first.stopped) == (1, 0, 0, None)
        (left,) = first.left_alone
        n_tried = sum(row["attempts"] for row in journal.reports.receipts() if row["error"])
        assert left.startswith(f"o:1094: {n_tried} of {n_tried} tries failed") and 5 <= n_tried <= 7
        assert journal.reports.faults("one") == {"source": n_tried}
        # Some 4 s on an idle machine: the client library looks at its limits each second, and then the
        # cache is asked whether it lives. A file takes at least 15 s to come.
        assert max(row["seconds"] for row in journal.reports.receipts()) < 12
        door.bytes_per_s = None
        later = run(xcache, journal, [], later_s=RECONSIDER_S + 60, attempts=9)
        assert (later.pushed + later.already_done, later.left_alone) == (12, ())
        assert all(whole(xcache, name) for name in slow)


def test_a_slow_origin_is_told_from_a_silent_cache(xcache: Loopback, journal: Journal) -> None:
    (name,) = files(xcache, "frozen", 1)
    assert xcache.cache.pid is not None
    with commands.held(xcache.cache.pid):
        summary = run(xcache, journal, [item(name)], timeout_s=1, breaker=1, attempts=9)
        assert summary.stopped is not None and "was unavailable" in summary.stopped
        assert journal.reports.faults("one") == {"cache": 1}
    assert run(xcache, journal, []).pushed == 1


@pytest.mark.every_version
def test_evict_waits_for_the_guard_of_a_server_that_removes_open_files(
    xcache: Loopback, journal: Journal
) -> None:
    (name,) = files(xcache, "guard", 1)
    real = target(xcache)
    real.prefetch(name, timeout_s=20)
    assert eventually(lambda: has_ended(real, name))
    n_kept = int(real.removes_open_files())
    assert run(xcache, journal, [item(name, "evict")], evict_guard_s=600).failed == n_kept
    if n_kept:
        assert "would remove it from under a job" in errors(journal)[name] and whole(xcache, name)
        assert run(xcache, journal, [item(name, "evict")], evict_guard_s=600, later_s=700).pushed == 1
    assert real.confirm(name).held is None


@contextlib.contextmanager
def opened(xcache: Loopback, name: str, *, read: bool = False) -> Iterator[None]:
    """A job has a file open while the block runs, and can read all of it at the end."""
    with RemoteFile(f"{xcache.cache_url}/{name}", time.monotonic() + 120) as job:
        if read:
            job.read_all()
        yield
        assert job.read_all() == (xcache.origin_root / name[1:]).stat().st_size


@contextlib.contextmanager
def fetched(xcache: Loopback, name: str) -> Iterator[None]:
    """A push prefetches a file, and is between two of its requests while the block runs."""
    with RemoteFile(f"{xcache.cache_url}/{name}", time.monotonic() + 120) as remote:
        remote.read_parts([(0, 1)])
        yield
        remote.read_parts((offset, 1) for offset in range(0, SIZE, BLOCK_BYTES))
        time.sleep(0.5)


@pytest.mark.every_version
@pytest.mark.parametrize("use", ["opened", "read", "prefetched"])
def test_a_file_in_use_stays(xcache: Loopback, journal: Journal, use: str) -> None:
    """Held before, so that its record may not show who has it open; a server that keeps it needs no guard."""
    (name,) = files(xcache, f"use-{use}", 1)
    if use != "prefetched":
        target(xcache).prefetch(name, timeout_s=20)
    during = fetched(xcache, name) if use == "prefetched" else opened(xcache, name, read=use == "read")
    guard_s = 600 if target(xcache).removes_open_files() else 0
    with during:
        plan = [item(name, "evict", size_bytes=0)]
        summary = run(xcache, journal, plan, evict_guard_s=guard_s, breaker=1)
        assert (summary.failed, summary.stopped) == (1, None), summary
        assert (xcache.namespace / name[1:]).exists()
    assert journal.reports.faults("one") == {"file": 1} and whole(xcache, name)


class OpenedMeanwhile(XCacheTarget):
    """A cache of which a job opens each file between the question whether it is in use and the command."""

    job: contextlib.ExitStack
    xcache: Loopback

    def evict(self, name: str, *, timeout_s: float) -> None:
        self.job.enter_context(opened(self.xcache, name))
        super().evict(name, timeout_s=timeout_s)


@pytest.mark.every_version
def test_a_file_opened_between_question_and_command_stays_where_the_server_keeps_it(
    xcache: Loopback, journal: Journal
) -> None:
    (name,) = files(xcache, "between", 1)
    cache = OpenedMeanwhile("one", xcache.cache_url, xcache.namespace)
    cache.prefetch(name, timeout_s=20)
    assert eventually(lambda: has_ended(cache, name))
    journal.plans.record_plan([item(name, "evict")], now_s=time.time())
    with contextlib.ExitStack() as cache.job:
        cache.xcache = xcache
        summary = push(cache, journal, cache="one", limits=LIMITS)
        keeps = not cache.removes_open_files()
        assert (summary.failed, (xcache.namespace / name[1:]).exists()) == (int(keeps), keeps)


def test_a_full_disk_is_the_caches_fault_and_nothing_is_called_done(journal: Journal) -> None:
    with (
        open_folder() as folder,
        memory_disk(folder / "lb" / "ns", 24 * MIB),
        loopback(folder / "lb") as xcache,
    ):
        names = files(xcache, "full", 8, 6_000_000)
        plan = [item(name, rank=n, size_bytes=6_000_000) for n, name in enumerate(names)]
        summary = run(xcache, journal, plan, parallel=1, timeout_s=2, attempts=1, breaker=2)
        assert summary.stopped is not None and "does not confirm it" in summary.stopped
        assert (summary.failed, states(journal)["planned"]) == (2, 6 - summary.pushed)
        assert journal.reports.faults("one") == {"cache": 2}
        done = [row["did"][2:] for row in journal.reports.receipts() if row["state"] == "done"]
        assert done and all(whole(xcache, name) for name in done)
        assert any("of 6000000 bytes on disk (cinfo)" in error for error in errors(journal).values())


def pushed_by(folder: Path, xcache: Loopback, keytab: Path) -> subprocess.CompletedProcess[str]:
    """What a push of a process of its own answers, which logs in by `keytab`."""
    conf = folder / "site.toml"
    conf.write_text(
        f'[tables]\nroot = "{folder}/tables"\n[push]\njournal = "{folder}/journal.db"\nretry_after = "0s"\n'
        f'[caches.one]\nname = "one"\nkind = "xcache"\nurl = "{xcache.cache_url}"\ncapacity = "1GB"\n'
        f'namespace = "{xcache.namespace}"\nevict_guard = "0s"\nkeytab = "{keytab}"\n'
    )
    words = [*commands.COMMAND, "push", "resume", "--cache", "one", "--json", "--conf", str(conf)]
    return subprocess.run(words, capture_output=True, text=True, timeout=600, check=False)


def test_a_login_by_keytab_and_one_with_a_wrong_key(journal: Journal, tmp_path: Path) -> None:
    with open_folder() as folder:
        right, wrong = tmp_path / "right.keytab", tmp_path / "wrong.keytab"
        for path in (right, wrong):
            make_keytab(path)
        server_key, rights = folder / "server.keytab", folder / "authdb"
        shutil.copy(right, server_key)
        server_key.chmod(0o600)
        if os.geteuid() == 0:
            shutil.chown(server_key, "xrootd")
        rights.write_text("u pusher /xrdpfc_command rl /store rl\n")
        security = (
            f"xrootd.seclib libXrdSec.so\nsec.protocol sss -s {server_key}\nsec.protbind * only sss\n"
            f"ofs.authorize 1\nacc.authdb {rights}\n"
        )
        with loopback(folder / "lb", more=security) as xcache:
            (name,) = files(xcache, "sss", 1)
            journal.plans.record_plan([item(name)], now_s=time.time())
            refused = pushed_by(tmp_path, xcache, wrong)
            assert "1 items failed" in refused.stderr and '"pushed": 0' in refused.stdout
            assert states(journal) in ({"planned": 1}, {"failed": 1})
            assert "authentication failed" in errors(journal)[name] and journal.reports.faults("one") == {
                "cache": 1
            }
            journal.plans.record_plan([item(name)], now_s=time.time())
            done = pushed_by(tmp_path, xcache, right)
            assert done.returncode == 0 and whole(xcache, name), done.stderr
            assert eventually(lambda: has_ended(target(xcache), name))
            journal.plans.record_plan([item(name, "evict")], now_s=time.time())
            done = pushed_by(tmp_path, xcache, right)
            assert done.returncode == 0 and '"pushed": 1' in done.stdout, done.stderr
            right.chmod(0o640)
            open_to_all = pushed_by(tmp_path, xcache, right)
            assert open_to_all.returncode == 1 and "chmod 0600" in open_to_all.stderr


def make_keytab(path: Path) -> None:
    command = ["xrdsssadmin", "-k", "cachecast", "-u", "pusher", "-g", "pushers", "add", str(path)]
    subprocess.run(command, input="y\n", text=True, check=True, capture_output=True)
    path.chmod(0o600)
