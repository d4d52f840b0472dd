"""A steward whose clock, folder or MLflow misleads it, beside a folder as cache."""

import contextlib
import os
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from commands import COMMAND
from folder_site import folder_site
from waiting import PATIENCE_S, STOPPED_AT_ONCE, eventually

from features.common.errors import ServiceError
from features.common.times import DAY_S
from jobs.ground.settings.tree import Settings
from jobs.loop.steward import steward
from jobs.loop.steward.promoted import Promoted
from prefetch.actions import Action
from prefetch.directory import DirectoryTarget
from prefetch.journal.journal import Item, Journal
from prefetch.journal.tables import KNOWN
from prefetch.push.push import PushLimits, push

pytestmark = STOPPED_AT_ONCE
SIZE = 1 << 16
ENDS_WITHIN_S = 20.0
WITHIN_S = 90.0
"""A steward that has asked MLflow begins in such a time, whatever the answer does, and then ends at once."""


def cache_of(folder: Path) -> DirectoryTarget:
    return DirectoryTarget("xc1", folder / "origin", folder / "cache")


def configured(folder: Path, *, state: str, more: str = "") -> Path:
    """The settings of a cache that keeps 18 of 20 files."""
    (folder / "origin" / "store").mkdir(parents=True)
    policy = "auto" if more else "lru"
    keys = f'steward = true\n{more}[steward]\nstate = "{state}"\nlook = "1s"\npolicy = "{policy}"\n'
    with contextlib.closing(Journal(f"{folder}/journal.db")) as journal:
        journal.make()
    return folder_site(folder, keys, cache="xc1", capacity=f"{20 * SIZE}B")


def read(folder: Path, *numbers: int) -> list[str]:
    """Read files through the cache; their names."""
    names = [f"/store/{number:02}.root" for number in numbers]
    for name in names:
        (folder / "origin" / name[1:]).write_bytes(b"x" * SIZE)
        cache_of(folder).read(name)
    return names


def pin(folder: Path, names: list[str]) -> None:
    """Pin files for an hour, as a push does for a plan."""
    at_s = int(time.time())
    items = [
        Item(f"p{name}", "xc1", at_s, f"t:{name}", name, Action.PIN, rank, SIZE, 0, at_s + 3600, basis=KNOWN)
        for rank, name in enumerate(names, 1)
    ]
    with contextlib.closing(Journal(f"{folder}/journal.db")) as journal:
        journal.plans.record_plan(items, now_s=at_s)
        assert push(cache_of(folder), journal, cache="xc1", limits=PushLimits(evict_guard_s=0)).failed == 0


def test_a_step_of_the_clock_takes_no_pin(tmp_path: Path) -> None:
    """Two days at once: no hour has passed for those who pinned for an hour."""
    settings = Settings.load(configured(tmp_path, state=f"{tmp_path}/s"), env={})
    pinned = read(tmp_path, 0, 1, 2)
    pin(tmp_path, pinned)
    held, step_s = tmp_path / "cache" / "files", [0.0]
    lines: list[str] = []

    def step_and_fill() -> None:
        with contextlib.suppress(Exception):
            eventually(lambda: any("began" in line for line in lines), PATIENCE_S)
            time.sleep(3)
            step_s[0] = 2 * DAY_S
            read(tmp_path, *range(3, 26))
            eventually(lambda: len(list((held / "store").iterdir())) <= 18, 20)
            time.sleep(2)
        os.kill(os.getpid(), signal.SIGTERM)

    beside = threading.Thread(target=step_and_fill)
    beside.start()
    last = steward.run(settings, cache="xc1", log=lines.append, now_s=lambda: time.time() + step_s[0])
    beside.join()
    assert last is not None and last.evicted_files > 0
    assert [name for name in pinned if not Path(f"{held}{name}").exists()] == []


def begun(conf: Path, folder: Path) -> subprocess.Popen[bytes]:
    """A steward as a service that is started in `folder`, and logs there."""
    folder.mkdir(exist_ok=True)
    with (folder / "log").open("wb") as log:
        env = os.environ | {"PYTHONPATH": str(Path(__file__).parents[4])}
        words = [*COMMAND, "steward", "--cache", "xc1", "--conf", str(conf)]
        return subprocess.Popen(words, stderr=log, cwd=folder, env=env)


def begins(process: subprocess.Popen[bytes], folder: Path, within_s: float = PATIENCE_S) -> bool:
    """Whether it begins in time."""
    log = folder / "log"
    eventually(lambda: "began" in log.read_text() or process.poll() is not None, within_s)
    return process.poll() is None and "began" in log.read_text()


def ends(process: subprocess.Popen[bytes]) -> bool:
    """Whether it ends in time when it is asked to; afterwards it has ended."""
    process.terminate()
    try:
        process.wait(ENDS_WITHIN_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return False
    return True


def test_a_cache_has_one_steward_from_whichever_folder_it_is_started(tmp_path: Path) -> None:
    """The state folder is relative, as in the shipped settings."""
    conf = configured(tmp_path, state="steward")
    read(tmp_path, 0)
    both = [tmp_path / "one", tmp_path / "two"]
    stewards = [begun(conf, folder) for folder in both]
    began = [begins(process, folder) for process, folder in zip(stewards, both, strict=True)]
    assert all(map(ends, stewards))
    assert began.count(True) == 1


class Trickle(NamedTuple):
    """A server whose answers have no end: ten bytes a second."""

    port: int
    asked: threading.Event


@pytest.fixture
def trickle() -> Iterator[Trickle]:
    stop, is_asked = threading.Event(), threading.Event()

    def answer(client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            client.sendall(b"HTTP/1.1 200 OK\r\n")
            while not stop.wait(0.1):
                client.sendall(b"x")

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=answer, args=(listener.accept()[0],)).start()
                is_asked.set()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve).start()
        yield Trickle(int(listener.getsockname()[1]), is_asked)
        stop.set()
        listener.shutdown(socket.SHUT_RDWR)


def test_mlflow_that_answers_byte_by_byte_delays_neither_begin_nor_end(
    tmp_path: Path, trickle: Trickle
) -> None:
    mlflow = f'[mlflow]\nuri = "http://127.0.0.1:{trickle.port}"\n'
    conf = configured(tmp_path, state=f"{tmp_path}/s", more=mlflow)
    read(tmp_path, 0)
    process = begun(conf, tmp_path / "one")
    try:
        assert trickle.asked.wait(PATIENCE_S)
        does_begin, does_end = begins(process, tmp_path / "one", WITHIN_S), ends(process)
        assert (does_begin, does_end) == (True, True), (tmp_path / "one" / "log").read_text()
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("policy", ["auto", "learned"])
def test_without_room_for_a_look_up_the_order_stays_and_it_is_told(
    tmp_path: Path, policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    conf = configured(tmp_path, state=str(tmp_path / "state"), more="\n")
    settings = Settings.load(conf, env={"CACHECAST_STEWARD__POLICY": policy})
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    promoted = Promoted(settings, settings.cache("xc1"))
    if policy == "learned":
        with pytest.raises(ServiceError, match="no process can look for it"):
            promoted.first()
    else:
        assert promoted.first() is None
    assert promoted.fault is not None and "no process can look for it" in promoted.fault
    promoted.refresh()  # it is not due yet
    assert promoted.fault is not None and promoted.serves is None
