"""What a run of a steward saves against plain LRU, kept in the tables by day."""

from __future__ import annotations

import dataclasses
import datetime as dt
import logging
from collections.abc import Mapping
from typing import Final

from features.common.errors import CachecastError
from features.common.times import DAY_S, day_label
from jobs.ground.caches.steward_days import StewardDay, keep
from jobs.ground.store.tables import Tables
from prefetch.steward.figures import StewardFigures
from replay.steward import Saved

KEEP_EVERY_S: Final = 3600.0

_log = logging.getLogger(__name__)


@dataclasses.dataclass
class _Day:
    """Sums of one day; `orders`: those followed, in the order of their first minute."""

    watched_s: float = 0.0
    evicted_files: int = 0
    evicted_bytes: int = 0
    orders: dict[str, None] = dataclasses.field(default_factory=dict)


class Days:
    """Sums up the figures of one run, and keeps them in `tables` each hour and at the end of a day and a run.

    `model_version`: of the learned order, None without one.
    """

    def __init__(self, tables: Tables, began: StewardFigures, model_version: str | None) -> None:
        self._tables, self._began, self._last = tables, began, began
        self._model_version = model_version
        self._days: dict[int, _Day] = {}
        self._kept_s = began.at_s

    def note(self, found: StewardFigures, saved: Mapping[int, Saved], *, is_last: bool = False) -> None:
        """Take the figures of now, and what was saved by day; a table that cannot be written is a warning."""
        number = int(found.at_s // DAY_S)
        ended = number != int(self._last.at_s // DAY_S)
        day = self._days.setdefault(int(self._last.at_s // DAY_S), _Day())
        day.watched_s += max(0.0, found.at_s - self._last.at_s)
        day.evicted_files += found.evicted_files - self._last.evicted_files
        day.evicted_bytes += found.evicted_bytes - self._last.evicted_bytes
        day.orders[found.following] = None
        self._last = found
        if ended or is_last or found.at_s - self._kept_s >= KEEP_EVERY_S:
            self._kept_s = found.at_s
            self._keep(saved)
            self._days = {of: sums for of, sums in self._days.items() if of == number}

    def _keep(self, saved: Mapping[int, Saved]) -> None:
        for number, day in self._days.items():
            none_yet = Saved(0, 0)
            row = StewardDay(
                started_at=dt.datetime.fromtimestamp(int(self._began.started_s), dt.UTC),
                watched_s=round(day.watched_s),
                orders=", ".join(day.orders),
                model_version=self._model_version,
                wan_bytes=saved.get(number, none_yet).our_bytes,
                lru_wan_bytes=saved.get(number, none_yet).lru_bytes,
                evicted_files=day.evicted_files,
                evicted_bytes=day.evicted_bytes,
            )
            try:
                keep(self._tables, row, cache=self._began.cache, day=day_label(number * DAY_S))
            except CachecastError as error:
                _log.warning("what the steward saved on %s is not kept: %s", day_label(number * DAY_S), error)
