"""Names of runs: of hosts that share a name, none takes another's live run for dead."""

from __future__ import annotations

import dataclasses
import os
import socket
from pathlib import Path

import pytest

from prefetch.journal import lease


@dataclasses.dataclass(frozen=True)
class Host:
    """What a process sees of its host."""

    name: str
    boot_id: str
    pid: int


def on(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process seem to run there; the space of process ids is the first one of every host."""
    read_text, stat = Path.read_text, Path.stat
    space = stat(Path("/proc/self/ns/pid"))

    def read(path: Path, *given: object, **named: object) -> str:
        if path == Path("/proc/sys/kernel/random/boot_id"):
            return f"{host.boot_id}\n"
        return read_text(path)

    monkeypatch.setattr(socket, "gethostname", lambda: host.name)
    monkeypatch.setattr(Path, "read_text", read)
    monkeypatch.setattr(Path, "stat", lambda path, **how: space if "/ns/" in str(path) else stat(path, **how))
    monkeypatch.setattr(os, "getpid", lambda: host.pid)


def test_a_run_on_another_host_of_the_same_name_is_not_called_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as there:
        on(Host("node1", "aaaa", os.getpid()), there)
        # Its process id belongs to another process here.
        run = lease.new_owner().split("|")
        run[2] = "1"
    name = "|".join(run)
    with monkeypatch.context() as here:
        on(Host("node1", "bbbb", os.getpid()), here)
        assert not lease.is_dead(name)
    with monkeypatch.context() as again:
        on(Host("node1", "aaaa", os.getpid()), again)
        assert lease.is_dead(name)
