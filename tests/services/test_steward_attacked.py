"""A steward beside a real XCache while somebody lies to it, or somebody made a mistake: what stays on disk.

Anybody on the collector's host can send it datagrams. What promises are measured by is the disk.
bench/drill_attacker.py has many more attacks, one after the other.
"""

from __future__ import annotations

import dataclasses
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from daemons import needed
from monitoring import Sender, close
from steward_site import MIB, Site, eventually, memory_disk, name_of, running

pytestmark = [pytest.mark.long, pytest.mark.service, pytest.mark.xrootd, pytest.mark.usefixtures("xrootd")]
N_KEPT = 15
"""A steward that has just begun keeps so many files of a MiB in a cache of 20."""
PATIENCE_S = 6.0
"""So long it is watched that nothing goes: three looks."""


def filled(site: Site, what: str, n_files: int) -> list[str]:
    """So many files that the cache holds, and has reported."""
    names = site.files(what, n_files)
    site.reported(*site.read_all(names))
    return names


def alarmed(site: Site, alarm: str) -> bool:
    """Whether the steward raises an alarm."""
    return site.figures_file.exists() and alarm in site.figures.alarms


def test_the_own_server_is_heard_after_reports_of_others(site: Site) -> None:
    """Two datagrams say that the server was started later, and at another port; an alarm says when."""
    names = filled(site, "d", 2)
    site.steward()
    us = Sender.heard(site.captures)
    later = dataclasses.replace(us, stod=us.stod + 1000)
    site.forge(later.gstream(), dataclasses.replace(later, port=us.port + 1, stod=us.stod + 2000).ident())
    told = str(later.stod), str(us.stod + 2000)
    alarms = lambda: " ".join(site.figures.alarms.values())  # noqa: E731
    assert eventually(lambda: any(stod in alarms() for stod in told)), site.figures
    names += site.files("e", 17)
    for name in names[2:]:
        site.read(name)
    assert eventually(lambda: len(site.held()) <= N_KEPT), f"{len(site.held())} files, {site.figures.alarms}"


def test_names_that_break_the_reports_of_their_reads_silence_no_steward(site: Site) -> None:
    """A server writes a name with a quotation mark as it is, so that its report is no JSON."""
    site.reported(*site.read_all(site.files("p", 1)))
    site.read_all(site.files('q"', 13))
    site.steward()
    site.read_all(site.files('r"', 5))
    assert eventually(lambda: len(site.held()) <= N_KEPT), f"{len(site.held())} files, {site.figures.alarms}"
    assert eventually(lambda: "steward-blind" not in site.figures.alarms), site.figures


@pytest.fixture
def deafened(xrootd: str) -> Iterator[Site]:
    """A cache of its own: a server whose collector was away may report nothing for the rest of its life."""
    yield from needed("a real XCache", running())


def test_while_no_report_comes_nothing_goes(deafened: Site) -> None:
    """Nobody reports that a job has opened the oldest file: the collector hangs."""
    site = deafened
    names = filled(site, "f", 19)
    site.collector.send_signal(signal.SIGSTOP)
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
    """A job opens the file that was read first, then 24 more come; no other process's files are seen."""
    site = nameless
    names = filled(site, "g", 6) + site.files("g-", 24)
    site.steward(sees_processes=False)
    with site.reading(names[0]):
        time.sleep(2.5)
        for name in names[6:]:
            site.read(name)
            time.sleep(0.1)
        assert not eventually(lambda: name_of(names[0]) not in site.held(), 2 * PATIENCE_S), site.figures
    assert eventually(lambda: alarmed(site, "steward-blind"))


@pytest.fixture
def own_disk(xrootd: str) -> Iterator[Site]:
    """The cache has a file system of 32 MiB to itself."""
    yield from needed("a real XCache on a disk of its own", running(32 * MIB))


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


def test_no_file_goes_from_another_disk_at_the_place_of_the_caches(own_disk: Site) -> None:
    """By its books the cache is full; on the disk that is there now, it is not."""
    site = own_disk
    filled(site, "r", 24)
    site.steward()
    time.sleep(PATIENCE_S)
    with memory_disk(site.servers.namespace, 64 * MIB):
        names = {name_of(name) for name in filled(site, "s", 8)}
        assert not eventually(lambda: not names <= site.held(), 2 * PATIENCE_S), names - site.held()
        is_named = lambda: any("another file system" in text for text in site.figures.alarms.values())  # noqa: E731
        assert eventually(is_named)


@pytest.fixture
def two_disks(xrootd: str) -> Iterator[Site]:
    """Links and records lie on a file system of 32 MiB, data on one of 128 (`oss.space`)."""
    site = running(128 * MIB, names_bytes=32 * MIB)
    yield from needed("a real XCache on two disks of its own", site)


def test_a_steward_that_begins_with_an_empty_cache_measures_the_disk_of_its_data(two_disks: Site) -> None:
    """Others have filled the disk of the names; the high watermark is at .4 of the other one."""
    site = two_disks
    assert eventually(site.is_emptied), site.held()
    site.steward()
    (site.servers.namespace / "others").write_bytes(bytes(30 * MIB))
    names = site.read_all(site.files("a", 36))
    assert not eventually(lambda: len(site.held()) < len(names), PATIENCE_S), site.figures.alarms
    assert eventually(lambda: not site.figures.alarms), site.figures.alarms
    more = site.read_all(site.files("b", 24))
    assert eventually(lambda: len(site.held()) <= 0.4 * 128), f"{len(site.held())}, {site.figures.alarms}"
    assert {name_of(name) for name in more} <= site.held(), "new files went before old ones"
