"""The steward as a job, beside a folder as cache."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from features.errors import ConfigError, ConflictError
from jobs.settings.tree import Settings
from jobs.steward import steward
from jobs.store.locks import alone_at
from prefetch.directory.cache import DirectoryTarget
from prefetch.journal.journal import Journal
from prefetch.steward.figures import Figures, read

SIZE = 1 << 16


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    (tmp_path / "conf" / "caches").mkdir(parents=True)
    (tmp_path / "conf" / "base.toml").write_text(
        f'[push]\njournal = "{tmp_path}/journal.db"\n[steward]\nstate = "{tmp_path}/s"\npolicy = "s3fifo"\n'
    )
    for name, kind in (("xc1", f'"directory"\norigin = "{tmp_path}/origin"'), ("far", '"xcache"')):
        url = f"{tmp_path}/cache" if name == "xc1" else "root://x:1"
        (tmp_path / "conf" / "caches" / f"{name}.toml").write_text(
            f'name = "{name}"\nkind = {kind}\nurl = "{url}"\ncapacity = "{20 * SIZE}B"\nsteward = true\n'
        )
    with contextlib.closing(Journal(f"{tmp_path}/journal.db")) as journal:
        journal.make()
    return Settings.load(tmp_path / "conf", tables=str(tmp_path / "tables"), env={})


@pytest.fixture
def full(settings: Settings, tmp_path: Path) -> list[str]:
    """Files of a cache that holds more than its high watermark."""
    names = [f"/store/{n:02}.root" for n in range(30)]
    (tmp_path / "origin" / "store").mkdir(parents=True)
    cache = DirectoryTarget("xc1", tmp_path / "origin", tmp_path / "cache")
    for name in names:
        (tmp_path / "origin" / name[1:]).write_bytes(b"x" * SIZE)
        cache.read(name)
    return names


def test_it_keeps_a_cache_until_it_is_stopped(settings: Settings, full: list[str], tmp_path: Path) -> None:
    left, lines = list[Figures](), list[str]()

    def stop_when_done() -> None:
        ends = time.monotonic() + 20
        while time.monotonic() < ends and len(list((tmp_path / "cache/files/store").iterdir())) > 18:
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=stop_when_done).start()
    found = steward.run(settings, cache="xc1", log=lines.append, figures=left.append, force=True)
    assert (found.held_files, found.evicted_files, found.following) == (18, 12, "s3fifo")
    assert left[0].evicted_files == 0 and left[-1] == found
    assert "began: 30 files" in lines[0] and "stopped: 18 files" in lines[-1]
    assert read(settings.steward.figures("xc1")) is None


def test_a_second_steward_is_refused_and_told_of_the_first(
    settings: Settings, full: list[str], tmp_path: Path
) -> None:
    """Also one that is started in another folder and calls the cache otherwise: the cache's own is locked."""
    moved = settings.model_copy(update={"steward": settings.steward.model_copy(update={"state": tmp_path})})
    with (
        alone_at(tmp_path / "cache" / "files", "steward"),
        pytest.raises(ConflictError, match=rf"steward of cache 'xc1' \(process {os.getpid()}\) is at work"),
    ):
        steward.run(moved, cache="xc1", log=print)


def test_what_it_needs_of_a_cache_is_named(settings: Settings, tmp_path: Path) -> None:
    far = settings.caches["far"].model_copy(update={"gstream": tmp_path})
    with pytest.raises(ConfigError, match=r"caches\.far\.namespace"):
        steward.run(settings.model_copy(update={"caches": {"far": far}}), cache="far", log=print)
    far = settings.caches["far"].model_copy(update={"steward": False})
    with pytest.raises(ConfigError, match=r"caches\.far\.steward"):
        steward.run(settings.model_copy(update={"caches": {"far": far}}), cache="far", log=print)
    far = settings.caches["far"].model_copy(update={"namespace": tmp_path})
    with pytest.raises(ConfigError, match=r"caches\.far\.gstream"):
        steward.run(settings.model_copy(update={"caches": {"far": far}}), cache="far", log=print)


def test_a_cache_much_fuller_than_its_watermark_is_left_alone_without_force(
    settings: Settings, full: list[str], tmp_path: Path
) -> None:
    lines = list[str]()
    threading.Timer(3.0, os.kill, (os.getpid(), signal.SIGTERM)).start()
    found = steward.run(settings, cache="xc1", log=lines.append)
    assert (found.held_files, found.evicted_files) == (30, 0)
    assert any("ALARM steward-implausible" in line and "--force" in line for line in lines)


def test_without_a_journal_no_pin_is_known_and_none_is_made(
    settings: Settings, full: list[str], tmp_path: Path
) -> None:
    (tmp_path / "journal.db").unlink()
    lines = list[str]()
    threading.Timer(3.0, os.kill, (os.getpid(), signal.SIGTERM)).start()
    found = steward.run(settings, cache="xc1", log=lines.append, force=True)
    assert found.evicted_files == 0 and not (tmp_path / "journal.db").exists()
    assert any("steward-lists: there is no push journal at" in line for line in lines)
