"""Bytes and durations as text: `50TB`, `4h`. In the code both are ints (bytes, seconds)."""

import re
from numbers import Integral

from features.common.errors import InputError

TOO_FEW_DAYS = "too few days to tell"
"""Shown in place of bounds where there are too few days to compute them."""

MOST_BYTES, CENTURY_S = 2**62, 100 * 366 * 86400
"""Larger values are mistakes, and would not fit into 64 bits or a date."""

_DECIMAL = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18}
_BINARY = {"k": 2**10, "M": 2**20, "G": 2**30, "T": 2**40, "P": 2**50, "E": 2**60}
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_BYTES = re.compile(r"\s*([0-9]{1,18}(?:\.[0-9]{1,18})?)\s*([KMGTPE]?)(i?)B?\s*", re.IGNORECASE)
_DURATION = re.compile(r"\s*([0-9]{1,10})\s*([smhdw])\s*", re.IGNORECASE)


def parse_bytes(text: str) -> int:
    """Bytes from `50TB` (10^12), `50TiB` (2^40) or a plain number. Raises InputError."""
    match = _BYTES.fullmatch(text)
    if match is None or (match[3] and not match[2]):
        raise InputError(f"not a size: {text[:100]!r}; write for example 50TB, 1.5TiB or 1000000")
    prefix = match[2].upper().replace("K", "k")
    n_bytes = round(float(match[1]) * (_BINARY if match[3] else _DECIMAL)[prefix])
    if n_bytes > MOST_BYTES:
        raise InputError(f"not a size up to 4EiB: {text[:100]!r}")
    return n_bytes


def as_bytes(size: object) -> int:
    """Bytes of a whole number, or of text as `parse_bytes` takes it. Raises InputError."""
    if isinstance(size, str):
        return parse_bytes(size)
    if not isinstance(size, Integral) or isinstance(size, bool):
        raise InputError(
            f"not a size: {size!r:.60}; give bytes as a whole number, or text, for example '50TB'"
        )
    return int(size)


def format_bytes(n_bytes: float) -> str:
    """`n_bytes` with a decimal unit and three significant digits, for example `1.23 TB`."""
    for unit, scale in reversed(_DECIMAL.items()):
        if unit and abs(n_bytes) >= scale:
            digits = ".3g" if abs(n_bytes) < 999.5 * scale else ".0f"
            return f"{n_bytes / scale:{digits}} {unit}B"
    return f"{n_bytes:.0f} B"


def bytes_label(n_bytes: int) -> str:
    """`n_bytes` with a decimal unit, exact to twelve digits and without a space, for example `1.2345TB`."""
    prefix, scale = next((p, s) for p, s in reversed(_DECIMAL.items()) if n_bytes >= s or not p)
    return f"{n_bytes / scale:.12g}{prefix}B"


def parse_duration(text: str) -> int:
    """Seconds from `90s`, `15m`, `4h`, `1d` or `2w`. Raises InputError."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise InputError(f"not a duration: {text[:100]!r}; write for example 90s, 15m, 4h, 1d or 2w")
    seconds = int(match[1]) * _SECONDS[match[2].lower()]
    if seconds > CENTURY_S:
        raise InputError(f"not a duration up to 100 years: {text[:100]!r}")
    return seconds


def duration_label(seconds: int) -> str:
    """The shortest exact label: 86400 gives `1d`, 14400 `4h`, 90 `90s`. Used in column names."""
    for unit in ("d", "h", "m"):
        if seconds and seconds % _SECONDS[unit] == 0:
            return f"{seconds // _SECONDS[unit]}{unit}"
    return f"{seconds}s"


def roughly(seconds: int) -> str:
    """About how long, in one unit: `3d`, `30h`, `12m`. For people."""
    unit = next(size for size in (86400, 3600, 60) if size == 60 or seconds >= 2 * size)
    return duration_label(seconds - seconds % unit)
