"""Days and as_ofs: text in partitions (`2026-03-01`, `2026-03-01T04:00:00Z`), else seconds since 1970."""

import datetime as dt

from features.common.errors import InputError

HOUR_S, DAY_S = 3600, 86400
_END_S = 4102444800  # the year 2100; later times are mistakes, and datetime ends at 9999


def as_of_label(as_of_s: int) -> str:
    """The time as text, `2026-03-01T04:00:00Z`, from seconds since 1970."""
    return dt.datetime.fromtimestamp(as_of_s, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def day_label(at_s: int) -> str:
    """The UTC day as text, `2026-03-01`, from seconds since 1970."""
    return dt.datetime.fromtimestamp(at_s, dt.UTC).strftime("%Y-%m-%d")


def parse_as_of(text: str) -> int:
    """Seconds since 1970 from `2026-03-01T04:00:00Z` or `2026-03-01` (its start). Raises InputError."""
    try:
        time = dt.datetime.fromisoformat(text)
    except ValueError:
        raise InputError(f"not a time: {text[:100]!r}; write for example 2026-03-01T04:00:00Z") from None
    if time.tzinfo is None:
        time = time.replace(tzinfo=dt.UTC)
    return _in_range(int(time.timestamp()), text)


def parse_day(text: str) -> int:
    """Seconds since 1970 at the start of the UTC day `2026-03-01`. Raises InputError."""
    try:
        day_s = int(dt.datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=dt.UTC).timestamp())
    except ValueError:
        raise InputError(f"not a day: {text[:100]!r}; write for example 2026-03-01") from None
    return _in_range(day_s, text)


def _in_range(at_s: int, text: str) -> int:
    if not 0 <= at_s < _END_S:
        raise InputError(f"not a time from 1970 to 2099: {text[:100]!r}")
    return at_s
