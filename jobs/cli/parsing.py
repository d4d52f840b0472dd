"""Lists and moments as they are typed on the command line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from features.errors import InputError
from features.times import DAY_S, parse_as_of, parse_day

if TYPE_CHECKING:
    from jobs.store.traces import Beside, TraceFile

_MOST_SPAN = 100_000


def moments(as_of: str | None, day: str | None, cycle_s: int) -> list[int]:
    """The one moment `as_of`, or every cycle of `day`, in seconds since 1970. Raises InputError."""
    if (as_of is None) == (day is None):
        raise InputError("give either --as-of or --day")
    if as_of is not None:
        return [parse_as_of(as_of)]
    first = parse_day(str(day))
    return list(range(first, first + DAY_S, min(cycle_s, DAY_S)))


def shares(text: str) -> list[float]:
    """Numbers above 0 and up to 1 of `0.05,0.1`. Raises InputError."""
    try:
        found = [float(part) for part in text.split(",") if part]
    except ValueError:
        found = [0.0]
    if not all(0 < share <= 1 for share in found):
        raise InputError(f"not shares between 0 and 1: {text!r}; write for example 0.05,0.1,0.2")
    return found


def share(text: str) -> float:
    """The one number above 0 and up to 1 of `0.05`. Raises InputError."""
    found = shares(text)
    if len(found) != 1:
        raise InputError(f"not one share: {text!r}; write for example 0.05")
    return found[0]


def counts(text: str) -> list[int]:
    """Whole numbers from 1 of `1,4,13`. Raises InputError."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise InputError(f"not counts of 1 or more: {text!r}; write for example 1,4,13,26")
    return [int(part) for part in parts]


def spans(text: str) -> list[int]:
    """The whole numbers from 1 of `52-60,64`, rising. Raises InputError."""
    found: set[int] = set()
    for part in text.split(","):
        low, dash, high = (piece.strip() for piece in part.partition("-"))
        ends = [low, high] if dash else [low, low]
        if not all(end.isdecimal() and 0 < int(end) <= _MOST_SPAN for end in ends):
            raise InputError(f"not numbers or spans from 1: {text!r}; write for example 52-60,64")
        found.update(range(int(ends[0]), int(ends[1]) + 1))
    return sorted(found)


def watermarks(text: str) -> tuple[float, float]:
    """Low and high of `0.85,0.95`. Raises InputError."""
    found = shares(text)
    if len(found) != 2 or found[0] > found[1]:
        raise InputError(f"not a low and a high watermark: {text!r}; write for example 0.85,0.95")
    return found[0], found[1]


def columns(text: str) -> dict[str, str]:
    """Columns by what they hold, of `time=t,item=id,size=size`. Raises InputError."""
    pairs = [part.partition("=") for part in text.split(",") if part]
    if not all(role.strip() and name.strip() for role, _, name in pairs):
        raise InputError(f"not names of columns: {text!r}; write for example time=t,item=id,size=size")
    return {role.strip(): name.strip() for role, _, name in pairs}


def beside(roles: dict[str, str]) -> Beside:
    """The columns that say more of an access, taken out of `roles`."""
    from jobs.store.traces import BESIDE, Beside

    return Beside(**{role: roles.pop(role) for role in BESIDE if role in roles})


def trace_file(
    path: Path | None,
    roles: dict[str, str],
    time_unit: str,
    kind: str,
    sort: bool,
    site: str | None,
    until: str | None,
) -> TraceFile | None:
    """The trace that these options describe; None if there is none. Raises InputError."""
    from jobs.store.traces import TraceFile

    if path is None:
        if roles or sort or (time_unit, kind) != ("s", "auto"):
            raise InputError("options that describe a trace need one; give --trace")
        return None
    end_s = None if until is None else parse_day(until) + DAY_S
    return TraceFile(path, roles, time_unit, kind, sort, site, end_s)
