"""Processes that outlive who starts them, and are found again with all that they have started.

A deployment's processes are those whose pid and start time it wrote down, what runs in their sessions or was
started by one of them, and whatever carries the deployment's mark in its environment: a task's command has a
session of its own, and some servers overwrite their environment with a title. A stranger has none of these.
"""

import contextlib
import dataclasses
import os
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from features.common.errors import ServiceError

MARK = "CACHECAST_DEPLOYMENT"
_POLL_S = 0.2
_STOP_S = 30.0
_LOG_CHARS = 1500
PORTS: Final = range(15_000, 32_000)  # below Linux's for outgoing connections, which would take one first


@dataclasses.dataclass(frozen=True)
class Service:
    """A process to keep running: its command `words`, variables added to ours, and its health check.

    `at`: where it answers; `page`: URL for a browser, empty without one; `within_s`: the time that its start
    may take on a busy machine.
    """

    name: str
    words: Sequence[str]
    at: str
    is_healthy: Callable[[], bool]
    env: Mapping[str, str] = dataclasses.field(default_factory=dict)
    page: str = ""
    within_s: float = 900.0


@dataclasses.dataclass(frozen=True)
class ServiceState:
    """A service after `up`: `state` is started, or running: it was there. `page`: opens in a browser."""

    service: str
    at: str
    page: str
    state: str
    pid: str
    log: str


class Services:
    """Starts services in `folder` (`NAME.pid`, `NAME.log` there) and ends them, under one mark."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._started: list[subprocess.Popen[bytes]] = []
        self._mark = f"{MARK}={folder.resolve()}".encode()

    def start(self, service: Service) -> ServiceState:
        """Start a service unless it runs; it is healthy when this returns. Raises ServiceError."""
        if (pid := self._pid(service.name)) is not None and service.is_healthy():
            return self._state(service, "running", pid)
        if pid is not None:
            self._end({pid})
        self._folder.mkdir(parents=True, exist_ok=True)
        with self._log(service.name).open("ab") as log:
            process = subprocess.Popen(
                service.words,
                env={**os.environ, **service.env, MARK: str(self._folder.resolve())},
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._started.append(process)
        if (running := running_processes().get(process.pid)) is not None:
            (self._folder / f"{service.name}.pid").write_text(f"{process.pid} {running.begun}\n")
        self._wait(service, process)
        return self._state(service, "started", process.pid)

    def stop(self) -> list[int]:
        """End every process of this deployment; their pids. Raises ServiceError if one cannot be ended."""
        ended = self._own()
        self._end(ended)
        # What was started while the rest was ending.
        self._end(self._own())
        for file in self._folder.glob("*.pid"):
            file.unlink()
        return sorted(ended)

    def _wait(self, service: Service, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + service.within_s
        while not service.is_healthy():
            if process.poll() is not None or time.monotonic() > deadline:
                self._end({process.pid})
                log = self._log(service.name)
                end_of_log = log.read_text(errors="replace")[-_LOG_CHARS:]
                raise ServiceError(f"{service.name} did not come up; its log, {log}, ends: {end_of_log}")
            time.sleep(_POLL_S)

    def _pid(self, name: str) -> int | None:
        pid, begun = _written(self._folder / f"{name}.pid")
        there = running_processes().get(pid)
        return pid if there is not None and there.begun == begun else None

    def _own(self) -> set[int]:
        """Every process of this deployment, but for the one that asks."""
        there = running_processes()
        written = dict(_written(file) for file in self._folder.glob("*.pid"))
        pids = {
            pid for pid, process in there.items() if written.get(pid) == process.begun or self._marks(pid)
        }
        while (
            more := {
                pid for pid, process in there.items() if process.parent in pids or process.session in pids
            }
            - pids
        ):
            pids |= more
        return pids - {os.getpid()}

    def _marks(self, pid: int) -> bool:
        try:
            return self._mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:  # it has ended, or is another user's
            return False

    def _end(self, pids: set[int]) -> None:
        for sign in (signal.SIGTERM, signal.SIGKILL):
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, sign)
            deadline = time.monotonic() + _STOP_S
            while True:
                for process in self._started:
                    process.poll()  # else it stays as a zombie
                if not (pids := pids & running_processes().keys()):
                    return
                if time.monotonic() >= deadline:
                    break
                time.sleep(_POLL_S)
        raise ServiceError(f"processes {sorted(pids)} do not end; look at them with ps")

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def _state(self, service: Service, state: str, pid: int) -> ServiceState:
        log = str(self._log(service.name))
        return ServiceState(service.name, service.at, service.page, state, str(pid), log)


class Process(NamedTuple):
    """A process that runs: who started it, its session, and when it began, in ticks since the boot."""

    parent: int
    session: int
    begun: int


def running_processes() -> dict[int, Process]:
    """What runs on this machine now, by pid; zombies do not."""
    processes = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):  # it has ended meanwhile
                # The name before may hold spaces, brackets, and bytes that are no text.
                fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
                if fields[0] != "Z":
                    processes[int(entry.name)] = Process(int(fields[1]), int(fields[3]), int(fields[19]))
    return processes


def _written(file: Path) -> tuple[int, int]:
    try:
        pid, begun = file.read_text().split()
        return int(pid), int(begun)
    except (OSError, ValueError):
        return 0, 0


def free_ports(n_ports: int) -> list[int]:
    """`n_ports` unused TCP ports of loopback; another server may still take one before it is used."""
    with contextlib.ExitStack() as stack:
        ports: list[int] = []
        while len(ports) < n_ports:
            tried = stack.enter_context(socket.socket())
            with contextlib.suppress(OSError):  # taken
                tried.bind(("127.0.0.1", secrets.choice(PORTS)))
                ports.append(int(tried.getsockname()[1]))
        return ports
