"""Names a run of the pusher, so that another run on the same machine knows whether it is dead."""

from __future__ import annotations

import os
import secrets
import socket
from pathlib import Path


def new_owner() -> str:
    """A name unique to this run: machine, process, the process's start time, and a random part."""
    return "|".join((_machine(), str(os.getpid()), _started(os.getpid()), secrets.token_hex(4)))


def is_dead(owner: str) -> bool:
    """Whether the process of run `owner` is known to be gone; False for runs on other machines."""
    machine, pid, started, _ = owner.split("|")
    return machine == _machine() and _started(int(pid)) != started


def label(owner: str) -> str:
    """Host and process of run `owner`, as people read them."""
    machine, pid, *_ = owner.split("|")
    return f"process {pid} on {machine.partition('/')[0]}"


def _machine() -> str:
    """Host, its boot, and space of process ids: of one name there may be several hosts, and containers.

    Not the machine id: machines that were copied from one image can share it.
    """
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{socket.gethostname()}/{boot}/{Path('/proc/self/ns/pid').stat().st_ino}"


def _started(pid: int) -> str:
    # A process id is used again; with the start time (clock ticks since boot) it is unique.
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return "gone"
    return "gone" if fields[0] == "Z" else fields[19]
