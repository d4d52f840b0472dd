"""The steward as a job, beside a folder as cache."""

import contextlib
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
from folder_site import folder_site, write_files
from waiting import STOPPED_AT_ONCE

from features.common.errors import ConfigError, ConflictError, TargetUnavailable
from features.results import STEWARD_DAYS
from jobs.ground.settings.tree import Settings
from jobs.ground.store.locks import alone_at, exclusive
from jobs.ground.store.tables import Tables
from jobs.loop.steward import running, steward
from jobs.operator.operate.alarms import silence
from prefetch.directory import DirectoryTarget
from prefetch.journal.journal import Journal
from prefetch.steward.figures import StewardFigures, read
from prefetch.target import Held

pytestmark = STOPPED_AT_ONCE
SIZE = 1 << 16


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    more = (
        f'steward = true\n[steward]\nstate = "{tmp_path}/s"\npolicy = "s3fifo"\n[caches.far]\nname = "far"\n'
    )
    more += f'kind = "xcache"\nurl = "root://x:1"\ncapacity = "{20 * SIZE}B"\nsteward = true\n'
    conf = folder_site(tmp_path, more, cache="xc1", capacity=f"{20 * SIZE}B")
    with contextlib.closing(Journal(f"{tmp_path}/journal.db")) as journal:
        journal.make()
    return Settings.load(conf, env={})


@pytest.fixture
def full(settings: Settings, tmp_path: Path) -> list[str]:
    """Files of a cache that holds more than its high watermark."""
    names = [f"/store/{n:02}.root" for n in range(30)]
    write_files(tmp_path / "origin", names, b"x" * SIZE)
    cache = DirectoryTarget("xc1", tmp_path / "origin", tmp_path / "cache")
    for name in names:
        cache.read(name)
    return names


def n_held(folder: Path) -> int:
    """How many files the cache holds."""
    return len(list((folder / "cache/files/store").iterdir()))


@contextlib.contextmanager
def stopped(is_time: Callable[[], bool] = lambda: False, *, within_s: float = 20.0) -> Iterator[None]:
    """A block that gets SIGTERM when it is time, but never after it was left: that would end the tests."""
    left, ends = threading.Event(), time.monotonic() + within_s

    def stop() -> None:
        while not left.wait(0.05):
            if is_time() or time.monotonic() >= ends:
                return os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=stop)
    thread.start()
    try:
        yield
    finally:
        left.set()
        thread.join()


def test_only_a_look_up_of_an_order_loads_mlflow() -> None:
    """They take seconds and 160 MB, and a steward that follows S3-FIFO has no use for them."""
    heavy = {"mlflow", "sklearn", "lightgbm", "pandas"}
    code = f"import sys, jobs.loop.steward.steward; print(*{heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_it_keeps_a_cache_until_it_is_stopped(settings: Settings, full: list[str], tmp_path: Path) -> None:
    left, lines = list[StewardFigures](), list[str]()
    with stopped(lambda: n_held(tmp_path) <= 18):
        last = steward.run(settings, cache="xc1", log=lines.append, figures=left.append, force=True)
    assert (last.held_files, last.evicted_files, last.following) == (18, 12, "s3fifo")
    assert left[0].evicted_files == 0 and left[-1] == last
    assert "began: 30 files, 0 open, 1.97 MB of at most" in lines[0] and "stopped: 18 files" in lines[-1]
    assert read(settings.steward.figures("xc1")) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="another account is needed")
def test_a_lock_that_another_account_holds_keeps_no_steward_from_its_work(
    settings: Settings, full: list[str], tmp_path: Path
) -> None:
    """Who may read the namespace can lock it, and nothing of the steward's own."""
    namespace, own = tmp_path / "cache" / "files", settings.steward.figures("xc1").with_suffix(".lock")
    with locked_by_nobody(namespace):
        with stopped(lambda: own.exists() and n_held(tmp_path) <= 18):
            last = steward.run(settings, cache="xc1", log=print, force=True)
        assert last is not None and last.evicted_files == 12
        with exclusive(own, "steward"), pytest.raises(ConflictError, match=rf"process {os.getpid()}"):
            steward.run(settings, cache="xc1", log=print)
    assert own.stat().st_mode & 0o077 == 0


@contextlib.contextmanager
def locked_by_nobody(folder: Path) -> Iterator[None]:
    """An account without rights has locked the folder."""
    code = (
        "import fcntl, os, sys; at = os.open(sys.argv[1], os.O_RDONLY); os.setuid(65534); "
        "fcntl.flock(at, fcntl.LOCK_EX); print(flush=True); sys.stdin.read()"
    )
    words = [sys.executable, "-c", code, str(folder)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None and holder.stdout.readline()
        yield
        holder.kill()


def test_what_it_needs_of_a_cache_is_named(settings: Settings, tmp_path: Path) -> None:
    for key, value, missing in (
        *(("gstream", tmp_path, "namespace"), ("namespace", tmp_path, "gstream")),
        ("steward", False, "steward"),
    ):
        far = settings.caches["far"].model_copy(update={key: value})
        with pytest.raises(ConfigError, match=rf"caches\.far\.{missing}"):
            steward.run(settings.model_copy(update={"caches": {"far": far}}), cache="far", log=print)


def test_a_cache_much_fuller_than_its_watermark_is_left_alone_without_force(
    settings: Settings, full: list[str], tmp_path: Path
) -> None:
    lines = list[str]()
    with stopped(within_s=3):
        last = steward.run(settings, cache="xc1", log=lines.append)
    assert (last.held_files, last.evicted_files) == (30, 0)
    assert any("ALARM steward-implausible" in line and "--force" in line for line in lines)
    with stopped(lambda: n_held(tmp_path) <= 18):
        forced = steward.run(settings, cache="xc1", log=lines.append, force=True)
    assert forced is not None and forced.alarms == {}


def test_without_a_journal_no_pin_is_known_and_none_is_made(
    settings: Settings, full: list[str], tmp_path: Path
) -> None:
    (tmp_path / "journal.db").unlink()
    lines = list[str]()
    with stopped(within_s=3):
        last = steward.run(settings, cache="xc1", log=lines.append, force=True)
    assert last.evicted_files == 0 and not (tmp_path / "journal.db").exists()
    assert any("steward-lists: there is no push journal at" in line for line in lines)


def test_it_begins_and_works_without_tables_and_gives_them_its_figures_later(
    settings: Settings, full: list[str], tmp_path: Path
) -> None:
    """As while the network to them is down: it says so, and the next run gives what waited."""
    root, lines = tmp_path / "tables", list[str]()
    root.write_text("in their place")
    with stopped(lambda: n_held(tmp_path) <= 18 and any("figures of 1 days wait" in line for line in lines)):
        last = steward.run(settings, cache="xc1", log=lines.append, force=True)
    assert last is not None and last.evicted_files == 12
    assert any("ALARM steward-tables: datasets are by folder" in line for line in lines), lines
    root.unlink()
    with stopped(within_s=3):
        steward.run(settings, cache="xc1", log=lines.append)
    rows = Tables(str(root)).read_arrow(STEWARD_DAYS).to_pylist()
    assert sum(row["evicted_files"] for row in rows) == 12
    assert not settings.steward.figures("xc1").with_suffix(".days").exists()


def test_a_catalogue_that_comes_later_is_taken(
    settings: Settings, full: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "CATALOGUE_AGAIN_S", 1.0)
    root, lines = tmp_path / "tables", list[str]()
    root.write_text("in their place")
    threading.Timer(3.0, root.unlink).start()
    with stopped(lambda: any("begins anew" in line for line in lines)):
        last = steward.run(settings, cache="xc1", log=lines.append, force=True)
    assert any("begins anew" in line for line in lines), lines
    assert last is not None and "steward-tables" not in last.alarms


def test_started_without_a_journal_it_keeps_the_pins_that_it_knew(
    settings: Settings, full: list[str], tmp_path: Path
) -> None:
    now_s = int(time.time())
    pins = [(full[0], now_s + 3600), (full[1], now_s + 3600), (full[2], now_s - 3600)]
    settings.steward.figures("xc1").parent.mkdir(parents=True)
    settings.steward.figures("xc1").with_suffix(".pins").write_text(json.dumps(dict(pins)))
    (tmp_path / "journal.db").rename(tmp_path / "away.db")
    lines = list[str]()
    with stopped(lambda: n_held(tmp_path) <= 18):
        last = steward.run(settings, cache="xc1", log=lines.append, force=True)
    assert last is not None and last.held_files == 18
    held = {f"/store/{path.name}" for path in (tmp_path / "cache/files/store").iterdir()}
    assert set(full[:2]) <= held and full[2] not in held
    assert any("ALARM steward-lists" in line and "pins stay as last read" in line for line in lines)


@pytest.mark.parametrize("days", [-3, 3])
def test_by_a_clock_that_cannot_be_right_nothing_goes(
    settings: Settings, full: list[str], tmp_path: Path, days: int
) -> None:
    """Set right, it begins anew, and evicts."""
    off_s, lines = [days * 86_400.0], list[str]()
    blind = list[int]()

    def mend() -> None:
        time.sleep(3)
        blind.append(sum("began" in line for line in lines))
        off_s[0] = 0.0

    threading.Thread(target=mend).start()
    with stopped(lambda: n_held(tmp_path) <= 18):
        last = steward.run(
            settings, cache="xc1", log=lines.append, force=True, now_s=lambda: time.time() + off_s[0]
        )
    assert blind == [1]
    alarm = next(line for line in lines if "ALARM steward-clock" in line)
    assert "nothing is evicted" in alarm and ("before" if days > 0 else "after") in alarm
    assert any("begins anew: 30 files" in line for line in lines), lines
    assert last is not None and (last.held_files, last.alarms) == (18, {})


def test_it_ends_while_it_still_begins(
    settings: Settings, full: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = DirectoryTarget.inventory

    def slow(self: DirectoryTarget, expected: Collection[str] = ()) -> Iterator[Held]:
        for held in listed(self, expected):
            yield held
            time.sleep(30)

    monkeypatch.setattr(DirectoryTarget, "inventory", slow)
    began, reports, path = time.monotonic(), list[StewardFigures](), settings.steward.figures("xc1")

    def has_looked() -> bool:
        reports.extend(report for report in [read(path)] if report is not None)
        return time.monotonic() - began > 1

    with stopped(has_looked):
        assert steward.run(settings, cache="xc1", log=print) is None
    assert time.monotonic() - began < 5
    assert read(path) is None
    # Until then it is missed if it never begins, as on a disk that hangs, though it has reported nothing yet.
    assert silence(reports[-1], now_s=time.time() + 400) is not None
    with alone_at(Path(settings.caches["xc1"].url) / "files", "steward"):  # the next one may begin
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_one_that_cannot_begin_is_missed_from_its_first_attempt_on(
    settings: Settings, full: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often its service starts it again."""

    def refuse(*_: object) -> Iterator[Held]:
        raise TargetUnavailable("mount the disk")

    monkeypatch.setattr(DirectoryTarget, "inventory", refuse)
    for now_s in (lambda: time.time() - 900, time.time):
        with pytest.raises(TargetUnavailable):
            steward.run(settings, cache="xc1", log=print, now_s=now_s)
    report = read(settings.steward.figures("xc1"))
    assert report is not None and silence(report, now_s=time.time()) == "15m"


def test_a_look_up_that_is_stopped_does_not_outlive_it(settings: Settings, full: list[str]) -> None:
    """The interpreter would wait for it at its end."""
    learns = settings.steward.model_copy(update={"policy": "auto"})
    processes = list[BaseProcess]()

    def has_stopped_one() -> bool:
        processes.extend(each for each in multiprocessing.active_children() if each.name == "promoted order")
        for each in processes:
            os.kill(each.pid or 0, signal.SIGSTOP)
        return bool(processes)

    try:
        with stopped(has_stopped_one):
            run = steward.run(settings.model_copy(update={"steward": learns}), cache="xc1", log=print)
        assert run is None and not processes[0].is_alive()
    finally:
        for each in processes:
            each.kill()


@pytest.mark.parametrize("hours", [-60, -2, 2])
def test_a_clock_that_is_set_during_the_first_inventory_gives_no_ages(
    settings: Settings, full: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    """As at boot, before NTP: it begins anew before anything goes."""
    listed, off_s, lines = DirectoryTarget.inventory, [hours * 3600.0], list[str]()

    def set_meanwhile(self: DirectoryTarget, expected: Collection[str] = ()) -> Iterator[Held]:
        yield from listed(self, expected)
        off_s[0] = 0.0

    monkeypatch.setattr(DirectoryTarget, "inventory", set_meanwhile)
    with stopped(lambda: n_held(tmp_path) <= 18):
        last = steward.run(
            settings, cache="xc1", log=lines.append, force=True, now_s=lambda: time.time() + off_s[0]
        )
    assert any("begins anew: 30 files" in line for line in lines), lines
    assert last is not None and (last.held_files, last.alarms) == (18, {})
