"""How full a cache is, and how much of it must stay free."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from features.common.errors import TargetUnavailable
from prefetch.steward import fill
from prefetch.steward.fill import Disks, Files, Implausible, Inflow, usage


def test_a_cache_with_the_disk_to_itself_is_as_full_as_the_disk(tmp_path: Path) -> None:
    status = os.statvfs(tmp_path)
    total = status.f_blocks * status.f_frsize
    found = usage(int(0.9 * total), tmp_path, [])
    assert isinstance(found, Disks) and found.capacity_bytes == total
    used = total - status.f_bavail * status.f_frsize
    assert abs(found.used_bytes(used, []) - used) < 0.05 * total


def test_a_disk_that_others_fill_is_no_measure_of_the_cache(tmp_path: Path) -> None:
    disks = Disks([tmp_path], tmp_path)
    disks.capacity_bytes = 100
    with pytest.raises(Implausible, match="are not files of the cache"):
        disks.used_bytes(0, [])


def test_a_folder_of_the_cache_that_goes_is_no_disk_that_goes(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "a").write_bytes(b"x")
    found = usage(10**15, tmp_path, ["/store/a"])
    (tmp_path / "store" / "a").unlink()
    (tmp_path / "store").rmdir()
    assert found.used_bytes(10**15, []) > 0


def test_a_cache_with_a_share_of_a_disk_is_as_full_as_its_files(tmp_path: Path) -> None:
    found = usage(10**6, tmp_path, ["/none"])
    assert isinstance(found, Files) and found.capacity_bytes == 10**6
    (tmp_path / "open").write_bytes(b"x" * 40_960)
    assert found.used_bytes(100_000, [("/open", 4096), ("/gone", 5)]) == 100_000 + 40_960 - 4096


def test_a_disk_that_is_gone_is_told(tmp_path: Path) -> None:
    disks = Disks([tmp_path], tmp_path)
    tmp_path.rmdir()
    with pytest.raises(TargetUnavailable, match="cannot see how full"):
        disks.used_bytes(0, [])


def test_another_file_system_at_its_place_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disks = Disks([tmp_path], tmp_path)
    monkeypatch.setattr(fill, "_device", lambda folder: -1)
    with pytest.raises(TargetUnavailable, match="another file system is mounted"):
        disks.used_bytes(0, [])


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


def test_looks_in_quick_succession_are_one() -> None:
    inflow = Inflow(60)
    for second in range(0, 121, 10):
        inflow.note(second, 5 * second, 0)
    assert inflow.headroom(unmeasured=1) == 300
