"""Times of a trace in whole seconds since 1970, and the end and the bytes of an access, where stated."""

import re
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from features.common.arrays import BoolArray, IntArray
from features.common.errors import InputError, SchemaError
from features.common.times import DAY_S
from replay.read.source import ColumnSource
from replay.read.values import (
    UNKNOWN,
    Rows,
    is_text,
    least,
    pick,
    refuse_null,
    texts,
    valid,
    values_of,
    whole_numbers,
)

TickArray: TypeAlias = npt.NDArray[np.int64 | np.float64]

UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}

_YEAR_S = 365.2425 * DAY_S
_LAST_S = 253_402_300_799  # the end of the year 9999, where dates end
_LONGEST_YEARS = 1000
_DIGITS_OF_US = 6


class Clock(NamedTuple):
    """How times are written: numbers in `unit`, or its format; without a zone, those of a clock in `zone`."""

    unit: str = "s"
    zone: str | None = None


UTC_SECONDS = Clock()


class Ticks(NamedTuple):
    """The time of every row in the unit of the source: `per_second` ticks are one second.

    `is_bare`: the times have no zone, and none was given; `n_twice`: those that their clock shows twice.
    `backwards`: in words, where the times run backwards; None: they do not.
    """

    value: TickArray
    per_second: int
    is_bare: bool = False
    n_twice: int = 0
    backwards: str | None = None

    def seconds(self, rows: Rows) -> IntArray:
        """The times of the chosen rows in whole seconds, rounded down."""
        value = pick(rows, self.value)
        whole = value if self.per_second == 1 and value.dtype == np.int64 else value // self.per_second
        return whole.astype(np.int64, copy=False)


def read_ticks(source: ColumnSource, name: str, clock: Clock = UTC_SECONDS) -> Ticks:
    """The column `name` of `source`: numbers, timestamps, days, or ISO 8601 strings.

    The unit may also be a format of `strptime`, which has a `%`, for other strings; `%f` is a fraction of
    1 to 9 digits, after a point or a comma.

    Raises InputError naming the row if a time is missing, negative or malformed, or if the span of times
    shows that the unit is wrong; SchemaError for other types.
    """
    column = source.take(name)
    if not len(column):
        raise InputError(f"{source.label} has no row; choose days or a source that has some")
    refuse_null(source, column, name)
    ticks = _ticks(source, column, name, clock)
    _check(source, ticks, column, name, clock.unit)
    steps_back: BoolArray = ticks.value[1:] < ticks.value[:-1]
    if not steps_back.any():
        return ticks
    row = int(steps_back.argmax()) + 1
    earlier = f"{name} {cell(column, row)}, earlier than {cell(column, row - 1)} in the row before"
    return ticks._replace(backwards=f"{source.where(row)} has {earlier}")


def _ticks(source: ColumnSource, column: pa.ChunkedArray, name: str, clock: Clock) -> Ticks:
    kind, per_second = column.type, UNITS.get(clock.unit, 1)
    if "%" in clock.unit and (is_text(kind) or pa.types.is_integer(kind)):
        return _formatted(source, column.cast(pa.string()), name, clock)
    if pa.types.is_timestamp(kind):
        return _stamped(source, column, column, name, clock)
    if pa.types.is_date(kind):
        days = column.cast(pa.date32())
        return _stamped(source, days.cast(pa.timestamp("s")), days, name, clock)
    if pa.types.is_floating(kind):
        values = values_of(column.cast(pa.float64()))
        wrong = ~np.isfinite(values) & valid(column)
        if wrong.any():
            row = int(wrong.argmax())
            raise InputError(f"{source.where(row)} has {name} {values[row]}; correct or drop the row")
        return Ticks(values, per_second)
    if pa.types.is_integer(kind):
        return Ticks(whole_numbers(source, column, name), per_second)
    if is_text(kind):
        plain = column.cast(pa.string())
        for number in (pa.int64(), pa.float64()):
            try:
                return _ticks(source, plain.cast(number), name, clock)
            except pa.ArrowInvalid:
                continue
        return _iso(source, plain, name, clock)
    raise SchemaError(f"{source.label}: {name} is {kind}; times are numbers, timestamps or ISO 8601 strings")


def _stamped(
    source: ColumnSource, times: pa.ChunkedArray, cells: pa.ChunkedArray, name: str, clock: Clock
) -> Ticks:
    """The timestamps `times`, which the column `cells` says; those without a zone are the clock's."""
    per_second = UNITS[times.type.unit]
    if times.type.tz is not None or clock.zone is None:
        return Ticks(values_of(times.cast(pa.int64())), per_second, is_bare=times.type.tz is None)
    value, n_twice = in_utc(source, times, cells, name, clock.zone)
    return Ticks(value, per_second, n_twice=n_twice)


def _formatted(source: ColumnSource, column: pa.ChunkedArray, name: str, clock: Clock) -> Ticks:
    form = clock.unit
    whole, fraction, short = column, None, form
    if "%f" in form:
        pattern, short = _with_fraction(form)
        whole = pc.if_else(
            pc.match_substring_regex(column, pattern),
            pc.replace_substring_regex(column, pattern, r"\1\3"),
            None,
        )
        fraction = pc.replace_substring_regex(column, pattern, r"\2")
    times = pc.strptime(whole, format=short, unit="s", error_is_null=True)
    if times.null_count > column.null_count:
        row = pc.index(pc.and_(pc.is_null(times), pc.is_valid(column)), True).as_py()
        raise InputError(
            f"{source.where(row)} has {name} {column[row].as_py()!r}, which is not like {form!r}"
        )
    if "%z" in form:
        times = times.cast(pa.timestamp("s", tz="UTC"))
    ticks = _stamped(source, times, column, name, clock)
    if fraction is None:
        return ticks
    padded = pc.utf8_slice_codeunits(pc.utf8_rpad(fraction, _DIGITS_OF_US, "0"), 0, _DIGITS_OF_US)
    value = ticks.value * UNITS["us"] + values_of(padded.cast(pa.int64()))
    return ticks._replace(value=value, per_second=UNITS["us"])


_DIGITS = dict.fromkeys("mdHIMSy", r"\d{1,2}") | {
    "Y": r"\d{4}",
    "j": r"\d{1,3}",
    "e": r"\s*\d{1,2}",
    "%": "%",
}
_DIGITS |= {"T": r"\d{1,2}:\d{1,2}:\d{1,2}", "F": r"\d{4}-\d{1,2}-\d{1,2}", "z": r"(?:Z|[+-]\d{2}:?\d{2})"}


def _with_fraction(form: str) -> tuple[str, str]:
    """A pattern of texts like `form`: what is before the fraction, its digits, and what follows; and `form`
    without the fraction, which Arrow's strptime does not know.
    """
    before, _, after = form.partition("%f")
    has_point = before.endswith((".", ","))
    before = before[:-1] if has_point else before
    point = "[.,]" if has_point else ""
    return f"^({_pattern(before)}){point}(\\d{{1,9}})({_pattern(after)})$", before + after


def _pattern(form: str) -> str:
    pieces = re.split(r"(%.|\s+)", form)
    known = ((piece, _DIGITS.get(piece[1:], r"[^\d,;]+?")) for piece in pieces if piece.startswith("%"))
    by_piece = dict(known)
    return "".join(
        by_piece.get(piece) or (r"\s*" if piece.isspace() else re.escape(piece)) for piece in pieces
    )


def _iso(source: ColumnSource, column: pa.ChunkedArray, name: str, clock: Clock) -> Ticks:
    # With a point before the fraction, and no more digits than Arrow reads.
    plain = pc.replace_substring_regex(column, r"(:\d{2})[.,](\d{1,6})\d*", r"\1.\2")
    # Arrow has different types for times with and without a zone; a file may have either.
    for text in (column, plain):
        for kind in (pa.timestamp("us", tz="UTC"), pa.timestamp("us")):
            try:
                times = text.cast(kind)
            except pa.ArrowInvalid:
                continue
            return _stamped(source, times, column, name, clock)
    row = _odd_one(column)
    raise InputError(
        f"{source.where(row)} has {name} {column[row].as_py()!r}; times are numbers or "
        "2026-03-01T04:00:00Z, all with a zone or all without; give others a format, for example --time-unit "
        "'%d/%m/%Y %H:%M:%S'"
    )


def _odd_one(column: pa.ChunkedArray) -> int:
    """The first row that does not look like a time, or else the first that is written unlike row 0."""
    time_pattern = r"^\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}([.,]\d+)?)?)?"
    is_time = pc.match_substring_regex(column, time_pattern)
    is_number = pc.match_substring_regex(column, r"^-?\d+(\.\d+)?$")
    zoned = pc.match_substring_regex(column, time_pattern + r"(Z|[+-]\d{2}:?\d{2})$")
    malformed: int = pc.index(pc.or_(is_time, is_number), False).as_py()
    if malformed >= 0:
        return malformed
    unlike = (pc.index(like, not like[0].as_py()).as_py() for like in (is_time, zoned))
    return max(0, int(max(unlike)))


def _check(source: ColumnSource, ticks: Ticks, column: pa.ChunkedArray, name: str, time_unit: str) -> None:
    first, last = ticks.value.min(), ticks.value.max()
    if first < 0:
        row = int(ticks.value.argmin())
        what = f"{name} {cell(column, row)}"
        raise InputError(f"{source.where(row)} has {what}, before 1970; correct or drop the row")
    years = float(last - first) / ticks.per_second / _YEAR_S
    if years > _LONGEST_YEARS or last / ticks.per_second > _LAST_S:
        row = int(ticks.value.argmax())
        raise InputError(
            f"{source.label}: {name} spans {years:.0f} years and reaches {last} ({source.where(row)}) in "
            f"units of {time_unit}; give the right --time-unit, one of {', '.join(UNITS)}"
        )


def closes(
    source: ColumnSource, name: str | None, rows: Rows, time_s: IntArray, clock: Clock
) -> tuple[IntArray | None, int]:
    """When each access ended (int64[n]), and the number of accesses stated to end before they began.

    These, and accesses without an end, end at once. None: every access ends at once.
    Raises InputError naming a row if most would be open for years, as with ends in another unit than times.
    """
    if name is None:
        return None, 0
    column = source.take(name)
    if pa.types.is_dictionary(column.type):
        column = texts(source, column, name)
    absent = ~valid(column)
    if absent.all():
        return None, 0
    ticks = _ticks(source, column, name, clock)
    if absent.any():
        ticks = ticks._replace(value=np.where(absent, 0, ticks.value))
    stated = np.flatnonzero(~pick(rows, absent))
    open_s = pick(rows, ticks.value)[stated] / ticks.per_second - time_s[stated]
    # A timestamp has its unit with it; and some files may be said never to close.
    if not pa.types.is_temporal(column.type) and stated.size < 2 * np.count_nonzero(open_s > _YEAR_S):
        first = stated[np.argmax(open_s > _YEAR_S)]
        row = int(first if rows is None else rows[first])
        raise InputError(
            f"{source.where(row)} has {name} {cell(column, row)}, more than a year after it opens; give it "
            "in the unit of the times, or correct the row"
        )
    close_s = np.where(pick(rows, absent), time_s, ticks.seconds(rows))
    n_early = int((close_s < time_s).sum())
    close_s = np.maximum(close_s, time_s)
    return (close_s if (close_s > time_s).any() else None), n_early


def reads(
    source: ColumnSource, name: str | None, rows: Rows, n_reads: IntArray | None, size_bytes: IntArray
) -> tuple[IntArray | None, int]:
    """Bytes that each access read (int64[n]), and the number of accesses stated to read more than their file.

    `size_bytes`: of each access's file. These accesses, and those without a number, read the whole file. In a
    row of k reads, each reads one k-th of the row's bytes. None: every access reads its whole file.
    Raises InputError for a negative number.
    """
    if name is None:
        return None, 0
    stated = least(source, source.take(name), name, 0)
    if n_reads is not None:
        stated = np.where(stated == UNKNOWN, UNKNOWN, stated // n_reads)
    read = pick(rows, stated)
    n_long = int((read > size_bytes).sum())
    read = np.where((read == UNKNOWN) | (read > size_bytes), size_bytes, read)
    return (read if (read < size_bytes).any() else None), n_long


def check_zone(zone: str | None) -> None:
    """Raise InputError if this machine knows no such time zone."""
    if zone is not None:
        try:
            pc.assume_timezone(pa.scalar(0, pa.timestamp("s")), zone, ambiguous="earliest")
        except pa.ArrowInvalid:
            raise InputError(f"no time zone {zone!r}; give one like Europe/Berlin, or UTC") from None


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
