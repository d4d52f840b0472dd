"""The demo's folders and caches, on a machine without an XRootD server too, and what it says of a pair."""

import itertools
import os
import stat
import time
from pathlib import Path
from unittest import mock

import pytest
from captures import read_capture

from features.common.errors import InputError
from features.common.progress import unwatched
from jobs.ground.caches.inventory import target
from jobs.local_site.demo import pair, xcache
from jobs.local_site.demo.pair import answers_of
from jobs.local_site.demo.site import MARKS, fresh


def test_without_a_server_the_reads_are_replayed_and_the_summary_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pair, "available", lambda: "no xrootd program found")
    both = pair.run(tmp_path / "both", seed=1, on_progress=unwatched)
    assert both.plain.seen is None and both.steward.seen is None
    assert both.missing == "no xrootd program found"
    assert 0 < both.plain.replayed_byte_hit_ratio < both.steward.replayed_byte_hit_ratio < 1
    first, *_ = answers_of(both)
    assert first.startswith(
        "No real caches, only the replay of the learned order: no xrootd program found. In replay it "
    )
    assert not (tmp_path / "both").exists()


def test_a_plain_purge_replays_as_lru() -> None:
    """The plain cache is kept by a steward: XCache's own purge must be no other order."""
    for seed in (1, 2, 3):
        trace = pair.last_reads(pair.all_reads(seed))
        marks = pair.marks(trace)
        mean_bytes = (marks.low_bytes + marks.high_bytes) // 2
        lru = pair.replay(trace, marks, "lru", mean_bytes).byte_hit_ratio
        assert pair.replay_purge(trace, marks).byte_hit_ratio == pytest.approx(lru, abs=0.03)


N_FILES = 14
SIZE = MARKS.capacity_bytes // 10


def test_without_a_server_a_folder_serves_purges_and_keeps_the_same_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(xcache, "available", lambda: "no xrootd program found")
    site = fresh(tmp_path / 'an "odd" folder')
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


def test_a_slow_read_leaves_the_close_its_wait_for_the_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a busy cache reports the close half a minute late."""
    now_s, pauses, file = [0.0], itertools.count(1), tmp_path / "f"

    def read() -> int:
        now_s[0] += 60
        return 4096

    def pause(_s: float) -> None:
        now_s[0] += 0.01
        if next(pauses) == 3:
            file.write_bytes(os.urandom(4096))

    remote = mock.MagicMock()
    remote.return_value.__enter__.return_value.read_all = read
    remote.return_value.__exit__ = mock.Mock(side_effect=lambda *_: file.stat() and None)
    with monkeypatch.context() as patched:
        patched.setattr(xcache, "RemoteFile", remote)
        patched.setattr(time, "monotonic", lambda: now_s[0])
        patched.setattr(time, "sleep", pause)
        cache = xcache.XCache(mock.Mock(namespace=tmp_path), tmp_path / "gstream", MARKS)
        assert cache.read_and_settle("/f") == 4096
