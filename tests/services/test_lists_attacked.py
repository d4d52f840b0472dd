"""The journal of a real cache's steward is replaced, vanishes or hangs: no pin goes, and evictions go on."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import postgres_server
import pytest
from daemons import needed
from steward_site import Site, eventually, name_of

pytestmark = [pytest.mark.service, pytest.mark.xrootd, pytest.mark.usefixtures("xrootd")]
MOST = 15
"""So many files of a MiB stay in a cache of 20."""


def made_room(site: Site) -> bool:
    return eventually(lambda: len(site.held()) <= MOST)


def test_pins_of_a_journal_that_was_put_in_the_place_of_another_are_kept(site: Site) -> None:
    """As from a backup: what is open at the old one goes on to answer, and knows nothing of what follows."""
    names = site.read_all(site.files("a", 6))
    site.steward()
    assert eventually(lambda: site.figures.held_files == 6)
    for path in site.folder.glob("journal.db*"):
        path.unlink(missing_ok=True)  # a reader that ends takes its own files with it
    site.pin(*names[:3])
    time.sleep(4)
    site.read_all(site.files("b", 12))
    assert made_room(site), site.held()
    assert {name_of(name) for name in names[:3]} <= site.held()
    assert {name_of(name) for name in names[3:]} - site.held()


def test_a_journal_that_is_gone_is_not_made_and_holds_up_no_eviction(site: Site) -> None:
    names = site.read_all(site.files("c", 6))
    site.pin(names[0])
    site.steward()
    site.evict(names[1])
    assert eventually(lambda: site.figures.first_files == 1)
    for path in site.folder.glob("journal.db*"):
        path.unlink(missing_ok=True)  # a reader that ends takes its own files with it
    assert eventually(lambda: "steward-lists" in site.figures.alarms), site.figures
    assert eventually(lambda: site.figures.first_files == 0), "what a plan said that nobody can read"
    site.read_all(site.files("d", 12))
    assert made_room(site), site.held()
    assert name_of(names[0]) in site.held()
    assert not site.journal.exists()


def test_a_journal_that_loses_its_bytes_loses_no_pin(site: Site) -> None:
    names = site.files("i", 14)
    site.reported(*site.read_all(names))
    site.pin(*names[:3])
    site.steward()
    assert eventually(lambda: site.figures.used_bytes > 0)
    time.sleep(6)
    for path in site.folder.glob("journal.db*"):
        os.truncate(path, 0) if path == site.journal else path.unlink()
    site.read_all(site.files("j", 10))
    assert eventually(lambda: "steward-lists" in site.figures.alarms), site.figures
    assert not eventually(lambda: not {name_of(name) for name in names[:3]} <= site.held(), 12)
    assert not site.journal.stat().st_size, "a new journal was made"


@pytest.fixture
def database() -> Iterator[postgres_server.PostgresServer]:
    with tempfile.TemporaryDirectory(prefix="pg-") as folder:
        Path(folder).chmod(0o755)
        yield from needed("PostgreSQL", postgres_server.running(Path(folder)))


def test_a_journal_that_hangs_holds_up_no_eviction_and_no_end(
    site: Site, database: postgres_server.PostgresServer
) -> None:
    site.configure(journal=database.url)
    names = site.read_all(site.files("e", 6))
    site.pin(names[0], journal=database.url)
    steward = site.steward()
    assert eventually(lambda: site.figures.held_files == 6)
    time.sleep(4)
    with database.hanging():
        site.read_all(site.files("f", 12))
        assert made_room(site), (site.held(), site.figures)
        assert eventually(lambda: "steward-lists" in site.figures.alarms)
        assert name_of(names[0]) in site.held()
        site.stop(steward)
    assert steward.returncode == 0
