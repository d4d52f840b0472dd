"""What a steward reports of itself: to its log, to Prometheus and to `cachecast status`."""

from __future__ import annotations

import dataclasses
import json
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import pydantic

from features.common import files
from features.common.errors import InputError, bounded, printable
from features.common.times import HOUR_S

_NEWEST: Final = 20
"""Evictions that are reported one by one."""
_MAX_NAME_CHARS: Final = 300
_MAX_FILE_BYTES: Final = 1 << 20

_Count = Annotated[int, pydantic.Field(gt=-(2**63), lt=2**63)]
_Time = Annotated[float, pydantic.Field(ge=0, lt=4102444800)]


@dataclasses.dataclass(frozen=True)
class Eviction:
    """A confirmed eviction; `reason`: why this file, in words."""

    at_s: _Time
    name: str
    evicted_bytes: _Count
    reason: str


@dataclasses.dataclass(frozen=True)
class Evicted:
    """Files evicted for one reason, and their bytes."""

    files: _Count
    bytes: _Count


@dataclasses.dataclass(frozen=True)
class StewardFigures:
    """A steward at `at_s`, s since 1970. Counts are since its start.

    `following`: the eviction order in use. Evictions begin above `target_bytes`, the cache's own purge above
    `high_bytes`. `first_files`, `first_bytes`: on disk, and first to go as plans evict them or only
    monitoring reads them. `inflow_bytes`: the 99 % quantile of what arrives between two looks. `kept`:
    evictions that the cache refused or did not confirm in time. `lost`: datagrams missing. `saved_bytes`:
    what plain LRU would have missed, less what was missed, while it `acts`: evicts what has to go, if
    anything has. `alarms`: texts by name. `last_hour`: evictions by reason. `newest`: the last evictions,
    newest first. `version`: of the models, and since when it serves this steward; `server`: of the cache's
    server; None without one.
    """

    cache: str
    at_s: _Time
    started_s: _Time
    following: str
    used_bytes: _Count
    target_bytes: _Count
    high_bytes: _Count
    inflow_bytes: _Count
    held_files: _Count
    first_files: _Count
    first_bytes: _Count
    open_files: _Count
    evicted_files: _Count
    evicted_bytes: _Count
    evicted_bytes_hour: _Count
    kept: _Count
    lost: _Count
    rescans: _Count
    saved_bytes: _Count
    alarms: Mapping[str, str]
    last_hour: Mapping[str, Evicted]
    newest: tuple[Eviction, ...]
    version: str | None = None
    version_since_s: _Time | None = None
    server: str | None = None
    acts: bool = True

    @classmethod
    def before(cls, cache: str, at_s: float) -> StewardFigures:
        """The figures of a steward of `cache` that has not begun: without a file nobody would miss it."""
        needed = [field.name for field in dataclasses.fields(cls) if field.default is dataclasses.MISSING]
        none: dict[str, Any] = dict.fromkeys(needed, 0)
        none |= {"cache": cache, "at_s": at_s, "started_s": at_s, "following": "none: it has not begun"}
        return cls(**none | {"alarms": {}, "last_hour": {}, "newest": ()})

    def write(self, path: Path) -> None:
        files.write(path, json.dumps(dataclasses.asdict(self)), settle=False)


_FIGURES: Final = pydantic.TypeAdapter(StewardFigures)


def read(path: Path) -> StewardFigures | None:
    """The figures at `path`; None if there are none. Raises InputError if they are damaged."""
    try:
        if path.exists() and not path.is_file():
            raise ValueError
        with path.open("rb") as opened:
            return _FIGURES.validate_json(opened.read(_MAX_FILE_BYTES), strict=True)
    except FileNotFoundError:
        return None
    except OSError as error:
        why = f"{error.strerror}; let this account read it"
    except ValueError:
        why = "it is damaged, or of another version; restart the steward"
    raise InputError(f"cannot read what the steward reports in {path.name}: {why}")


class Recent:
    """The evictions of the last hour by reason, to the minute, and the newest ones."""

    def __init__(self) -> None:
        self._minutes: deque[tuple[float, dict[str, Evicted]]] = deque()
        self._newest: deque[Eviction] = deque(maxlen=_NEWEST)

    def add(self, at_s: float, name: str, n_bytes: int, reason: str) -> None:
        """Count an eviction at `at_s`, and forget what is older than an hour."""
        minute = at_s // 60 * 60
        if not self._minutes or self._minutes[-1][0] != minute:
            self._minutes.append((minute, {}))
        sums = self._minutes[-1][1]
        before = sums.get(reason, Evicted(0, 0))
        sums[reason] = Evicted(before.files + 1, before.bytes + n_bytes)
        self._newest.appendleft(Eviction(at_s, bounded(printable(name), _MAX_NAME_CHARS), n_bytes, reason))
        while self._minutes[0][0] < at_s - HOUR_S:
            self._minutes.popleft()

    def last_hour(self, now_s: float) -> dict[str, Evicted]:
        hour: dict[str, Evicted] = {}
        for minute, sums in self._minutes:
            for reason, evicted in sums.items() if minute > now_s - HOUR_S else ():
                before = hour.get(reason, Evicted(0, 0))
                hour[reason] = Evicted(before.files + evicted.files, before.bytes + evicted.bytes)
        return hour

    def newest(self) -> tuple[Eviction, ...]:
        return tuple(self._newest)
