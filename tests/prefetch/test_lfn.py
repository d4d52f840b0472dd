"""Which names a file may have, and the cache that is a folder."""

from pathlib import Path, PurePosixPath

import pytest
from captures import read_capture
from hypothesis import given
from hypothesis import strategies as st

from features.common.errors import PushRejected, TargetUnavailable
from prefetch import lfn
from prefetch.directory import DirectoryTarget
from prefetch.lfn import checked_lfn, path_below

BAD = [
    "",
    "/",
    "store/x",
    "//store/x",
    "/store//x",
    "/store/x/",
    "/store/../x",
    "/store/./x",
    "/store/x?authz=1",
    "/store/x#y",
    "/store/x\\y",
    "/store/x\n",
    "/store/x\x00",
    "/store/\x7fx",
    "/store/\u202ex",
    "/store/\u2028x",
    "/store/\ud800x",
    "/ store/x",
    "/store/x ",
    "/store/\u00a0x",
    "/xrdpfc_command/remove_file/x",
    "/xrdpfc_command",
    "/store/x.cinfo",
    "/" + "a" * 250,
    "/a" * 513,
]


@pytest.mark.parametrize("name", BAD)
def test_bad_names_are_refused(name: str) -> None:
    with pytest.raises(PushRejected):
        checked_lfn(name)


@given(st.one_of(st.text(), st.text("/.? #\\ab\n").map(lambda text: "/" + text)))
def test_what_passes_stays_below_its_root_and_in_one_url(name: str) -> None:
    try:
        checked_lfn(name)
    except PushRejected:
        return
    parts = PurePosixPath(name).parts
    assert name == "/" + "/".join(parts[1:])
    assert ".." not in parts and "." not in name.split("/")
    assert not set("?#\\\n\r\0") & set(name) and name == name.strip()
    assert len(name.encode()) <= 1024


def test_a_link_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "store").symlink_to(tmp_path)
    with pytest.raises(PushRejected, match="link"):
        path_below(tmp_path / "cache", "/store/x")
    assert path_below(tmp_path / "cache", "/mc/x") == tmp_path / "cache" / "mc" / "x"


def test_a_link_into_a_space_of_the_cache_is_followed_and_no_other(tmp_path: Path) -> None:
    cache, disk = tmp_path / "cache", tmp_path / "disk1"
    for folder in (cache, disk, tmp_path / "disk10"):
        folder.mkdir()
    (cache / "held").symlink_to(disk / "00")
    (cache / "stray").symlink_to(tmp_path / "disk10" / "00")
    assert path_below(cache, "/held", spaces=[disk]) == cache / "held"
    for name, spaces in (("/held", []), ("/stray", [disk])):
        with pytest.raises(PushRejected, match="link"):
            path_below(cache, name, spaces=spaces)


@given(st.lists(st.text("aB0_.+=:,@~-/ cinfo?\t\u00e9", max_size=12), max_size=5), st.integers(0, 300))
def test_a_name_that_is_taken_at_a_glance_has_no_fault(parts: list[str], n: int) -> None:
    for name in ("/" + "/".join(parts), "/".join(parts), "/a" * n, "/" + "a" * n, "/" + "a/" * n + "b"):
        for whole in (name, f"{name}.cinfo", f"/xrdpfc_command{name}", f"{name}\n"):
            assert not lfn._is_plain(whole) or lfn._fault(whole) is None
    assert lfn._is_plain("/store/mc/Run3-v1/AOD_1.root")


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        self.now += 10
        return self.now


@pytest.fixture
def cache(tmp_path: Path) -> DirectoryTarget:
    for number in range(5):
        path = tmp_path / "origin" / "store" / f"f{number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * 300_000)
    return DirectoryTarget("dir", tmp_path / "origin", tmp_path / "cache", now_s=Clock())


def test_a_read_misses_once_and_then_hits(cache: DirectoryTarget) -> None:
    assert [cache.read("/store/f0"), cache.read("/store/f0")] == [False, True]
    cold, warm = read_capture(cache.gstream).records
    assert (cold.b_hit, cold.b_miss, warm.b_hit, warm.b_miss) == (0, 300_000, 300_000, 0)
    assert len(cold.remotes) == 1 and warm.remotes == ()
    assert not cold.is_ours and not warm.is_ours
    assert cold.event_id != warm.event_id


def test_purge_drops_the_oldest_down_to_low(cache: DirectoryTarget) -> None:
    for number in range(5):
        cache.read(f"/store/f{number}")
    cache.touch("/store/f0", timeout_s=1)
    assert cache.purge(0.5, 0.9, 2_000_000) == []
    assert cache.purge(0.5, 0.9, 1_500_000) == ["/store/f1", "/store/f2", "/store/f3"]
    assert {held.name for held in cache.inventory()} == {"/store/f0", "/store/f4"}
    assert sum(held.bytes_on_disk for held in cache.inventory()) == 600_000


def test_nothing_half_copied_is_held(cache: DirectoryTarget, tmp_path: Path) -> None:
    with pytest.raises(TargetUnavailable, match="in time"):
        cache.prefetch("/store/f0", timeout_s=-1)
    assert list(cache.inventory()) == []
    assert list((tmp_path / "cache" / "tmp").iterdir()) == []


def test_an_origin_that_is_away_is_worth_another_try(cache: DirectoryTarget, tmp_path: Path) -> None:
    (tmp_path / "origin").rename(tmp_path / "moved")
    with pytest.raises(TargetUnavailable):
        cache.prefetch("/store/f0", timeout_s=1)


def test_links_out_of_the_origin_are_refused(cache: DirectoryTarget, tmp_path: Path) -> None:
    (tmp_path / "origin" / "store" / "link").symlink_to("/etc/passwd")
    with pytest.raises(PushRejected, match="link"):
        cache.prefetch("/store/link", timeout_s=1)
    with pytest.raises(PushRejected):
        cache.prefetch("/store", timeout_s=1)
    with pytest.raises(PushRejected):
        cache.prefetch("/store/f0/below", timeout_s=1)


def test_a_folder_in_place_of_a_file_is_refused_and_not_held(cache: DirectoryTarget) -> None:
    (cache.namespace / "store/f0").mkdir(parents=True)
    (cache.namespace / "store/f1").symlink_to("f0")
    for act in (cache.prefetch, cache.touch, cache.evict):
        with pytest.raises(PushRejected, match="is a folder"):
            act("/store/f0", timeout_s=1)
    assert cache.confirm("/store/f0").held is None
    assert list(cache.inventory()) == []


def test_a_folder_that_goes_away_is_no_empty_cache(cache: DirectoryTarget) -> None:
    for number in range(3):
        cache.read(f"/store/f{number}")
    files = cache.inventory()
    next(files)
    cache.namespace.rename(cache.namespace.with_name("away"))
    with pytest.raises(TargetUnavailable, match="is gone"):
        list(files)
