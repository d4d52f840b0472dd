"""What a namespace is worth as a cache's word: unmounted, another cache's, damaged, with a wrong clock."""

import os
import shutil
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pushes
import pytest
from daemons import open_folder
from waiting import eventually
from xcache_server import has_ended

from features.common.errors import InputError, TargetUnavailable
from jobs.local_site.local.xrootd import Loopback, loopback
from prefetch.journal.journal import Item, Journal
from prefetch.xcache.client import XCacheTarget

pytestmark = [pytest.mark.service, pytest.mark.xrootd, pytest.mark.usefixtures("xrootd")]
SIZE = 300_000
run = partial(pushes.run, cache="xc", timeout_s=10)


@pytest.fixture
def site(xcache: Loopback) -> Iterator[Loopback]:
    """A cache without a file; what a test stops or hides is there again after it."""
    yield xcache
    for daemon in (xcache.origin, xcache.cache):
        if daemon.pid is None:
            daemon.start()
    for name in [entry.name for entry in target_of(xcache).inventory()]:
        target_of(xcache).evict(name, timeout_s=10)
    eventually(lambda: not any(xcache.namespace.rglob("*.root.cinfo")), 10)


def target_of(site: Loopback, namespace: Path | None = None) -> XCacheTarget:
    return XCacheTarget("xc", site.cache_url, namespace or site.namespace)


def held(site: Loopback, what: str, n_files: int) -> list[str]:
    """So many files, in the cache."""
    names = [f"/store/mc/{what}{number}.root" for number in range(n_files)]
    target = target_of(site)
    for name in names:
        site.add_file(name, os.urandom(SIZE))
        target.prefetch(name, timeout_s=20)
    assert eventually(lambda: all(has_ended(target, name) for name in names))
    return names


def evicted(site: Loopback, *names: str) -> None:
    """Let the cache drop files; those that it still has in hand go when asked again."""

    def are_gone() -> bool:
        there = [name for name in names if (site.namespace / f"{name[1:]}.cinfo").exists()]
        for name in there:
            target_of(site).evict(name, timeout_s=10)
        return not there

    assert eventually(are_gone)


def item(name: str, action: str) -> Item:
    return pushes.item_of(f"{action}{name}", "xc", name, action, as_of_s=pushes.AS_OF_S)


def errors(journal: Journal) -> set[str]:
    return {row["error"] for row in journal.reports.receipts() if row["error"]}


@pytest.mark.parametrize("is_running", [True, False])
@pytest.mark.parametrize("action", ["evict", "pin"])
def test_an_empty_folder_confirms_no_eviction_and_loses_no_pin(
    site: Loopback, journal: Journal, tmp_path: Path, action: str, is_running: bool
) -> None:
    names = held(site, "unmounted", 10)
    empty = target_of(site, tmp_path)
    if not is_running:
        site.cache.stop()
    summary = run(empty, journal, [item(name, action) for name in names])
    assert (summary.pushed, summary.already_done, summary.failed) == (0, 0, 0)
    assert summary.stopped is not None and journal.reports.counts()["planned"] == 10
    if is_running:
        assert any("mount the disk" in error for error in errors(journal))
        assert all((site.namespace / f"{name[1:]}.cinfo").exists() for name in names)


def test_a_pin_is_kept_while_its_folder_is_unmounted(
    site: Loopback, journal: Journal, tmp_path: Path
) -> None:
    names = held(site, "kept", 3)
    assert run(target_of(site), journal, [item(name, "pin") for name in names]).failed == 0
    time.sleep(1.1)
    run(target_of(site, tmp_path), journal, touch_every_s=1)
    assert {pin.name for pin in journal.reports.pins("xc", now_s=time.time())} == set(names)
    evicted(site, names[0])
    run(target_of(site), journal, touch_every_s=1)
    assert {pin.name for pin in journal.reports.pins("xc", now_s=time.time())} == set(names[1:])


def test_an_eviction_is_confirmed_by_the_server_also_with_its_origin_down(
    site: Loopback, journal: Journal
) -> None:
    names = held(site, "gone", 2)
    site.origin.stop()
    assert run(target_of(site), journal, [item(name, "evict") for name in names]).pushed == 2
    assert {row["confirmed_by"] for row in journal.reports.receipts()} == {"stat"}
    assert target_of(site).confirm(names[0]).held is None


def test_the_inventory_of_an_empty_folder_needs_the_servers_word(site: Loopback, tmp_path: Path) -> None:
    empty = target_of(site, tmp_path)
    assert list(empty.inventory()) == [], "a new cache"
    names = held(site, "expected", 3)
    with pytest.raises(TargetUnavailable, match="does not show it: mount the disk"):
        list(empty.inventory(names))
    assert {file.name for file in target_of(site).inventory([*names, "/store/mc/purged.root"])} == set(names)
    site.cache.stop()
    for target in (empty, target_of(site)):
        with pytest.raises(TargetUnavailable, match="does not answer"):
            list(target.inventory())


def test_the_namespace_of_another_cache_is_none_of_ours(site: Loopback, tmp_path: Path) -> None:
    names = held(site, "copied", 4)
    shutil.copytree(site.namespace, tmp_path / "ns")
    (tmp_path / "ns/store/mc/copied0.root.cinfo").rename(tmp_path / "ns/store/mc/other.root.cinfo")
    other = target_of(site, tmp_path / "ns")
    assert len(list(other.inventory())) == 4, "a file that has just gone is no sign"
    evicted(site, *names[1:])
    with pytest.raises(TargetUnavailable, match="does not hold 4 of 4 files"):
        list(other.inventory())


def test_a_file_with_a_damaged_record_is_there(site: Loopback, journal: Journal) -> None:
    cut, empty, well = held(site, "damaged", 3)
    records = {name: site.namespace / f"{name[1:]}.cinfo" for name in (cut, empty)}
    records[cut].write_bytes(records[cut].read_bytes()[:60])
    records[empty].write_bytes(b"")
    os.utime(records[empty], (1, 1))
    target = target_of(site)
    listed = {entry.name: entry.unreadable for entry in target.inventory([cut, empty, well])}
    assert listed == {cut: True, empty: True, well: False}
    assert all(target.confirm(name).held is not None for name in listed)
    summary = run(target, journal, [item(name, "prefetch") for name in (cut, empty)])
    assert (summary.failed, summary.stopped) == (2, None)
    assert all("is damaged" in error for error in errors(journal)) and journal.reports.faults("xc") == {
        "file": 2
    }


def test_a_pin_with_a_damaged_record_is_kept(site: Loopback, journal: Journal) -> None:
    (name,) = held(site, "pinned", 1)
    run(target_of(site), journal, [item(name, "pin")])
    record = site.namespace / f"{name[1:]}.cinfo"
    record.write_bytes(record.read_bytes()[:60])
    time.sleep(1.1)
    summary = run(target_of(site), journal, touch_every_s=1)
    assert summary.stopped is None and [
        pin.name for pin in journal.reports.pins("xc", now_s=time.time())
    ] == [name]


def test_a_folder_that_cannot_be_read_is_not_passed_over(
    site: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    held(site, "closed", 1)

    def scandir(path: str) -> object:
        if path.endswith("/mc"):
            raise PermissionError(13, "Permission denied")
        return real(path)

    real = os.scandir
    with monkeypatch.context() as patched:
        # Root, who runs some of these tests, may read every folder.
        patched.setattr(os, "scandir", scandir)
        with pytest.raises(InputError, match="run as the cache's user"):
            list(target_of(site).inventory())


@pytest.mark.every_version
@pytest.mark.parametrize(
    ("shift_s", "reason"), [(-660, "behind ours"), (660, "ahead of ours"), (-30, "used")]
)
def test_a_wrong_clock_frees_no_file_that_the_guard_keeps(
    clock_shift: Path, journal: Journal, monkeypatch: pytest.MonkeyPatch, shift_s: int, reason: str
) -> None:
    monkeypatch.setenv("LD_PRELOAD", str(clock_shift))
    monkeypatch.setenv("CLOCK_SHIFT_S", str(shift_s))
    with open_folder() as folder, loopback(folder / "lb") as site:
        (name,) = held(site, "used", 1)
        assert target_of(site).clock_skew_s() == pytest.approx(shift_s, abs=2)
        detached_s = target_of(site).confirm(name).held.last_detach_s
        assert detached_s == pytest.approx(time.time() + shift_s, abs=5), "records carry that clock"
        summary = run(target_of(site), journal, [item(name, "evict")], evict_guard_s=20)
        if target_of(site).removes_open_files():
            assert summary.failed == 1 and all(reason in error for error in errors(journal))
        else:
            assert summary.pushed == 1, "nobody has it open, and no clock is asked"
        assert (site.namespace / name[1:]).exists() == target_of(site).removes_open_files()
