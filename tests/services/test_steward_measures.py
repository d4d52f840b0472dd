"""A steward beside a real XCache whose figures deceive: which disk is measured, and what it holds."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import time
from collections.abc import Iterator

import pytest
from daemons import needed
from steward_site import COMMAND, MIB, Site, eventually, forged, mapped, name_of, read_any, running

from features.common.errors import PushError

pytestmark = [pytest.mark.long, pytest.mark.service, pytest.mark.xrootd, pytest.mark.usefixtures("xrootd")]
PATIENCE_S = 6.0
"""So long it is watched that nothing goes: three looks."""
DISK_BYTES = 128 * MIB
N_KEPT = int(0.4 * 128)
"""Files of a MiB below the high watermark of the disk."""


@pytest.fixture
def two_disks(xrootd: str) -> Iterator[Site]:
    """Links and records lie on a file system of 32 MiB, data on one of 128 (`oss.space`)."""
    site = running(DISK_BYTES, names_bytes=32 * MIB)
    yield from needed("a real XCache on two disks of its own", site)


def test_a_steward_that_begins_with_an_empty_cache_measures_the_disk_of_its_data(two_disks: Site) -> None:
    """Others have filled the disk of the names."""
    site = two_disks
    assert eventually(site.is_emptied), site.held()
    site.steward()
    (site.servers.namespace / "others").write_bytes(bytes(30 * MIB))
    names = site.files("a", 36)
    for name in names:
        site.read(name)
    assert not eventually(lambda: len(site.held()) < len(names), PATIENCE_S), site.figures.alarms
    assert eventually(lambda: not site.figures.alarms), site.figures.alarms
    more = site.files("b", 24)
    for name in more:
        site.read(name)
    assert eventually(lambda: len(site.held()) <= N_KEPT), f"{len(site.held())} files, {site.figures.alarms}"
    assert {name_of(name) for name in more} <= site.held(), "new files went before old ones"


@pytest.fixture
def own_disk(xrootd: str) -> Iterator[Site]:
    """The cache has a file system of 64 MiB to itself, and its steward keeps below nine tenths of it."""
    yield from needed("a real XCache on a disk of its own", running(64 * MIB))


def test_what_is_evicted_and_not_free_is_not_made_up_for(own_disk: Site) -> None:
    """What is evicted stays in use, so that nothing is gained by more."""
    site = own_disk
    site.reported(*site.read_all(site.files("c", 44)))
    site.steward()
    time.sleep(PATIENCE_S)
    before = len(site.held())
    with mapped(site):
        more = site.read_all(site.files("d", 13))
        assert eventually(lambda: is_named(site, "still in use"), 150), site.figures
        too_much = before + len(more) - min(told // MIB for told in targets(site))
        gone = before + len(more) - len(site.held())
        assert gone <= too_much + 2, f"{too_much} had to go, {gone} went"
    assert eventually(lambda: not is_named(site, "still in use")), site.figures.alarms


def targets(site: Site) -> list[int]:
    """What the steward has said that it keeps below, in bytes."""
    return [int(float(told) * 10**6) for told in re.findall(r"of at most ([0-9.]+) MB", site.log("steward"))]


@pytest.fixture
def own_site(xrootd: str) -> Iterator[Site]:
    """A cache for one test: what this leaves in it no command takes."""
    yield from needed("a real XCache", running())


@pytest.mark.parametrize(
    "n_bytes", [MIB, pytest.param(2**40, marks=pytest.mark.verify)], ids=["plausible", "a terabyte"]
)
def test_a_record_that_a_job_brings_decides_nothing_of_other_files(own_site: Site, n_bytes: int) -> None:
    """A file X.cinfo at the origin, read through the cache, lies where the cache keeps the record of X."""
    site = own_site
    names = site.files("e", 14)
    site.reported(*site.read_all(names))
    for name in names[8:]:
        site.servers.add_file(f"{name}.cinfo", forged(n_bytes))
        with contextlib.suppress(PushError):
            read_any(site, f"{name}.cinfo")
    site.steward()
    for name in site.files("f", 5):
        site.read(name)
    assert eventually(lambda: len(site.held()) <= 15), f"{len(site.held())} files, {site.figures.alarms}"
    time.sleep(PATIENCE_S)
    assert not site.held() & {name_of(name) for name in names[:2]}, "those read first have to go"
    assert {name_of(name) for name in names[8:]} <= site.held(), (
        "files went by records that a job has brought"
    )
    assert site.purged()[1] == 0
    words = ["scan", "--cache", "cache", "--json", "--conf", str(site.conf)]
    done = subprocess.run([*COMMAND, *words], capture_output=True, text=True, timeout=300, check=False)
    assert '"a file of jobs, called as a record is": 6' in done.stdout
    assert "6 records are damaged or not believed" in site.log("steward"), site.log("steward")


def test_files_with_long_names_go_and_those_with_odd_names_are_the_caches(own_disk: Site) -> None:
    site = own_disk
    longest = [
        f"/store/mc/{number:02}{'x' * (n_chars - 7)}.root" for number, n_chars in enumerate((241, 249))
    ]
    odd = ["/store/mc/o#dd.root", "/store/mc/ odd.root"]
    for name in [*longest, *odd]:
        site.servers.add_file(name, os.urandom(MIB))
        read_any(site, name)
    site.read_all(site.files("g", 40))
    site.steward()
    for name in site.files("h", 18):
        site.read(name)
    long_names = {name_of(name) for name in longest}
    assert eventually(lambda: not long_names & site.held()), f"{site.figures.alarms}, {site.log('steward')}"
    assert f"names of {len(odd)} files" in site.log("steward")
    assert not is_named(site, "not files of the cache")


@pytest.mark.parametrize(
    "is_new", [False, pytest.param(True, marks=pytest.mark.verify)], ids=["truncated", "another file"]
)
def test_a_journal_that_loses_its_bytes_beside_a_steward_loses_no_pin(site: Site, is_new: bool) -> None:
    names = site.files("i", 14)
    site.reported(*site.read_all(names))
    site.pin(*names[:3])
    site.steward()
    assert eventually(lambda: site.figures.used_bytes > 0)
    time.sleep(PATIENCE_S)
    for path in site.folder.glob("journal.db*"):
        path.unlink() if is_new or path != site.journal else os.truncate(path, 0)
    site.journal.touch()
    site.read_all(site.files("j", 10))
    assert eventually(lambda: "steward-lists" in site.figures.alarms), site.figures
    assert not eventually(lambda: not {name_of(name) for name in names[:3]} <= site.held(), 2 * PATIENCE_S)
    assert not site.journal.stat().st_size, "a new journal was made"


def is_named(site: Site, what: str) -> bool:
    """Whether an alarm of the steward names `what`."""
    return any(what in text for text in site.figures.alarms.values())
