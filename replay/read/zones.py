"""Times that a clock on the wall showed, as times in UTC; some it shows twice in a year, some never."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from features.common.arrays import BoolArray, IntArray
from features.common.errors import InputError
from replay.read.source import ColumnSource
from replay.read.values import valid, values_of

EXAMPLE = "Europe/Berlin"


def check_zone(zone: str | None) -> None:
    """Raise InputError if this machine knows no such time zone."""
    if zone is not None:
        try:
            pc.assume_timezone(pa.scalar(0, pa.timestamp("s")), zone, ambiguous="earliest")
        except pa.ArrowInvalid:
            raise InputError(f"no time zone {zone!r}; give one like {EXAMPLE}, or UTC") from None


def in_utc(
    source: ColumnSource, shown: pa.ChunkedArray, cells: pa.ChunkedArray, name: str, zone: str
) -> tuple[IntArray, int]:
    """The times `shown` (timestamps without a zone) in UTC, and how many of them the clock shows twice.

    Of the hour that comes twice at the end of summer time: the first, and the second from where the times
    step back, if these are then in order. `cells`: the column as it is written, for a message.
    Raises InputError naming the first time that the clock never shows.
    """
    try:
        return values_of(pc.assume_timezone(shown, zone).cast(pa.int64())), 0
    except pa.ArrowInvalid:
        first, second = (_assumed(shown, zone, which, "earliest") for which in ("earliest", "latest"))
    is_known = valid(shown)
    never: BoolArray = (_assumed(shown, zone, "earliest", "latest") != first) & is_known
    if never.any():
        row = int(never.argmax())
        raise InputError(
            f"{source.where(row)} has {name} {cell(cells, row)}, which no clock of {zone} shows; correct "
            "the row, or give the right --time-zone"
        )
    twice: BoolArray = (second != first) & is_known
    stepped = np.where(_after_step_back(first, twice), second, first)
    in_order = bool((stepped[1:] >= stepped[:-1]).all())
    return (stepped if in_order else first), int(twice.sum())


def cell(column: pa.ChunkedArray, row: int) -> str:
    """What a column says in a row, for a message; all but numbers in quotes."""
    text = str(column.slice(row, 1).cast(pa.string())[0].as_py())
    return text if pa.types.is_integer(column.type) or pa.types.is_floating(column.type) else repr(text)


def _assumed(shown: pa.ChunkedArray, zone: str, ambiguous: str, nonexistent: str) -> IntArray:
    times = pc.assume_timezone(shown, zone, ambiguous=ambiguous, nonexistent=nonexistent)
    return values_of(times.cast(pa.int64()))


def _after_step_back(first: IntArray, twice: BoolArray) -> BoolArray:
    """Which rows `twice` come after a step back, in a run of such rows."""
    steps = np.zeros(first.size, np.int64)
    steps[1:] = np.cumsum(twice[1:] & twice[:-1] & (first[1:] < first[:-1]))
    begins = twice.copy()
    begins[1:] &= ~twice[:-1]
    # The steps before the run that a row is in: steps never fall, so neither does this.
    before = np.maximum.accumulate(np.where(begins, steps, 0))
    return twice & (steps > before)
