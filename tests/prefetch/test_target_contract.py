"""What every cache target obeys: a folder and a real XCache alike."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from captures import read_capture
from waiting import eventually
from xcache_server import has_ended

from features.common.errors import PushRejected, TargetUnavailable
from prefetch.directory import DirectoryTarget
from prefetch.target import LeftOut

ODD_NAMES = [
    "/store/odd/with space.root",
    "/store/odd/a+b&c=d%20e;f,g@h:i.root",
    "/store/odd/é-ü-日本.root",
    "/store/odd/.hidden",
    "/store/odd/'quoted\"$HOME`.root",
]


def is_evicted(world: Any, name: str) -> bool:
    """Ask for a file to go, and again if the cache has it in hand still."""
    world.target.evict(name, timeout_s=20)
    return world.target.confirm(name).held is None


def test_a_prefetched_file_is_held_whole(world: Any) -> None:
    name = world.add("/store/c/whole.root", b"x" * 1_000_001)
    assert world.target.confirm(name).held is None
    assert world.target.prefetch(name, timeout_s=20) == 1_000_001
    assert eventually(lambda: has_ended(world.target, name))
    held = world.target.confirm(name).held
    assert held.complete
    assert (held.name, held.size_bytes, held.bytes_on_disk) == (name, 1_000_001, 1_000_001)
    assert abs(held.last_detach_s - time.time()) < 60
    assert (world.namespace / name[1:]).read_bytes() == b"x" * 1_000_001
    assert world.target.prefetch(name, timeout_s=20) == 1_000_001


def test_an_empty_file_is_complete(world: Any) -> None:
    name = world.add("/store/c/empty.root", b"")
    assert world.target.prefetch(name, timeout_s=20) == 0
    assert eventually(lambda: (held := world.target.confirm(name).held) is not None and held.complete)
    assert world.target.confirm(name).held.bytes_on_disk == 0


@pytest.mark.parametrize("name", ODD_NAMES)
def test_odd_names_mean_the_same_everywhere(world: Any, name: str) -> None:
    world.add(name, b"odd" * 1000)
    world.target.prefetch(name, timeout_s=20)
    assert eventually(lambda: (held := world.target.confirm(name).held) is not None and held.complete)
    world.target.touch(name, timeout_s=20)
    assert name in {held.name for held in world.target.inventory()}
    assert eventually(lambda: is_evicted(world, name))


@pytest.mark.parametrize("verb", ["prefetch", "touch", "evict"])
@pytest.mark.parametrize(
    "name", ["/../etc/passwd", "relative", "/xrdpfc_command/remove_file/ /x", "/a?b", "/a\nb"]
)
def test_names_that_are_not_plain_are_refused(world: Any, verb: str, name: str) -> None:
    with pytest.raises(PushRejected, match="not a usable file name"):
        getattr(world.target, verb)(name, timeout_s=5)


def test_a_file_the_origin_lacks_is_rejected(world: Any) -> None:
    world.add("/store/c/other.root", b"x")
    with pytest.raises(PushRejected):
        world.target.prefetch("/store/c/missing.root", timeout_s=20)
    assert world.target.confirm("/store/c/missing.root").held is None


def test_touch_makes_it_the_latest(world: Any) -> None:
    name = world.add("/store/c/touched.root", b"x" * 300_000)
    world.target.prefetch(name, timeout_s=20)
    assert eventually(lambda: (held := world.target.confirm(name).held) is not None and held.complete)
    before = world.target.confirm(name).held.last_detach_s or 0
    time.sleep(1.1)
    world.target.touch(name, timeout_s=20)
    assert eventually(lambda: (world.target.confirm(name).held.last_detach_s or 0) > before)


def test_evict_twice_equals_once(world: Any) -> None:
    name = world.add("/store/c/gone.root", b"x" * 300_000)
    world.target.prefetch(name, timeout_s=20)
    assert eventually(lambda: is_evicted(world, name))
    assert not (world.namespace / name[1:]).exists()
    assert (world.origin / name[1:]).exists()
    world.target.evict(name, timeout_s=20)
    assert name not in {held.name for held in world.target.inventory()}


def test_our_own_uses_are_told_apart_in_the_stream(world: Any) -> None:
    name = world.add("/store/c/stream.root", b"x" * 500_000)
    n_malformed = read_capture(world.gstream).n_malformed if world.gstream.exists() else 0

    def n_events() -> int:
        return sum(record.lfn == name for record in read_capture(world.gstream).records)

    world.target.prefetch(name, timeout_s=20)
    # Uses that overlap would be told as one event.
    assert eventually(lambda: n_events() == 1)
    world.target.touch(name, timeout_s=20)
    assert eventually(lambda: n_events() == 2)
    capture = read_capture(world.gstream)
    ours = [record for record in capture.records if record.lfn == name]
    assert [record.is_ours for record in ours] == [True, True]
    assert [(r.size_bytes, r.n_blks, r.n_blks_done) for r in ours] == [(500_000, 4, 4)] * 2
    assert (capture.n_lost, capture.n_malformed) == (0, n_malformed)


def test_what_no_command_can_name_takes_room_in_a_folder_and_ends_no_purge(tmp_path: Path) -> None:
    cache = DirectoryTarget("d", tmp_path / "origin", tmp_path / "cache")
    for name in ("a.root", "b.root", "blank "):
        (cache.namespace / name).write_bytes(b"x" * 100)
    (tmp_path / "elsewhere").write_bytes(b"x" * 10_000)
    to = os.path.relpath(tmp_path / "elsewhere", cache.namespace)
    # The link itself has 100 bytes, as each file.
    (cache.namespace / "link").symlink_to(to.replace("elsewhere", "/" * (100 - len(to)) + "elsewhere"))
    (cache.namespace / "loop").symlink_to("loop")
    assert [held.name for held in sorted(cache.inventory())] == ["/a.root", "/b.root"]
    assert cache.confirm("/loop").held is None
    n_files, n_bytes, names = cache.left_out
    assert (n_files, n_bytes, set(names)) == (2, 200, {"/blank ", "/link"})
    assert cache.purge(0.5, 0.9, 600) == []
    assert len(cache.purge(0.75, 0.9, 400)) == 1
    assert len(cache.purge(0.1, 0.2, 400)) == 1 and list(cache.inventory()) == []
    assert (cache.namespace / "blank ").exists() and (tmp_path / "elsewhere").exists()
    (cache.namespace / "blank ").unlink()
    (cache.namespace / "link").unlink()
    (cache.namespace / "loop").unlink()
    assert list(cache.inventory()) == [] and cache.left_out == LeftOut()


def test_a_link_to_itself_at_an_origin_is_a_file_that_is_not_there_and_no_fault_of_the_cache(
    tmp_path: Path,
) -> None:
    cache = DirectoryTarget("d", tmp_path / "origin", tmp_path / "cache")
    (tmp_path / "origin").mkdir()
    (tmp_path / "origin" / "loop").symlink_to("loop")
    with pytest.raises(PushRejected, match="/loop cannot be fetched from"):
        cache.prefetch("/loop", timeout_s=20)
    assert list(cache.inventory()) == []


def test_a_folder_that_cannot_be_used_is_neither_passed_over_nor_a_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = DirectoryTarget("d", tmp_path / "origin", tmp_path / "cache")
    (cache.namespace / "f").write_bytes(b"")

    def denied(path: Any, *_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    uses: list[Callable[[], object]] = [
        lambda: list(cache.inventory()),
        lambda: cache.evict("/f", timeout_s=1),
        lambda: cache.touch("/f", timeout_s=1),
        lambda: cache.confirm("/f"),
    ]
    for name in ("scandir", "unlink", "utime"):
        monkeypatch.setattr(os, name, denied)
    for use in uses:
        with pytest.raises(TargetUnavailable, match=r"cannot use .*/cache/files.*: Permission denied"):
            use()
        if use is uses[2]:
            monkeypatch.setattr(Path, "stat", denied)


def test_a_file_that_is_removed_while_a_folder_uses_it_is_no_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, utime = DirectoryTarget("d", tmp_path / "origin", tmp_path / "cache"), os.utime
    file = cache.namespace / "f"

    def remove(path: Path, times: tuple[float, float]) -> None:
        utime(path, times)
        path.unlink()

    file.write_bytes(b"1")
    cache.touch("/f", timeout_s=1, meanwhile=file.unlink)
    assert [event.size_bytes for event in read_capture(cache.gstream).records] == [1]
    file.write_bytes(b"1")
    monkeypatch.setattr(os, "utime", remove)
    with pytest.raises(PushRejected, match="does not hold"):
        cache.touch("/f", timeout_s=1)
