"""What the queues say of a cache's files, for its steward, as the tables have it now."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from features.common.errors import CachecastError
from features.schema import QUEUE
from jobs.ground.caches.paths import Paths
from jobs.ground.settings.tree import CacheSettings
from jobs.ground.store.tables import Tables

AGAIN_S: Final = 900.0
"""What is read stays so long, unless a queue reports anew: entries become stale."""

_log = logging.getLogger(__name__)


class Queued:
    """Reads when queued work is expected to read each file, by its path in the cache, s since 1970.

    A job without an expected start may begin at once: it is due when a queue named its files first. So the
    longer it waits, the less it is believed. Tables that cannot be read say nothing.
    """

    def __init__(self, tables: Tables, cache: CacheSettings) -> None:
        self._tables, self._cache = tables, cache
        self._due_s: dict[str, float] = {}
        self._read: tuple[str, float] | None = None

    def due_s(self, now_s: float) -> Mapping[str, float]:
        """What is known at `now_s`."""
        try:
            queues = self._tables.head(QUEUE)
            if queues.number and (
                self._read is None or queues.id != self._read[0] or now_s - self._read[1] >= AGAIN_S
            ):
                self._due_s, self._read = self._known(int(now_s)), (queues.id, now_s)
        except CachecastError as error:
            _log.warning("the order goes without queues: %s", error)
            self._due_s, self._read = {}, None
        return self._due_s

    def _known(self, as_of_s: int) -> dict[str, float]:
        # It loads pandas, for which a steward without a queue has no use.
        from jobs.loop.ingest.queue import known_work  # noqa: PLC0415

        queued = known_work(self._tables, as_of_s=as_of_s, cache=self._cache.name, site=self._cache.at_site)
        paths = Paths.last(self._tables, self._cache, at_s=as_of_s)
        names = paths.known(queued.files["did"].combine_chunks()).to_pylist()
        return {
            name: as_of_s + wait_s if wait_s else min(as_of_s, self._due_s.get(name, as_of_s))
            for name, wait_s in zip(names, queued.files["wait_s"].to_pylist(), strict=True)
            if name is not None
        }
