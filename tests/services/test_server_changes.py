"""An older server is started in the place of a newer one, under a push and under a steward."""

import contextlib
import functools
import itertools
import logging
import time
from collections.abc import Iterator

import pytest
import xrootd_versions
from daemons import needed
from pushes import item_of, run
from steward_site import Site, name_of, running
from waiting import eventually

from prefetch.journal.journal import Journal
from prefetch.xcache.client import XCacheTarget
from prefetch.xcache.server import parse_version

pytestmark = [pytest.mark.service, pytest.mark.xrootd]
CHANGES = [
    (after, before)
    for before, after in itertools.combinations(xrootd_versions.tested(), 2)
    if parse_version(before).removes_open_files and not parse_version(after).removes_open_files
]


@pytest.fixture(params=CHANGES, ids="-to-".join)
def older(request: pytest.FixtureRequest) -> Iterator[str]:
    """Servers that are started are of a version that keeps open files; the version here does not."""
    newer, older = request.param
    with xrootd_versions.in_use(newer):
        yield older


@pytest.fixture
def site(older: str) -> Iterator[Site]:
    yield from needed("a real XCache", running())


@contextlib.contextmanager
def downgraded(site: Site, older: str) -> Iterator[None]:
    """The cache's server is of version `older` while the block runs."""
    with xrootd_versions.in_use(older):
        site.servers.restart_cache()
        yield
        site.servers.cache.stop()


def pushed_evictions(target: XCacheTarget, journal: Journal, name: str) -> int:
    """How many files a plan evicts that names one, which was open in the last ten minutes."""
    item = item_of(f"evict{name}", "cache", name, "evict", as_of_s=int(time.time()))
    return run(target, journal, [item], cache="cache", attempts=1, evict_guard_s=600).pushed


def test_a_push_guards_open_files_as_soon_as_the_server_removes_them(
    site: Site, older: str, journal: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    """It has asked for the version before, and asks again within the minute."""
    first, second = site.files("p", 2)
    target = XCacheTarget("cache", site.servers.cache_url, site.servers.namespace)
    site.reported(*site.read_all([first]))
    assert pushed_evictions(target, journal, first) == 1
    with downgraded(site, older), caplog.at_level(logging.WARNING):
        site.read(second)
        assert pushed_evictions(target, journal, second) == 0
        assert name_of(second) in site.held()
    assert f"it is XRootD {older}: removes open files" in caplog.text


class Replaced(XCacheTarget):
    """Its server is replaced just after it was asked for its version."""

    def __init__(self, site: Site, stack: contextlib.ExitStack, older: str) -> None:
        super().__init__("cache", site.servers.cache_url, site.servers.namespace)
        self.replace = functools.lru_cache(lambda: stack.enter_context(downgraded(site, older)))

    def removes_open_files(self) -> bool:
        answer = super().removes_open_files()
        self.replace()
        return answer


def test_no_file_goes_by_what_a_server_said_that_was_replaced_meanwhile(
    site: Site, older: str, journal: Journal
) -> None:
    (name,) = site.files("q", 1)
    site.reported(*site.read_all([name]))
    with contextlib.ExitStack() as stack:
        assert pushed_evictions(Replaced(site, stack, older), journal, name) == 0
        assert name_of(name) in site.held()
        errors = " ".join(journal.reports.last_errors("cache"))
        assert "removes open files" in errors, errors


def test_a_steward_that_sees_no_open_files_stops_when_the_server_removes_them(site: Site, older: str) -> None:
    names = site.files("s", 29)
    site.read_all(names[:18])
    steward = site.steward(sees_processes=False)
    assert site.makes_room(), (len(site.held()), site.figures)
    with downgraded(site, older):
        assert eventually(lambda: site.purged()[1] > 0), "its own purge, at its start"
        held = site.held() | {name_of(name) for name in names[18:29]}
        site.read_all(names[18:29])
        alarm = lambda: site.figures.alarms.get("steward-blind", "")  # noqa: E731
        assert eventually(lambda: "removes open files" in alarm()), site.figures
        assert eventually(lambda: site.figures.server == f"v{older}"), site.figures
        assert site.held() >= held, "more: its own open of a file that the server purged makes an empty one"
    site.stop(steward)
    assert steward.returncode == 0
