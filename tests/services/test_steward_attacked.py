"""A steward beside a real XCache while somebody lies to it, or its journal goes: what stays on disk."""

import dataclasses
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import postgres_server
import pytest
from daemons import needed
from monitoring import Sender, close
from steward_site import MIB, STARTS_WITHIN_S, Site, memory_disk, name_of, running
from waiting import eventually

from prefetch.steward.figures import read

pytestmark = [pytest.mark.long, pytest.mark.service, pytest.mark.xrootd, pytest.mark.usefixtures("xrootd")]
PATIENCE_S = 6.0
"""So long it is watched that nothing goes: three looks."""


def filled(site: Site, what: str, n_files: int) -> list[str]:
    """So many files that the cache holds, and has reported."""
    names = site.files(what, n_files)
    site.reported(*site.read_all(names))
    return names


def alarmed(site: Site, alarm: str) -> bool:
    """Whether the steward raises an alarm."""
    figures = read(site.figures_file)
    return figures is not None and alarm in figures.alarms


def test_the_own_server_is_heard_after_reports_of_others(site: Site) -> None:
    """Two datagrams say that the server was started later, and at another port; an alarm says when."""
    filled(site, "d", 2)
    site.steward()
    us = Sender.heard(site.captures)
    later = dataclasses.replace(us, stod=us.stod + 1000)
    site.forge(later.gstream(), dataclasses.replace(later, port=us.port + 1, stod=us.stod + 2000).ident())
    told = str(later.stod), str(us.stod + 2000)
    alarms = lambda: " ".join(site.figures.alarms.values())  # noqa: E731
    assert eventually(lambda: any(stod in alarms() for stod in told)), site.figures
    site.read_all(site.files("e", 17))
    assert site.makes_room(), f"{len(site.held())} files, {site.figures.alarms}"


def test_names_that_break_the_reports_of_their_reads_silence_no_steward(site: Site) -> None:
    """A server writes a name with a quotation mark as it is, so that its report is no JSON."""
    site.reported(*site.read_all(site.files("p", 1)))
    site.read_all(site.files('q"', 13))
    site.steward()
    site.read_all(site.files('r"', 5))
    assert site.makes_room(), f"{len(site.held())} files, {site.figures.alarms}"
    assert eventually(lambda: "steward-blind" not in site.figures.alarms), site.figures


def test_while_no_report_comes_nothing_goes() -> None:
    """Nobody reports that a job has opened the oldest file: the collector hangs.

    A cache of its own: a server whose collector was away may report nothing for the rest of its life.
    """
    with running() as site:
        names = filled(site, "f", 19)
        site.collector.send_signal(signal.SIGSTOP)
        with site.reading(names[0]):
            steward = site.steward(sees_processes=False, began=False)
            tells = lambda: steward.poll() is not None or alarmed(site, "steward-blind")  # noqa: E731
            assert eventually(tells, STARTS_WITHIN_S)
            goes = eventually(lambda: len(site.held()) < len(names), PATIENCE_S)
            assert not goes, f"{len(site.held())} files; the open one is {name_of(names[0]) in site.held()}"


def test_opens_without_names_free_no_open_file() -> None:
    """A job opens the file that was read first, then 24 more come; no other process's files are seen.

    The monitoring line of the server has no `lfn`.
    """
    with running(names_files=False) as site:
        names = filled(site, "g", 6) + site.files("g-", 24)
        site.steward(sees_processes=False)
        with site.reading(names[0]):
            time.sleep(2.5)
            for name in names[6:]:
                site.read(name)
                time.sleep(0.1)
            assert eventually(lambda: alarmed(site, "steward-blind"))
            assert not eventually(lambda: name_of(names[0]) not in site.held(), PATIENCE_S), site.figures


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


def test_no_file_goes_from_another_disk_at_the_place_of_the_caches() -> None:
    """By its books the cache is full; on the disk that is there now, it is not."""
    with running(32 * MIB) as site:  # a file system of its own
        filled(site, "r", 24)
        site.steward()
        assert eventually(lambda: " keeps: " in site.log("steward")), "it has looked at the disk"
        with memory_disk(site.servers.namespace, 64 * MIB):
            names = {name_of(name) for name in filled(site, "s", 8)}
            assert not eventually(lambda: not names <= site.held(), 2 * PATIENCE_S), names - site.held()
            is_named = lambda: any("another file system" in text for text in site.figures.alarms.values())  # noqa: E731
            assert eventually(is_named)


def test_a_steward_that_begins_with_an_empty_cache_measures_the_disk_of_its_data() -> None:
    """Links and records lie on a file system of 32 MiB, data on one of 128 (`oss.space`).

    Others have filled the disk of the names; the watermarks are at .2 and .4 of the other one. Below the low
    one nothing goes, however much arrives between two looks, and no steward evicts more than down to it.
    """
    with running(128 * MIB, names_bytes=32 * MIB) as site:
        site.steward()
        # A link and a record take 40 KiB, and what finds no room for them the server does not keep at all.
        (site.servers.namespace / "others").write_bytes(bytes(26 * MIB))
        names = site.read_all(site.files("a", 22))
        assert not eventually(lambda: len(site.held()) < len(names), PATIENCE_S), site.figures.alarms
        assert eventually(lambda: not site.figures.alarms), site.figures.alarms
        site.reported(*site.read_all(site.files("c", 10)))
        more = site.read_all(site.files("b", 22))
        assert eventually(lambda: len(site.held()) <= 0.4 * 128), f"{len(site.held())}, {site.figures.alarms}"
        assert {name_of(name) for name in more} <= site.held(), "new files went before old ones"


def test_pins_of_a_journal_that_was_put_in_the_place_of_another_are_kept(site: Site) -> None:
    """As from a backup: what is open at the old one goes on to answer, and knows nothing of what follows."""
    names = site.read_all(site.files("a", 6))
    site.steward()
    assert eventually(lambda: site.figures.held_files == 6)
    site.lose_journal()
    site.pin(*names[:3])
    assert eventually(lambda: site.knows_pins(*names[:3]))
    site.read_all(site.files("b", 12))
    assert site.makes_room(), site.held()
    assert {name_of(name) for name in names[:3]} <= site.held()
    assert {name_of(name) for name in names[3:]} - site.held()


def test_a_journal_that_is_gone_is_not_made_and_holds_up_no_eviction(site: Site) -> None:
    names = site.read_all(site.files("c", 6))
    site.pin(names[0])
    site.steward()
    site.evict(names[1])
    assert eventually(lambda: site.figures.first_files == 1)
    site.lose_journal()
    assert eventually(lambda: "steward-lists" in site.figures.alarms), site.figures
    assert eventually(lambda: site.figures.first_files == 0), "what a plan said that nobody can read"
    site.read_all(site.files("d", 12))
    assert site.makes_room(), site.held()
    assert name_of(names[0]) in site.held()
    assert not site.journal.exists()


def test_a_journal_that_loses_its_bytes_loses_no_pin(site: Site) -> None:
    names = site.files("i", 14)
    site.reported(*site.read_all(names))
    site.pin(*names[:3])
    site.steward()
    assert eventually(lambda: site.knows_pins(*names[:3]))
    for path in site.folder.glob("journal.db*"):
        os.truncate(path, 0) if path == site.journal else path.unlink()
    site.read_all(site.files("j", 10))
    assert eventually(lambda: "steward-lists" in site.figures.alarms), site.figures
    assert not eventually(lambda: not {name_of(name) for name in names[:3]} <= site.held(), 12)
    assert not site.journal.stat().st_size, "a new journal was made"


@pytest.fixture
def database(folder_of_all: Path) -> Iterator[postgres_server.PostgresServer]:
    yield from needed("PostgreSQL", postgres_server.running(folder_of_all))


def test_a_journal_that_hangs_holds_up_no_eviction_and_no_end(
    site: Site, database: postgres_server.PostgresServer
) -> None:
    site.configure(journal=database.url)
    names = site.read_all(site.files("e", 6))
    site.pin(names[0], journal=database.url)
    steward = site.steward()
    assert eventually(lambda: site.figures.held_files == 6 and site.knows_pins(names[0]))
    with database.hanging():
        site.read_all(site.files("f", 12))
        assert site.makes_room(), (site.held(), site.figures)
        assert eventually(lambda: "steward-lists" in site.figures.alarms)
        assert name_of(names[0]) in site.held()
        site.stop(steward)
    assert steward.returncode == 0
