"""Days and as_ofs: strings in partitions (`2026-03-01`, `2026-03-01T04:00:00Z`), else seconds since 1970."""

from __future__ import annotations

import datetime as dt

from features.errors import InputError

DAY_S = 86400
_END_S = 4102444800  # the year 2100: what is told later is a mistake, and near 9999 no date can be reckoned


def as_of_label(as_of_s: int) -> str:
    """`2026-03-01T04:00:00Z` of seconds since 1970."""
    return dt.datetime.fromtimestamp(as_of_s, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def day_label(at_s: int) -> str:
    """`2026-03-01`, the UTC day of seconds since 1970."""
    return dt.datetime.fromtimestamp(at_s, dt.UTC).strftime("%Y-%m-%d")


def parse_as_of(text: str) -> int:
    """Seconds since 1970 of `2026-03-01T04:00:00Z` or `2026-03-01` (its first second). Raises InputError."""
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError:
        raise InputError(f"not a time: {text[:100]!r}; write for example 2026-03-01T04:00:00Z") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=dt.UTC)
    return _known(int(moment.timestamp()), text)


def parse_day(text: str) -> int:
    """Seconds since 1970 of the first second of the UTC day `2026-03-01`. Raises InputError."""
    try:
        day_s = int(dt.datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=dt.UTC).timestamp())
    except ValueError:
        raise InputError(f"not a day: {text[:100]!r}; write for example 2026-03-01") from None
    return _known(day_s, text)


def _known(at_s: int, text: str) -> int:
    if not 0 <= at_s < _END_S:
        raise InputError(f"not a time from 1970 to 2099: {text[:100]!r}")
    return at_s
