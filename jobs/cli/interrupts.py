"""How a command ends: in one line and with exit code 130 by Ctrl-C, and always without pages of others."""

from __future__ import annotations

import atexit
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

CODE = 130
"""Exit code of a process that Ctrl-C has ended."""


@contextmanager
def in_one_line(say: Callable[[str], None]) -> Iterator[None]:
    """Let the block be ended by Ctrl-C: `say` so in one line, and raise SystemExit(130).

    What the block raises while it unwinds, and what libraries log, is not shown. A second Ctrl-C ends the
    process at once.
    """
    came: list[int] = []

    def stop(number: int, _frame: FrameType | None) -> None:
        if came:
            os._exit(CODE)
        came.append(number)
        logging.disable()
        raise KeyboardInterrupt

    before = signal.getsignal(signal.SIGINT)
    if before is not signal.SIG_IGN:  # as in the background of a shell script
        signal.signal(signal.SIGINT, stop)
    try:
        yield
    except BaseException:
        if not came:
            raise
        say("interrupted")
        raise SystemExit(CODE) from None
    finally:
        if not came:
            signal.signal(signal.SIGINT, before)


def leave() -> None:
    """End an interrupted process: quietly, and without waiting for threads that are still at work."""
    sys.stdout.flush()
    _silence()
    others = [one for one in threading.enumerate() if one is not threading.main_thread()]
    if any(not one.daemon for one in others):
        os._exit(CODE)


def end_quietly() -> None:
    """Print nothing to stderr once the process has ended its work and its exit handlers have run.

    What a daemon thread still holds then, for example one of MLflow or Spark, DuckDB's binding (nanobind)
    takes for leaks, and lists them on a page that looks like a crash; DuckDB offers no switch for that. Exit
    handlers run last in, first out: call it before any work.
    """
    atexit.register(_silence)


def _silence() -> None:
    sys.stderr.flush()
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
