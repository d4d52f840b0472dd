from pathlib import Path

import pytest
from captures import read_capture

from features.common.errors import PushRejected, TargetUnavailable
from prefetch.directory import DirectoryTarget


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
