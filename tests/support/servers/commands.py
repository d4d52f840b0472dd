"""Our program as a process, and commands that others have started: found by words, killed, or stopped."""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from waiting import eventually

from jobs.local_site.local.process import running_processes

COMMAND = [sys.executable, "-c", "from jobs.cli.main import main; main()"]


def command_lines() -> dict[int, str]:
    """The words of every process on this machine, by its pid."""
    lines = {}
    for pid in running_processes():
        with contextlib.suppress(OSError):  # it has ended meanwhile
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
            lines[pid] = words.replace(b"\0", b" ").decode(errors="replace")
    return lines


def running(words: str) -> list[int]:
    """Processes of Python whose command line holds `words`."""
    lines = command_lines().items()
    return [pid for pid, line in lines if words in line and "python" in line.split(" ")[0]]


def awaited(words: str, *, within_s: float) -> int:
    """The first process whose command line holds `words`, as soon as there is one."""
    pids = eventually(lambda: running(words), within_s, 0.02)
    assert pids, f"no process of {words!r} within {within_s:.0f} s"
    return pids[0]


def killed(words: str, *, within_s: float, after_s: float = 0.0) -> int:
    """Kill the first process whose command line holds `words`, `after_s` after it was seen; its pid."""
    pid = awaited(words, within_s=within_s)
    time.sleep(after_s)
    os.kill(pid, signal.SIGKILL)
    return pid


@contextlib.contextmanager
def held(pid: int) -> Iterator[None]:
    """A process that does nothing meanwhile, and continues afterwards."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
