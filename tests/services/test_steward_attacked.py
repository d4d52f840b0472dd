"""A steward beside a real XCache while somebody lies to it, or somebody made a mistake: what stays on disk.

Anybody on the collector's host can send it datagrams. What promises are measured by is the disk.
"""

from __future__ import annotations

import dataclasses
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from daemons import needed
from monitoring import Sender, close, opening
from steward_site import CAPACITY, MIB, Site, eventually, memory_disk, name_of, read_at, running

pytestmark = [pytest.mark.long, pytest.mark.service, pytest.mark.xrootd, pytest.mark.usefixtures("xrootd")]
N_KEPT = 15
"""A steward that has just begun keeps so many files of a MiB in a cache of 20."""
PATIENCE_S = 4.0
"""So long it is watched that nothing goes: two looks."""


def filled(site: Site, what: str, n_files: int) -> list[str]:
    """So many files that the cache holds, and has reported."""
    names = site.files(what, n_files)
    site.reported(*site.read_all(names))
    return names


def test_bytes_that_are_only_claimed_evict_nothing_and_end_no_steward(site: Site) -> None:
    """80 closes say that there are files of a MiB each; one, that a file has 2^60 bytes; 8 more, of 2^62."""
    names = filled(site, "a", 12)
    steward = site.steward()
    us, now_s = Sender.heard(site.captures), int(time.time())
    closes = [close(f"/store/mc/forged{number}.root", MIB, now_s) for number in range(80)]
    site.forge(*(us.gstream(*closes[at : at + 20], ahead=1 + at // 20) for at in range(0, 80, 20)))
    assert not eventually(lambda: len(site.held()) < len(names), PATIENCE_S), "80 plausible closes"
    absurd = [close(f"/store/mc/absurd{n}.root", 2**62, now_s) for n in range(8)]
    site.forge(us.gstream(close(names[0], 2**60, now_s), *absurd, ahead=5))
    assert not eventually(lambda: len(site.held()) < len(names), PATIENCE_S), "absurd closes"
    site.stop(steward)
    assert steward.returncode == 0, site.log("steward")[-500:]


def alarmed(site: Site, alarm: str) -> bool:
    """Whether the steward raises an alarm."""
    return site.figures_file.exists() and alarm in site.figures.alarms


def the_oldest_is_open(site: Site, what: str, meanwhile: Callable[[], None]) -> str:
    """A job opens the file that was read first, then 24 more come; why that one is gone, or nothing.

    The steward sees no other process's files: only reports tell that it is open.
    """
    names = filled(site, what, 6) + site.files(f"{what}-", 24)
    site.steward(sees_processes=False)
    with site.reading(names[0]):
        time.sleep(2.5)
        meanwhile()
        for name in names[6:]:
            site.read(name)
            time.sleep(0.1)
        goes = eventually(lambda: name_of(names[0]) not in site.held(), 2 * PATIENCE_S)
    return f"the file that a job reads is gone; alarms: {site.figures.alarms}" if goes else ""


def test_reports_of_another_server_free_no_open_file(site: Site) -> None:
    """It is not in the configuration, and has the same name."""

    def meanwhile() -> None:
        with site.second_cache() as other:
            read_at(other, "/store/mc/other.root")
            time.sleep(2.5)

    assert not the_oldest_is_open(site, "b", meanwhile)


@pytest.mark.parametrize(
    "begins_anew", [False, pytest.param(True, marks=pytest.mark.verify)], ids=["at work", "begins anew"]
)
def test_the_own_server_is_heard_after_reports_of_others(site: Site, begins_anew: bool) -> None:
    """Two datagrams say that the server was started later, and at another port; an alarm says when."""
    names = filled(site, "d", 2)
    steward = site.steward()
    us = Sender.heard(site.captures)
    later = dataclasses.replace(us, stod=us.stod + 1000)
    site.forge(later.gstream(), dataclasses.replace(later, port=us.port + 1, stod=us.stod + 2000).ident())
    told = str(later.stod), str(us.stod + 2000)
    alarms = lambda: " ".join(site.figures.alarms.values())  # noqa: E731
    assert eventually(lambda: any(stod in alarms() for stod in told)), site.figures
    if begins_anew:
        site.stop(steward)
        site.steward()
    names += site.files("e", 17)
    for name in names[2:]:
        site.read(name)
    assert eventually(lambda: len(site.held()) <= N_KEPT), f"{len(site.held())} files, {site.figures.alarms}"


def test_opens_that_nobody_made_hold_no_file(site: Site) -> None:
    """All old files are said to be open, until the far future too: the new ones must not go for them."""
    names = filled(site, "n", 12) + site.files("o", 7)
    site.steward()
    time.sleep(2 * PATIENCE_S)
    us, now_s = Sender.heard(site.captures), int(time.time())
    for number in range(20):
        opens = [opening(1000 * number + at, name, size=MIB) for at, name in enumerate(names[:12])]
        site.forge(us.fstream(number, 2**31 - 1 if number % 2 else now_s, *opens))
    time.sleep(PATIENCE_S)
    for name in names[12:]:
        site.read(name)
    assert eventually(lambda: len(site.held()) <= N_KEPT), f"{len(site.held())} files, {site.figures.alarms}"
    assert {name_of(name) for name in names[12:]} <= site.held(), "new files went before old ones"


def test_names_that_break_the_reports_of_their_reads_silence_no_steward(site: Site) -> None:
    """A server writes a name with a quotation mark as it is, so that its report is no JSON."""
    site.reported(*site.read_all(site.files("p", 1)))
    site.read_all(site.files('q"', 13))
    site.steward()
    site.read_all(site.files('r"', 5))
    assert eventually(lambda: len(site.held()) <= N_KEPT), f"{len(site.held())} files, {site.figures.alarms}"
    assert eventually(lambda: "steward-blind" not in site.figures.alarms), site.figures


def stopped(site: Site) -> None:
    """The collector has its lock, and writes nothing."""
    site.collector.send_signal(signal.SIGSTOP)


def full(site: Site) -> None:
    """The collector's folder is full; datagrams are counted and dropped."""
    site.stop(site.collector)
    site.configure(quota="1B")
    site.collector = site.collect()


def elsewhere(site: Site) -> None:
    """The collector listens where the server does not send to."""
    site.stop(site.collector)
    site.collector = site.collect(site.port + 1)


@pytest.fixture
def deafened(xrootd: str) -> Iterator[Site]:
    """A cache of its own: a server whose collector was away may report nothing for the rest of its life."""
    yield from needed("a real XCache", running())


@pytest.mark.parametrize(
    "deafen", [stopped, *(pytest.param(one, marks=pytest.mark.verify) for one in (full, elsewhere))]
)
def test_while_no_report_comes_nothing_goes(deafened: Site, deafen: Callable[[Site], None]) -> None:
    """Nobody reports that a job has opened the oldest file."""
    site = deafened
    names = filled(site, "f", 19)
    deafen(site)
    with site.reading(names[0]):
        steward = site.steward(sees_processes=False, began=False)
        goes = eventually(lambda: len(site.held()) < len(names), 3 * PATIENCE_S)
        assert not goes, f"{len(site.held())} files; the open one is {name_of(names[0]) in site.held()}"
        assert eventually(lambda: steward.poll() is not None or alarmed(site, "steward-blind"))


@pytest.fixture
def nameless(xrootd: str) -> Iterator[Site]:
    """The monitoring line of the server has no `lfn`."""
    yield from needed("a real XCache", running(names_files=False))


def test_opens_without_names_free_no_open_file(nameless: Site) -> None:
    assert not the_oldest_is_open(nameless, "g", lambda: None)
    assert eventually(lambda: alarmed(nameless, "steward-blind"))


def test_a_capacity_ten_times_too_small_empties_no_cache(site: Site) -> None:
    names = filled(site, "h", 19)
    site.configure(capacity_bytes=CAPACITY // 10)
    site.steward()
    assert not eventually(lambda: len(site.held()) < len(names) - 2, PATIENCE_S), site.held()
    assert eventually(lambda: alarmed(site, "steward-implausible"))
    assert "capacity" in site.figures.alarms["steward-implausible"]


def test_without_the_journal_that_has_the_pins_no_pin_goes(site: Site) -> None:
    names = filled(site, "i", 19)
    site.pin(*names[:3])
    elsewhere = site.folder / "elsewhere.db"
    site.configure(journal=str(elsewhere))
    site.steward(began=False)
    pinned = {name_of(name) for name in names[:3]}
    assert not eventually(lambda: not pinned <= site.held(), 2 * PATIENCE_S), pinned - site.held()
    assert not elsewhere.exists()


def rss_mib(pid: int) -> int:
    """Memory of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) // 1024


def flood(site: Site, n_datagrams: int) -> None:
    """Opens and closes of files that nobody has, 500 and 50 a datagram."""
    us, now_s, chance = Sender.heard(site.captures), int(time.time()), random.Random(7)
    for number in range(n_datagrams):
        names = [f"/store/flood/{chance.getrandbits(64):016x}.root" for _ in range(550)]
        opens = [opening(chance.getrandbits(31), name) for name in names[:500]]
        closes = [close(name, MIB, now_s, b_miss=MIB) for name in names[500:]]
        site.forge(us.fstream(number, now_s, *opens), us.gstream(*closes, ahead=1 + number))
        time.sleep(0.01)


@pytest.mark.verify
def test_names_that_are_only_reported_take_no_memory(site: Site) -> None:
    """Neither while it runs, nor when it begins anew with the captures that the flood has left."""
    names = filled(site, "j", 10)
    steward = site.steward()
    time.sleep(2)
    before = rss_mib(steward.pid)
    flood(site, 200)
    time.sleep(PATIENCE_S)
    grown = rss_mib(steward.pid) - before
    site.stop(steward)
    again = rss_mib(site.steward().pid) - before
    assert max(grown, again) < 16, f"{grown} MiB more after 110 000 names, {again} MiB when begun anew"
    names += site.files("k", 9)
    for name in names[10:]:
        site.read(name)
    assert eventually(lambda: len(site.held()) <= N_KEPT), f"{len(site.held())} files"


@pytest.fixture
def own_disk(xrootd: str) -> Iterator[Site]:
    """The cache has a file system of 32 MiB to itself."""
    yield from needed("a real XCache on a disk of its own", running(32 * MIB))


@pytest.mark.verify
def test_a_folder_that_is_tidied_away_stops_nothing(own_disk: Site) -> None:
    """When the steward began, all files were in one folder."""
    site = own_disk
    first = [f"/store/old/{number}.root" for number in range(3)]
    for name in first:
        site.servers.add_file(name, bytes(MIB))
        site.read(name)
    site.reported(*first)
    site.steward()
    time.sleep(PATIENCE_S)
    for name in first:
        site.target.evict(name, timeout_s=20)
    folder = site.servers.namespace / "store" / "old"
    assert eventually(lambda: not list(folder.iterdir()))
    folder.rmdir()
    for name in site.files("m", 27):
        site.read(name)
    assert eventually(lambda: len(site.held()) <= 24), f"{len(site.held())} files, {site.figures.alarms}"


def test_a_disk_that_is_not_mounted_where_a_steward_begins_is_no_empty_cache(
    site: Site, tmp_path: Path
) -> None:
    """The server reported and holds files that the namespace does not show; an empty cache is one."""
    names, now_s = filled(site, "n", 7), int(time.time())
    us = Sender.heard(site.captures)
    site.forge(
        us.gstream(close("/store/../n00.root", MIB, now_s), close("/store/none.root", MIB, now_s), ahead=1)
    )
    site.reported(*names, "/store/none.root")
    site.configure(namespace=tmp_path)
    assert "mount the disk" in site.refused()
    assert eventually(site.is_emptied)
    # Anybody may report a folder of the server, or what it serves to nobody: neither is a file that it holds.
    us = Sender.heard(site.captures)
    site.forge(us.gstream(close("/store", MIB, now_s), close("/etc/passwd", MIB, now_s), ahead=2))
    site.reported("/store", "/etc/passwd")
    site.steward()


@pytest.mark.parametrize(
    "is_own", [True, pytest.param(False, marks=pytest.mark.verify)], ids=["own disk", "shared disk"]
)
def test_no_file_goes_from_another_disk_at_the_place_of_the_caches(
    is_own: bool, request: pytest.FixtureRequest
) -> None:
    """By its books the cache is full; on the disk that is there now, it is not."""
    site: Site = request.getfixturevalue("own_disk" if is_own else "site")
    filled(site, "r", 24 if is_own else 14)
    site.steward()
    time.sleep(PATIENCE_S)
    with memory_disk(site.servers.namespace, 64 * MIB):
        names = {name_of(name) for name in filled(site, "s", 8)}
        assert not eventually(lambda: not names <= site.held(), 2 * PATIENCE_S), names - site.held()
        if is_own:
            assert eventually(lambda: is_named(site, "another file system"))


def is_named(site: Site, what: str) -> bool:
    """Whether an alarm of the steward names `what`."""
    return any(what in text for text in site.figures.alarms.values())
