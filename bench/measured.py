"""What a process takes, as the kernel counts it; shared by benches."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int) -> float:
    """CPU seconds that a process itself has used."""
    return sum(_stat(Path(f"/proc/{pid}"))[11:13]) / _TICKS_PER_S


def family_cpu_s(pid: int) -> float:
    """CPU seconds of a process, of all that work below it, and of those below it that have ended."""
    stats = _stats()
    return sum(sum(stats[pid][11:15]) for pid in _family([pid], stats)) / _TICKS_PER_S


def cpu_by_pid(pids: Iterable[int]) -> dict[int, float]:
    """CPU seconds of each of these processes and of each that works below them, its own alone."""
    stats = _stats()
    return {pid: sum(stats[pid][11:13]) / _TICKS_PER_S for pid in _family(pids, stats)}


def _stats() -> dict[int, list[int]]:
    stats = {}
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            stats[int(path.name)] = _stat(path)
    return stats


def _family(pids: Iterable[int], stats: dict[int, list[int]]) -> set[int]:
    """Those of `pids` that work, and all below them."""
    family, grown = set(pids) & stats.keys(), 0
    while len(family) > grown:
        grown = len(family)
        family |= {child for child, fields in stats.items() if fields[1] in family}
    return family


def memory_bytes(pid: int, what: str = "VmRSS") -> int:
    """Resident memory of a process now, or with `VmHWM` at its highest."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition(f"{what}:")[2].split()[0]) * 1024


def _stat(process: Path) -> list[int]:
    """The fields of a process behind its name, from the third on; the state, a letter, is 0."""
    return [0, *map(int, (process / "stat").read_text().rpartition(")")[2].split()[1:])]
