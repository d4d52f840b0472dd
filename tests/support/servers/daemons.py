"""Servers as processes of a test: their ports, their start, the wait until they answer, and their end."""

import contextlib
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TypeVar

import httpx
import pytest
from waiting import PATIENCE_S

from features.common.errors import ServiceError
from jobs.local_site.local.process import free_ports

__all__ = ["PATIENCE_S", "NoServer", "answers", "end", "free_ports", "listens", "needed", "open_folder"]
__all__ += ["start", "up", "wait"]

_END_S = 20.0
_LOG_LINES = 20
Given = TypeVar("Given")


class NoServer(ServiceError):
    """A server cannot be started here; says why, with what its logs told last."""


def needed(what: str, server: AbstractContextManager[Given]) -> Iterator[Given]:
    """For a fixture: what `server` gives. Its tests fail, saying that they need `what`, if it cannot run."""
    try:
        with server as started:
            yield started
    except ServiceError as error:
        pytest.fail(f"these tests need {what}: {error}")


@contextlib.contextmanager
def open_folder() -> Iterator[Path]:
    """An empty folder that XRootD's user may enter, with a path short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="xc-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def start(
    command: Sequence[str], log: Path, *, env: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """The process of `command`, at work in the folder of its `log`, head of a group of its own."""
    with log.open("wb") as out:
        return subprocess.Popen(
            command, env=env, stdout=out, stderr=out, start_new_session=True, cwd=log.parent
        )


def wait(ready: Callable[[], bool], folder: Path, *processes: subprocess.Popen[bytes]) -> None:
    """Wait until `ready`; NoServer, with the logs of `folder`, if a process ends or patience does."""
    deadline = time.monotonic() + PATIENCE_S
    while not ready():
        if ended := [process.returncode for process in processes if process.poll() is not None]:
            raise NoServer(_told(folder, f"it has ended with {ended[0]}"))
        if time.monotonic() > deadline:
            raise NoServer(_told(folder, f"it is not up after {PATIENCE_S:.0f} s"))
        time.sleep(0.1)


def end(*processes: subprocess.Popen[bytes]) -> None:
    """End them, the last first, with all that they started."""
    for process in reversed(processes):
        _signal(process, signal.SIGTERM)
    for process in processes:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_END_S)
        _signal(process, signal.SIGKILL)
        process.wait()


@contextlib.contextmanager
def up(ready: Callable[[], bool], folder: Path, *processes: subprocess.Popen[bytes]) -> Iterator[None]:
    """Processes that are `ready`, as `wait` has it, and end with the block."""
    try:
        wait(ready, folder, *processes)
        yield
    finally:
        end(*processes)


def listens(port: int) -> bool:
    """Whether somebody takes connections at a port of this machine."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def answers(url: str) -> bool:
    """Whether a server answers `url` with success, whoever has signed its certificate."""
    try:
        return httpx.get(url, timeout=5, verify=False).is_success
    except httpx.TransportError:
        return False


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def _told(folder: Path, what: str) -> str:
    logs = [f"--- {log}\n{_tail(log)}" for log in sorted(folder.glob("*.log"))]
    return "\n".join([what, *logs])


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-_LOG_LINES:])
