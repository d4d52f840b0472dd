"""The operator's pages for the placement service, made in a process of their own."""

from __future__ import annotations

import importlib
import multiprocessing
import threading
import time
from collections.abc import Collection, Mapping
from importlib import resources
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Final

from features.errors import ServiceError
from jobs.settings.tree import Settings
from prefetch.placement.operator import Asked, Heard

PATIENCE_S: Final = 45.0
"""For one page: a file system that does not answer must not hold the next question for ever."""


class Pages:
    """Pages by a process that starts with the first question, and anew after it has failed."""

    def __init__(self, settings: Settings, *, patience_s: float = PATIENCE_S) -> None:
        self.caches: Collection[str] = frozenset(settings.caches)
        self.style = resources.files("jobs.overview").joinpath("style.css").read_bytes()
        self._settings, self._patience_s = settings, patience_s
        self._began_s = time.time()
        self._alone = threading.Lock()
        self._process: SpawnProcess | None = None
        self._questions: Connection | None = None

    def page(self, asked: Asked, heard: Mapping[str, Heard]) -> bytes:
        """The page that answers `asked`. Raises ServiceError if none comes in time."""
        with self._alone:
            try:
                questions = self._questions or self._begin()
                questions.send((asked, heard))
                if questions.poll(self._patience_s):
                    return questions.recv_bytes()
                why = f"no answer within {self._patience_s:.0f} s: do the tables answer?"
            except (EOFError, OSError):
                why = "the process that reads them has ended; its error is in the service's log"
            self._end()
        raise ServiceError(f"the tables cannot be read: {why}")

    def close(self) -> None:
        """End the process, also while a page is awaited."""
        if (process := self._process) is not None:
            process.kill()
        with self._alone:
            self._end()

    def _begin(self) -> Connection:
        context = multiprocessing.get_context("spawn")
        questions, theirs = context.Pipe()
        process = context.Process(target=_attend, args=(theirs, self._settings, self._began_s), daemon=True)
        process.start()
        theirs.close()
        self._process, self._questions = process, questions
        return questions

    def _end(self) -> None:
        if self._process is None or self._questions is None:
            return
        self._questions.close()
        self._process.kill()
        self._process.join()
        self._process = self._questions = None


def _attend(questions: Connection, settings: Settings, began_s: float) -> None:
    # Readers of tables are imported in this process alone: the service that Rucio asks stays small.
    importlib.import_module("jobs.overview.desk").attend(questions, settings, began_s)
