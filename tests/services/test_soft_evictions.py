"""What plans evict, and what only monitoring reads, goes first when a real cache needs room, and not before.

The disk shows what went. What is pinned meanwhile stays as well.
"""

import time

import pytest
from monitoring import Sender, close
from steward_site import MIB, TEST_FILES, Site, name_of
from waiting import eventually

pytestmark = [pytest.mark.long, pytest.mark.service, pytest.mark.xrootd, pytest.mark.usefixtures("xrootd")]
PATIENCE_S = 6.0
"""So long it is watched that nothing goes: three looks."""


def slowly(site: Site, names: list[str]) -> list[str]:
    """Read files so that little may arrive in a look, and the files that go first are enough."""
    for name in names:
        site.read(name)
        time.sleep(1)
    return names


def names_of(names: list[str]) -> set[str]:
    return {name_of(name) for name in names}


def test_what_a_plan_evicts_stays_until_room_is_needed_and_then_goes_first(site: Site) -> None:
    old, listed = site.read_all(site.files("a", 6)), site.read_all(site.files("b", 6))
    steward = site.steward()
    answer = site.evict(*listed, "/store/mc/never-there.root")
    assert (answer["pushed"], answer["left_to_steward"], answer["failed"]) == (0, 7, 0)
    assert not eventually(lambda: len(site.held()) < 12, PATIENCE_S), "nothing goes while there is room"
    new = slowly(site, site.files("c", 8))
    assert site.makes_room(19), site.held()
    assert names_of(old) | names_of(new) <= site.held(), "what is listed was read after the old ones"
    assert eventually(lambda: site.figures.evicted_files > 0), site.figures
    assert site.figures.last_hour.keys() == {"a plan evicts it"}
    site.stop(steward)


def test_what_a_plan_evicts_is_shown_and_can_go_at_once(site: Site) -> None:
    listed = site.read_all(site.files("d", 4))
    site.evict(*listed)
    site.steward()
    assert (site.figures.first_files, site.figures.first_bytes) == (0, 0), "before the first look"
    assert eventually(lambda: site.figures.first_files == 4), site.figures
    assert site.figures.first_bytes == 4 * MIB
    assert site.evict(*listed[:1], at_once=True)["pushed"] == 1
    assert eventually(lambda: site.held() == names_of(listed[1:]))


def test_a_pin_that_has_ended_is_a_file_like_others(site: Site) -> None:
    """It stays as long as there is room, and goes in its turn."""
    pinned, *others = site.files("i", 8)
    site.reported(*site.read_all([pinned]))
    time.sleep(1.1)  # the cache tells times of use to the second
    site.read_all(others)
    site.pin(pinned, for_s=12)
    site.steward()
    time.sleep(12 + PATIENCE_S)
    assert site.held() == names_of([pinned, *others]), "the end of a pin removes nothing"
    site.read_all(site.files("j", 11))
    assert site.makes_room(), site.held()
    assert name_of(pinned) not in site.held(), "nobody read it for longest"


def test_files_that_only_monitoring_reads_go_first_and_are_no_reads(site: Site) -> None:
    probes = [f"{TEST_FILES}{number}.root" for number in range(6)]
    lookalike = f"/store/mc{TEST_FILES}like.root"
    for name in [*probes, lookalike]:
        site.servers.add_file(name, bytes(MIB))
    files = site.read_all([lookalike, *site.files("k", 5)])
    site.steward()
    before = site.figures.saved_bytes
    for _ in range(3):
        site.read_all(probes)
    us, now_s = Sender.heard(site.captures), int(time.time())
    site.forge(us.gstream(*(close(name, MIB, now_s) for name in probes), ahead=1))
    assert eventually(lambda: site.figures.first_files == 6), site.figures
    new = slowly(site, site.files("l", 8))
    assert site.makes_room(19), site.held()
    assert names_of(files) | names_of(new) <= site.held()
    assert eventually(lambda: site.figures.evicted_files > 0), site.figures
    assert site.figures.last_hour.keys() == {"only monitoring reads it"}
    assert site.figures.saved_bytes == before


def test_patterns_that_match_most_of_a_cache_evict_nothing(site: Site) -> None:
    """An operator's mistake: reads of what they match do not count, so that no order is known."""
    site.read_all(site.files("m", 12))
    site.configure(test_files="/store/*")
    site.steward()
    site.read_all(site.files("n", 6))
    assert eventually(lambda: "test_files" in site.figures.alarms.get("steward-implausible", ""))
    assert not eventually(lambda: len(site.held()) < 18, PATIENCE_S), site.held()
