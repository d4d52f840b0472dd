"""The process that reads what the operator's pages show; the service keeps its memory and its time."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Mapping
from multiprocessing.connection import Connection
from pathlib import Path

from jobs.overview import page
from jobs.overview.plan import Plans
from jobs.overview.sources import Sources
from jobs.overview.state import state
from jobs.settings.tree import Settings
from prefetch.placement.operator import Asked, Heard


class Desk:
    """Answers questions about the caches and models of `settings`."""

    def __init__(self, settings: Settings, *, began_s: float) -> None:
        self._settings, self._sources = settings, Sources(began_s)
        self._plans = Plans(settings)

    def answer(self, asked: Asked, heard: Mapping[str, Heard], *, now_s: int) -> bytes:
        """The page at `now_s`; `heard`: heartbeats by cache."""
        if asked.cache:
            return page.plan(self._plans.state(asked, self._sources, now_s=now_s), now_s=now_s).encode()
        return page.overview(state(self._settings, self._sources, heard, now_s=now_s), now_s=now_s).encode()


def attend(questions: Connection, settings: Settings, began_s: float) -> None:
    """Answer the `questions` of a service until it ends."""
    # Ctrl-C in a terminal is for the service, which ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _stand_back()
    desk = Desk(settings, began_s=began_s)
    with contextlib.suppress(EOFError, BrokenPipeError):
        while True:
            asked, heard = questions.recv()
            questions.send_bytes(desk.answer(asked, heard, now_s=int(time.time())))


def _stand_back() -> None:
    """Leave the processor to the service; when memory is short, Linux ends this process and not that one."""
    os.nice(10)
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
