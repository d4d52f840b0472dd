"""Lists, times and traces as they are typed on the command line."""

from __future__ import annotations

import atexit
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from features.common.errors import InputError
from features.common.times import DAY_S, as_of_label, parse_as_of, parse_day
from features.common.units import parse_bytes, parse_duration

if TYPE_CHECKING:
    from jobs.ground.settings.tree import Settings

_MOST_SPAN = 100_000
STDIN = Path("-")


def moments(settings: Settings, as_of: str | None, day: str | None, of: str = "accesses") -> list[int]:
    """The one moment `as_of`, every cycle of `day` that has begun, or the newest of the table `of`, in s.

    What is not known yet would be judged, and kept, as if it were all. Raises InputError.
    """
    if as_of is not None and day is not None:
        raise InputError("give either --as-of or --day, or neither for the newest time")
    cycle_s = settings.features.cycle
    if day is None:
        return [come(settings, as_of, of)]
    first, now_s = parse_day(day), int(time.time())
    if first > now_s:
        raise InputError(f"the day {day} has not begun")
    return list(range(first, min(first + DAY_S, now_s + 1), min(cycle_s, DAY_S)))


def come(settings: Settings, as_of: str | None, of: str = "accesses") -> int:
    """The moment `as_of`, up to a cycle from now, else `newest` of the table `of`. Raises InputError.

    What a later one leaves would be the newest, and count, until it comes.
    """
    if as_of is None:
        return newest(settings, of)
    at_s, now_s = parse_as_of(as_of), int(time.time())
    if at_s > now_s + settings.features.cycle:
        raise InputError(f"{as_of} has not come: this machine's clock says {as_of_label(now_s)}")
    return at_s


def newest(settings: Settings, of: str, as_of: str | None = None, *, cache: str | None = None) -> int:
    """The moment `as_of`, else the newest of a table for the region, or of the plans of `cache`, in s.

    Of accesses, the last cycle that has begun, or the end of their newest day; without any, the last cycle.
    Raises InputError.
    """
    if as_of is not None:
        return parse_as_of(as_of)
    from features.schema import ACCESSES, PREDICTIONS
    from jobs.ground.store.tables import Tables

    known = {"accesses": ACCESSES, "predictions": PREDICTIONS}
    table = known.get(of, settings.features.spec.features_table)
    now_s = int(time.time())
    begun_s = now_s - now_s % settings.features.cycle
    if cache is not None:
        from jobs.loop.plan.items import newest_plan

        plans = newest_plan(Tables.of(settings), cache, until=as_of_label(now_s))
        return next((parse_as_of(key[1]) for key in plans.partitions), begun_s)
    by_day = table is ACCESSES
    owner, until = (None, None) if by_day else (settings.region.name, as_of_label(now_s))
    partitions = Tables.of(settings).newest(table, owner=owner, until=until).partitions
    for key in partitions:
        return min(begun_s, parse_day(key[0]) + DAY_S) if by_day else parse_as_of(key[1])
    return begun_s


def days(since: str, until: str) -> tuple[str, str]:
    """Both days, checked. Raises InputError."""
    if parse_day(until) < parse_day(since):
        raise InputError(f"--to {until} is before --from {since}")
    return since, until


def shares(text: str) -> list[float]:
    """Numbers above 0 and up to 1 of `0.05,0.1`, each once. Raises InputError."""
    return list(dict.fromkeys(_shares(text)))


def _shares(text: str) -> list[float]:
    try:
        numbers = [float(f"{float(part):.12g}") for part in names(text)]
    except ValueError:
        numbers = [0.0]
    if not all(0 < share <= 1 for share in numbers):
        raise InputError(f"not shares between 0 and 1: {text[:100]!r}; write for example 0.05,0.1,0.2")
    return numbers


def share(text: str) -> float:
    """The one number above 0 and up to 1 of `0.05`. Raises InputError."""
    numbers = shares(text)
    if len(numbers) != 1:
        raise InputError(f"not one share: {text[:100]!r}; write for example 0.05")
    return numbers[0]


def counts(text: str) -> list[int]:
    """Whole numbers from 1 of `1,4,13`. Raises InputError."""
    parts = [part.strip() for part in text.split(",")]
    if not all(map(_is_count, parts)):
        raise InputError(f"not counts of 1 or more: {text[:100]!r}; write for example 1,4,13,26")
    return [int(part) for part in parts]


def spans(text: str) -> list[int]:
    """The whole numbers from 1 of `52-60,64`, rising. Raises InputError."""
    numbers: set[int] = set()
    for part in text.split(","):
        low, dash, high = (piece.strip() for piece in part.partition("-"))
        ends = [low, high] if dash else [low, low]
        if not all(_is_count(end) and int(end) <= _MOST_SPAN for end in ends):
            raise InputError(f"not numbers or spans from 1: {text[:100]!r}; write for example 52-60,64")
        numbers.update(range(int(ends[0]), int(ends[1]) + 1))
    return sorted(numbers)


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 10 and int(text) > 0


def watermarks(text: str) -> tuple[float, float]:
    """Low and high of `0.85,0.95`, which may be equal. Raises InputError."""
    marks = _shares(text)
    if len(marks) != 2 or marks[0] > marks[1]:
        raise InputError(f"not a low and a high watermark: {text[:100]!r}; write for example 0.85,0.95")
    return marks[0], marks[1]


def day(text: str | None) -> int | None:
    """The first second of a UTC day, since 1970; None if none is given. Raises InputError."""
    return None if text is None else parse_day(text)


def moment(text: str | None) -> int | None:
    """A time in seconds since 1970; None if none is given. Raises InputError."""
    return None if text is None else parse_as_of(text)


def come_or_now(settings: Settings, as_of: str | None) -> int:
    """The moment `as_of`, up to a cycle from now, in seconds since 1970; else now. Raises InputError."""
    return int(time.time()) if as_of is None else come(settings, as_of)


def names(text: str) -> list[str]:
    """The names in `lru,gdsf`, none in an empty text. Raises InputError for commas without any."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if text and not parts:
        raise InputError(f"{text[:100]!r} names nothing; leave the option out, or write for example a,b")
    return parts


def sizes(text: str) -> list[int]:
    """The sizes above 0 in `50TB,100TB`, in bytes. Raises InputError."""
    numbers = [parse_bytes(part) for part in names(text)]
    if 0 in numbers:
        raise InputError(f"a cache needs room: {text[:100]!r}; write for example 50TB,100TB")
    return numbers


def seconds(text: str) -> int:
    """The seconds of `300`, `300s` or `5m`. Raises InputError."""
    return parse_duration(f"{text}s" if text.isdecimal() else text)


def source_and_path(text: str) -> tuple[str, str]:
    """Source and path of `rucio_traces=/data/traces/`. Raises InputError."""
    source, equals, path = text.partition("=")
    if not (source and equals and path):
        raise InputError(f"not SOURCE=PATH: {text[:100]!r}; write for example rucio_traces=/data/traces/")
    return source, path


def kept_stdin() -> Path:
    """A file with what comes on stdin, which is opened more than once; it goes when the command ends."""
    if sys.stdin.isatty():
        raise InputError("--trace - reads a trace from stdin, and that is a terminal; pipe one into it")
    folder = Path(tempfile.mkdtemp(prefix="cachecast-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    with (folder / "stdin").open("wb") as copy:
        shutil.copyfileobj(sys.stdin.buffer, copy)
    return folder / "stdin"


def columns(text: str) -> dict[str, str]:
    """The names in `time=t,item=id`, by role. Raises InputError."""
    pairs = [part.partition("=") for part in text.split(",") if part]
    if not all(role.strip() and equals for role, equals, _ in pairs):
        raise InputError(f"not names of columns: {text[:100]!r}; write for example time=t,item=id,size=size")
    return {role.strip(): name.strip() for role, _, name in pairs}
