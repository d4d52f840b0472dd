"""The operator's pages for the placement service, rendered in a process of their own.

The service that Rucio asks imports no reader of tables, and waits for none: a file system that hangs holds up
the process here, which is ended and started anew.
"""

import contextlib
import importlib
import multiprocessing
import os
import signal
import time
from collections.abc import Collection, Mapping
from importlib import resources
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Final

from features.common.errors import ServiceError
from jobs.ground.settings.tree import Settings
from prefetch.placement.pages import LastHeartbeat, PageRequest

PATIENCE_S: Final = 45.0  # time for one page, once the process has loaded what it needs
_LOADS_WITHIN_S: Final = 120.0
_END_S: Final = 5.0
_NICE: Final = 5


class PageWorker:
    """Pages by a process that starts with the first question, and anew after it has failed."""

    def __init__(self, settings: Settings, *, patience_s: float = PATIENCE_S) -> None:
        self.caches: Collection[str] = frozenset(settings.caches)
        self.style = resources.files("jobs.operator.overview").joinpath("style.css").read_bytes()
        self._settings, self._patience_s, self._began_s = settings, patience_s, time.time()
        self._running: tuple[SpawnProcess, Connection] | None = None

    def page(self, request: PageRequest, heard: Mapping[str, LastHeartbeat]) -> bytes:
        """The page that answers `request`, for one caller at a time. Raises ServiceError if it is late."""
        try:
            if (running := self._running) is not None:
                questions = running[1]
            else:
                self._running = _, questions = self._started()  # `close` may take it away meanwhile
                if not questions.poll(_LOADS_WITHIN_S):
                    raise TimeoutError
                questions.recv_bytes()
            questions.send((request, heard))
            if questions.poll(self._patience_s):
                return questions.recv_bytes()
            why = f"no answer within {self._patience_s:.0f} s: do the tables answer?"
        except TimeoutError:
            why = f"the process that reads them has not started within {_LOADS_WITHIN_S:.0f} s"
        except (EOFError, OSError):
            why = "the process that reads them has ended; its error is in the service's log"
        self.close()
        raise ServiceError(f"the tables cannot be read: {why}")

    def close(self) -> None:
        """End the process, also while a page is awaited."""
        running, self._running = self._running, None
        if running is not None:
            running[0].kill()
            # Linux ends a process that waits for a dead file server only when that answers.
            running[0].join(_END_S)

    def _started(self) -> tuple[SpawnProcess, Connection]:
        context = multiprocessing.get_context("spawn")
        questions, theirs = context.Pipe()
        process = context.Process(
            target=_serve_pages, args=(theirs, self._settings, self._began_s), daemon=True
        )
        process.start()
        theirs.close()
        return process, questions


def _serve_pages(questions: Connection, settings: Settings, began_s: float) -> None:
    """Answer the `questions` of a service until it ends."""
    # Ctrl-C in a terminal is for the service, which ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # When memory is short, Linux ends this process and not the service.
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    renderer = importlib.import_module("jobs.operator.overview.page").Renderer(settings, began_s=began_s)
    # The processor is the service's, but for loading, which would take minutes beside busy neighbours.
    priority = os.getpriority(os.PRIO_PROCESS, 0) + _NICE
    for thread in Path("/proc/self/task").iterdir():
        with contextlib.suppress(ProcessLookupError):  # it has ended
            os.setpriority(os.PRIO_PROCESS, int(thread.name), priority)
    with contextlib.suppress(EOFError, BrokenPipeError):
        questions.send_bytes(b"loaded")
        while True:
            request, heard = questions.recv()
            questions.send_bytes(renderer.page(request, heard, now_s=int(time.time())).encode())
