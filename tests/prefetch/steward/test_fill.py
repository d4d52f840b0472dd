"""How full a cache is, and how much of it must stay free."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from features.common.errors import TargetUnavailable
from prefetch.steward.fill import DataDisks, Implausible, Inflow


def test_a_cache_with_the_disk_to_itself_is_as_full_as_the_disk(tmp_path: Path) -> None:
    status = os.statvfs(tmp_path)
    total = status.f_blocks * status.f_frsize
    (tmp_path / "a").write_bytes(b"x")
    disks = DataDisks(int(0.9 * total), tmp_path)
    disks.look(["/a"])
    assert (disks.capacity_bytes, disks.measures) == (total, 1)
    used = total - status.f_bavail * status.f_frsize
    assert abs(disks.used_bytes(used, []) - used) < 0.05 * total


def test_a_folder_of_the_cache_that_goes_is_no_disk_that_goes(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "a").write_bytes(b"x")
    disks = DataDisks(_bytes_of(tmp_path), tmp_path)
    disks.look(["/store/a"])
    (tmp_path / "store" / "a").unlink()
    (tmp_path / "store").rmdir()
    disks.look(["/store/a"])
    assert 0 < disks.used_bytes(10**15, []) < 10**15 and disks.measures == 1


def test_a_cache_with_a_share_of_a_disk_is_as_full_as_its_files(tmp_path: Path) -> None:
    disks = DataDisks(10**6, tmp_path)
    (tmp_path / "open").write_bytes(b"x" * 40_960)
    assert disks.used_bytes(100_000, [("/open", 4096), ("/gone", 5)]) == 100_000 + 40_960 - 4096


def _bytes_of(folder: Path) -> int:
    status = os.statvfs(folder)
    return status.f_blocks * status.f_frsize


@pytest.fixture
def data_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, of 64 MB, for the data of a cache whose names lie elsewhere."""
    folder = tmp_path / "data"
    folder.mkdir()
    if os.geteuid() != 0:
        pytest.skip("only root mounts file systems")
    command = ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(folder)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.fail(f"root may mount no file system here, which these tests need: {mounted.stderr}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=False)


def test_a_disk_that_is_empty_yet_counts_if_it_is_one_of_the_spaces(tmp_path: Path, data_disk: Path) -> None:
    """XRootD writes to the emptiest disk first: until the large one has a file, the files are counted."""
    (data_disk / "00").write_bytes(b"x")
    (tmp_path / "a").symlink_to(data_disk / "00")
    declared = _bytes_of(data_disk) + _bytes_of(tmp_path)
    cache = DataDisks(declared, tmp_path, [data_disk, tmp_path])
    cache.look(["/a"])
    assert (cache.used_bytes(100, []), cache.capacity_bytes) == (100, declared)
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "b").write_bytes(b"x")
    cache.look(["/deep/b"])
    (tmp_path / "deep" / "b").unlink()
    (tmp_path / "deep").rmdir()
    cache.look(["/a"])
    assert cache.used_bytes(100, []) > 100 and cache.measures == 2


def test_disks_smaller_than_the_declared_capacity_are_not_believed(tmp_path: Path, data_disk: Path) -> None:
    (data_disk / "00").write_bytes(b"x")
    (tmp_path / "a").symlink_to(data_disk / "00")
    cache = DataDisks(2 * _bytes_of(data_disk), tmp_path)
    for _ in range(2):
        with pytest.raises(
            Implausible, match=r"capacity is set to 134 MB.*have 67\.1 MB.*correct the capacity"
        ):
            cache.look(["/a"])
    (tmp_path / "b").write_bytes(b"x")  # on a second, large disk
    cache.look(["/a", "/b"])
    assert cache.used_bytes(100, []) == 100, "a share of both"


def test_a_disk_that_is_gone_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_bytes(b"x")
    cache = DataDisks(_bytes_of(tmp_path), tmp_path)
    cache.look(["/a"])
    monkeypatch.setattr(os, "statvfs", mock.Mock(side_effect=OSError(5, "input/output error")))
    with pytest.raises(TargetUnavailable, match="cannot see how full"):
        cache.used_bytes(0, [])


def test_what_came_between_looks_decides_what_stays_free() -> None:
    inflow = Inflow(60)
    assert inflow.headroom(unmeasured=77) == 77
    used = removed = 0
    for minute in range(200):
        used += 10 if minute % 100 else 500
        if used > 900:
            used, removed = used - 400, removed + 400
        inflow.note(60.0 * minute, used, removed)
    assert inflow.headroom(unmeasured=77) in range(10, 501)
    for minute in range(200, 200 + 1440):
        inflow.note(60.0 * minute, used, removed)
    assert inflow.headroom(unmeasured=77) == 0
