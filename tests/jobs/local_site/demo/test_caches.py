"""The demo's folders, and its cache on a machine without an XRootD server."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from captures import read_capture

from features.common.errors import InputError
from jobs.ground.caches.inventory import target
from jobs.local_site.demo import xcache
from jobs.local_site.demo.site import MARKS, fresh

N_FILES = 14
SIZE = MARKS.capacity_bytes // 10


def test_without_a_server_a_folder_serves_purges_and_keeps_the_same_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(xcache, "available", lambda: "no xrootd program found")
    site = fresh(tmp_path / "out")
    names = [f"/store/mc/x/f{i}.root" for i in range(N_FILES)]
    with xcache.running(site) as cache:
        assert "directory-backed" in cache.kind
        cache.add_files(dict.fromkeys(names, SIZE))
        xcache.read_all(cache, names)
        cache.read(names[-1])
        configured = site.settings().cache(xcache.NAME)
        held = target(configured)
        assert sum(file.bytes_on_disk for file in held.inventory()) == N_FILES * SIZE
        cache.purge()
        left = sum(file.bytes_on_disk for file in held.inventory())
        assert left <= MARKS.low * configured.capacity
        records = read_capture(cache.gstream).records
    assert len(records) == N_FILES + 1
    assert sum(record.b_miss for record in records) == N_FILES * SIZE
    assert not any(record.is_ours for record in records)


def test_a_demo_starts_afresh_but_never_deletes_what_is_not_its_own(tmp_path: Path) -> None:
    site = fresh(tmp_path / "out")
    salt = site.settings().users.salt.get_secret_value()
    (site.out / "left over").touch()
    again = fresh(tmp_path / "out")
    assert not (again.out / "left over").exists()
    assert again.settings().users.salt.get_secret_value() != salt
    assert stat.S_IMODE((again.conf / "secrets.toml").stat().st_mode) == 0o600
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").touch()
    with pytest.raises(InputError, match="was not made by a demo"):
        fresh(tmp_path / "mine")
    assert (tmp_path / "mine" / "thesis.tex").exists()
