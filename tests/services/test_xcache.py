"""A push to a real XCache: what it does to the cache's disk, seen from cinfo, the g-stream and the origin."""

import socket
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pushes
import pytest
import xcache_server
from captures import read_capture
from daemons import needed
from waiting import eventually

from features.common.errors import PushRejected, ServiceError, TargetUnavailable
from jobs.ground.settings.tree import Settings
from jobs.local_site.local.xrootd import Loopback, loopback
from jobs.operator.operate import doctor
from prefetch.journal.journal import Item, Journal
from prefetch.xcache.client import XCacheTarget
from prefetch.xcache.namespace import server_count

pytestmark = [
    *(pytest.mark.service, pytest.mark.xrootd, pytest.mark.every_version),
    pytest.mark.usefixtures("xrootd"),
]
MIB = 2**20
BASE, NOMINAL, MAXIMUM = 6 * MIB, 8 * MIB, 10 * MIB
run = partial(pushes.run, cache="xc")


@pytest.fixture(scope="module")
def site(xrootd: str) -> Iterator[tuple[Loopback, Path]]:
    yield from needed("a real XCache", xcache_server.running(files_limit=(BASE, NOMINAL, MAXIMUM)))


def item(name: str, action: str, rank: int = 1) -> Item:
    return pushes.item_of(f"{action}{name}", "xc", name, action, as_of_s=pushes.AS_OF_S, rank=rank)


def target_of(site: tuple[Loopback, Path]) -> XCacheTarget:
    return XCacheTarget("xc", site[0].cache_url, site[0].namespace)


def confirmed_by(journal: Journal, action: str) -> str:
    (by,) = [row["confirmed_by"] for row in journal.reports.receipts() if row["action"] == action]
    return str(by)


def test_prefetch_is_seen_in_cinfo_and_in_the_stream(site: tuple[Loopback, Path], journal: Journal) -> None:
    names = [f"/store/mc/seen{number}.root" for number in range(8)]
    for name in [*names, "/store/mc/zero.root"]:
        site[0].add_file(name, b"" if "zero" in name else b"x" * 300_000)
    names_asked = [*names, "/store/mc/zero.root", "/store/mc/missing.root"]
    target = target_of(site)
    summary = run(target, journal, [item(name, "prefetch", rank) for rank, name in enumerate(names_asked)])
    assert (summary.pushed, summary.failed, summary.bytes_fetched) == (9, 1, 2_400_000)
    (failed,) = [row for row in journal.reports.receipts() if row["state"] == "failed"]
    assert failed["did"] == "t:/store/mc/missing.root" and "no such file" in failed["error"]
    held = {entry.name: entry for entry in target.inventory()}
    assert all(held[name].complete for name in names_asked[:-1])
    assert eventually(
        lambda: {r.lfn for r in read_capture(site[1]).records if r.complete} >= set(names_asked[:-1])
    )
    events = [record for record in read_capture(site[1]).records if record.lfn in names]
    # A byte asked per block is a byte counted per block, while whole blocks came over the WAN.
    assert all((event.b_hit + event.b_miss, event.n_blks) == (3, 3) and event.is_ours for event in events)
    again = run(target, journal)
    assert (again.pushed, again.already_done, again.bytes_fetched) == (0, 0, 0)


def test_the_server_alone_confirms_where_cinfo_cannot_be_read(
    site: tuple[Loopback, Path], journal: Journal
) -> None:
    original = site[0].add_file("/store/mc/far.root", b"x" * 300_000)
    far = XCacheTarget("xc", site[0].cache_url, gstream=site[1])
    summary = run(far, journal, [item("/store/mc/far.root", "prefetch")], timeout_s=60.0)
    by = "stat" if far.server_version().stat_tells_whole else "gstream"
    assert (summary.pushed, confirmed_by(journal, "prefetch")) == (1, by)
    assert eventually(lambda: xcache_server.has_ended(target_of(site), "/store/mc/far.root"))
    summary = run(far, journal, [item("/store/mc/far.root", "evict")])
    assert (summary.pushed, confirmed_by(journal, "evict")) == (1, "stat")
    assert not (site[0].namespace / "store/mc/far.root").exists() and original.exists()


def test_the_doctor_tells_the_version_and_what_it_changes(
    site: tuple[Loopback, Path], xrootd: str, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        other = f"root://127.0.0.1:{silent.getsockname()[1]}"
        conf = tmp_path / "conf.toml"
        conf.write_text(
            "".join(
                f'[caches.{name}]\nname = "{name}"\nkind = "xcache"\nurl = "{url}"\ncapacity = "1GB"\n'
                for name, url in (("xc", site[0].cache_url), ("other", other))
            )
        )
        settings = Settings.load(conf, tables=str(tmp_path / "tables"), env={})
        checks = {check.part: check for check in doctor.run(settings)}
    of_cache = checks["cache xc"]
    assert of_cache.state == "ok" and f"XRootD {xrootd}: " in of_cache.detail
    assert ("removes open files" in of_cache.detail) == target_of(site).removes_open_files()
    assert (
        checks["cache other"].state == "bad" and "does not tell its version" in checks["cache other"].detail
    )


def test_a_cache_that_is_down_fails_fast_and_nothing_is_lost(
    site: tuple[Loopback, Path], journal: Journal
) -> None:
    for number in range(20):
        site[0].add_file(f"/store/mc/down{number}.root", b"x" * 1000)
    target = target_of(site)
    items = [item(f"/store/mc/down{number}.root", "prefetch", number) for number in range(20)]
    site[0].cache.stop()
    started = time.monotonic()
    summary = run(target, journal, items, timeout_s=5.0, parallel=4)
    assert summary.stopped is not None and time.monotonic() - started < 60
    assert journal.reports.counts("xc")["planned"] == 20
    with pytest.raises(TargetUnavailable):
        target.prefetch("/store/mc/down1.root", timeout_s=5)
    site[0].cache.start()
    assert run(target, journal).pushed == 20


def test_a_path_that_is_not_exported_is_refused(site: tuple[Loopback, Path]) -> None:
    with pytest.raises(PushRejected, match="not authorised"):
        target_of(site).prefetch("/etc/passwd", timeout_s=10)


def test_a_pin_survives_the_purge_that_takes_younger_files(
    site: tuple[Loopback, Path], journal: Journal
) -> None:
    """The oldest file is pinned; a purge then takes files fetched after it, and leaves it."""
    target = target_of(site)
    for old in list(target.inventory()):
        target.evict(old.name, timeout_s=10)
    assert eventually(lambda: not any(site[0].namespace.rglob("*.root.cinfo")))
    names = [f"/store/mc/p{number:02}.root" for number in range(12)]
    for name in names:
        site[0].add_file(name, b"x" * MIB)
    pinned, older, younger = names[0], names[1:6], names[6:]

    def fetch(some: list[str]) -> None:
        for name in some:
            target.prefetch(name, timeout_s=60)
            assert eventually(partial(xcache_server.has_ended, target, name))
        time.sleep(1.1)  # it tells times of use to the second

    fetch([pinned])
    fetch(older)
    summary = run(target, journal, [item(pinned, "pin")], touch_every_s=1)
    assert summary.pushed == 1
    time.sleep(1.1)
    fetch(younger)
    # A purge spares what was opened since the last one; a restarted cache purges at once and spares nothing.
    site[0].restart_cache()
    assert eventually(lambda: len(list(target.inventory())) < len(names)), "no purge came"
    time.sleep(0.5)
    gone = set(names) - {entry.name for entry in target.inventory()}
    assert pinned not in gone
    if target.server_version().stat_tells_whole:
        count = server_count(site[0].namespace)
        assert count is not None and abs(time.time() - count.at_s) < 300
        assert 6 * MIB < count.n_bytes <= len(names) * MIB, "by the server's own statistics"
    # Down to the nominal size, oldest first; what the cache has not yet let go of waits for the next purge.
    assert 0 < len(gone) <= 4 and gone <= set(older)


def test_what_does_not_start_says_why(folder_of_all: Path) -> None:
    limits = (9 * MIB, 1, 1)
    with pytest.raises(ServiceError, match="does not answer"), loopback(folder_of_all, files_limit=limits):
        pass


def test_daemons_end_with_the_block_that_raises(folder_of_all: Path) -> None:
    pids: list[int | None] = []
    with pytest.raises(ZeroDivisionError), loopback(folder_of_all) as running:
        pids = [running.origin.pid, running.cache.pid]
        raise ZeroDivisionError
    assert len(pids) == 2 and not any(Path(f"/proc/{pid}").exists() for pid in pids)
