"""What a cache's steward saved against plain LRU, by day; rows that wait while the tables are unavailable.

The steward writes them, `outcomes` and the operator's page read them.
"""

import contextlib
import dataclasses
import datetime as dt
import logging
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import pydantic

from features.common import files
from features.common.errors import InputError
from features.common.times import day_label, parse_day
from features.results import STEWARD_DAYS
from jobs.ground.store.tables import Tables
from jobs.ground.text import Row
from prefetch.steward.lists import Asking

_log = logging.getLogger(__name__)
SILENT_S: Final = 60.0  # tables that have not answered for so long are unavailable
_SUMS = ("watched_s", "wan_bytes", "lru_wan_bytes", "saved_wan_bytes", "evicted_files", "evicted_bytes")
_Count = Annotated[int, pydantic.Field(ge=0, lt=2**62)]
_Day = Annotated[str, pydantic.AfterValidator(lambda day: day_label(parse_day(day)))]


@dataclasses.dataclass(frozen=True)
class StewardDay:
    """The figures of one run of a steward on one day so far; see `features.results.STEWARD_DAYS`."""

    started_at: pydantic.AwareDatetime
    watched_s: _Count
    orders: str
    model_version: str | None
    wan_bytes: _Count
    lru_wan_bytes: _Count
    evicted_files: _Count
    evicted_bytes: _Count


def keep(tables: Tables, steward_day: StewardDay, *, cache: str, day: str) -> None:
    """Replace the row of this run on `day` (`2026-03-01`); those of runs before it stay."""
    saved = {"saved_wan_bytes": steward_day.lru_wan_bytes - steward_day.wan_bytes}
    row, runs = dataclasses.asdict(steward_day) | saved, of_day(tables, cache=cache, day=day)
    others = [run for run in runs if run["started_at"] != steward_day.started_at]
    tables.replace_rows(STEWARD_DAYS, [*others, row], (day, cache))


def of_day(tables: Tables, *, cache: str, day: str) -> list[Row]:
    """The runs of the cache's steward on `day`; empty if there was none."""
    rows = tables.head(STEWARD_DAYS).rows(since=day, until=day, owner=cache)
    return list(rows.sort_by("started_at").to_pylist())


def by_day(tables: Tables, *, cache: str, since: str | None, until: str | None = None) -> list[Row]:
    """The runs of each day together, the oldest day first."""
    rows = tables.head(STEWARD_DAYS).rows(since=since, until=until, owner=cache)
    days: dict[str, list[Row]] = {}
    for row in rows.sort_by([("day", "ascending"), ("started_at", "ascending")]).to_pylist():
        days.setdefault(row["day"], []).append(row)
    return [{"day": day, **_sum_of_runs(runs)} for day, runs in days.items()]


def _sum_of_runs(runs: list[Row]) -> dict[str, object]:
    texts = {
        name: ", ".join(dict.fromkeys(word for run in runs if run[name] for word in run[name].split(", ")))
        for name in ("orders", "model_version")
    }
    return {**texts, **{name: sum(run[name] for run in runs) for name in _SUMS}}


_ROWS: Final = pydantic.TypeAdapter(list[tuple[_Day, StewardDay]])
_MOST_BYTES: Final = 2**24
_RunDay = tuple[str, dt.datetime]


class WaitingDays:
    """Rows of a cache's steward that wait in `file` until they are in the tables; they survive a restart.

    A thread writes them, as tables may hang. `fault`: why rows still wait; None while no write has failed.
    """

    def __init__(self, tables: Tables, cache: str, file: Path) -> None:
        self.fault: str | None = None
        self._tables, self._cache, self._file = tables, cache, file
        self._rows = self._read_file()
        self._sending: Asking[dict[_RunDay, StewardDay]] | None = None

    def add(self, rows: Mapping[str, StewardDay]) -> None:
        """Queue rows by day (`2026-03-01`); each replaces an older row of the same run and day."""
        self._rows |= {(day, row.started_at): row for day, row in rows.items()}
        self._write_file()

    def send(self, within_s: float = 0.0) -> None:
        """Write the waiting rows to the tables; return after `within_s` at the latest."""
        until = time.monotonic() + within_s
        while self._rows:
            if self._sending is None:
                self._sending = Asking(partial(self._write_rows, dict(self._rows)))
            self._sending.join(max(0.0, until - time.monotonic()))
            if self._sending.is_alive():
                if time.monotonic() - self._sending.began_s > SILENT_S:
                    self._note_fault(f"they have not answered for {SILENT_S:.0f} s")
                return
            sent, self._sending = self._sending, None
            if sent.answer is None:
                return self._note_fault(str(sent.fault))
            self._rows = {key: row for key, row in self._rows.items() if sent.answer.get(key) != row}
            self.fault = None
            self._write_file()

    def _write_rows(self, rows: dict[_RunDay, StewardDay]) -> dict[_RunDay, StewardDay]:
        for (day, _), row in rows.items():
            keep(self._tables, row, cache=self._cache, day=day)
        return rows

    def _note_fault(self, why: str) -> None:
        fault = f"the figures of {len({day for day, _ in self._rows})} days wait for the tables: {why}"
        if self.fault is None:
            _log.warning("%s", fault)
        self.fault = fault

    def _write_file(self) -> None:
        try:
            if self._rows:
                rows = [(day, row) for (day, _), row in self._rows.items()]
                files.write(self._file, _ROWS.dump_json(rows), mode=0o600)
            else:
                self._file.unlink(missing_ok=True)
        except OSError as error:
            _log.warning("figures that wait for the tables would not outlive a restart: %s", error)

    def _read_file(self) -> dict[_RunDay, StewardDay]:
        try:
            rows = _ROWS.validate_json(files.read_own(self._file, _MOST_BYTES))
            return {(day, row.started_at): row for day, row in rows}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, InputError) as error:
            what, aside = type(error).__name__, self._file.with_suffix(".damaged")
            _log.warning("what waits for the tables in %s cannot be read: %s", aside.name, what)
            with contextlib.suppress(OSError):
                self._file.replace(aside)
            return {}
