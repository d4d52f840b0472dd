"""A task that waits for a file or a folder (local, HDFS or S3) in Airflow's triggerer, without a worker."""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
import threading
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowSkipException
from airflow.triggers.base import BaseTrigger, TriggerEvent

from features.common.errors import CachecastError

LOOK_EVERY_S = 10.0
_MARGIN_S = 300
"""A busy triggerer may be so late."""
_log = logging.getLogger(__name__)


class Arrived(BaseOperator):
    """Ends when `path` is there; skipped if it is not there `within_s` after the start."""

    template_fields: Sequence[str] = ("path",)

    def __init__(self, *, path: str, within_s: int, **task: Any) -> None:
        super().__init__(**task)
        self.path, self.within_s = path, within_s

    def execute(self, context: Any) -> None:
        """Hand over to the triggerer at once: a look at a file system that hangs would keep the worker."""
        until_s = time.time() + self.within_s
        margin = dt.timedelta(seconds=self.within_s + _MARGIN_S)
        self.defer(trigger=PathTrigger(self.path, until_s), method_name="seen", timeout=margin)

    def seen(self, context: Any, event: bool) -> None:
        """Skip the task if `path` did not arrive; the tasks after it run in either case."""
        if not event:
            raise AirflowSkipException(f"{self.path} did not arrive within {self.within_s} s")


class PathTrigger(BaseTrigger):
    """Fires True when `path` is there, False at `until_s` seconds since 1970."""

    def __init__(self, path: str, until_s: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.path, self.until_s = path, until_s

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """The class and the arguments from which the triggerer makes it again."""
        return "dags.waiting.PathTrigger", {"path": self.path, "until_s": self.until_s}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Look every ten seconds, also at a file system that was unavailable."""
        while not (arrived := await self._look()) and time.time() < self.until_s:
            await asyncio.sleep(min(LOOK_EVERY_S, max(0.1, self.until_s - time.time())))
        yield TriggerEvent(arrived)  # type: ignore[no-untyped-call]

    async def _look(self) -> bool:
        """Whether `path` is there; False if its file system has not answered when the time is over.

        A look that hangs leaves its thread behind; the few threads of asyncio are shared by all triggers.
        """
        loop, answer = asyncio.get_running_loop(), asyncio.Future[bool]()

        def reply(is_seen: bool) -> None:
            if not answer.done():
                answer.set_result(is_seen)

        def look() -> None:
            is_seen = is_there(self.path)
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(reply, is_seen)

        threading.Thread(target=look, daemon=True).start()
        try:
            return await asyncio.wait_for(answer, max(LOOK_EVERY_S, self.until_s - time.time()))
        except TimeoutError:
            _log.warning("cannot look for %s: its file system does not answer", self.path)
            return False


def is_there(path: str) -> bool:
    """Whether a file or a folder is there; False if its file system cannot say."""
    from jobs.ground.store.filesystems import store_at  # noqa: PLC0415  no job is imported to parse a DAG

    try:
        return store_at(path).exists()
    except (CachecastError, OSError) as error:
        _log.warning("cannot look for %s: %s", path, error)
        return False
