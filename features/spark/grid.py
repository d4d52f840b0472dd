"""Instants and the grid of cycles. Inside `features.spark` an instant is a long: seconds since 1970, UTC.

Cycles start at multiples of `cycle_s`, and every as_of is such a multiple. So an instant is before as_of if
and only if the next boundary after it is as_of or earlier, and whole seconds and cycles suffice to compare.
Nothing here depends on the session's time zone.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from features.times import DAY_S

_THURSDAY = 3  # 1970-01-01


def cycle_start(instant: Column, cycle_s: int) -> Column:
    """Start of the cycle of `instant` (timestamp), in seconds."""
    seconds = F.unix_seconds(instant)
    return seconds - F.pmod(seconds, F.lit(cycle_s))


def next_boundary(instant: Column, cycle_s: int) -> Column:
    """The first boundary after `instant` (timestamp): the first as_of that may know of it."""
    return cycle_start(instant, cycle_s) + F.lit(cycle_s)


def checked_as_ofs(as_ofs: Iterable[int], cycle_s: int) -> list[int]:
    """`as_ofs` sorted, each once. Raises ValueError if there is none or one is off the grid."""
    checked = sorted(set(as_ofs))
    if not checked:
        raise ValueError("no as_of given")
    if off := [as_of for as_of in checked if as_of % cycle_s]:
        raise ValueError(f"as_of must be a multiple of {cycle_s} s since 1970, got {off[0]}")
    return checked


def as_of_frame(spark: SparkSession, as_ofs: Iterable[int]) -> DataFrame:
    """A small table of one column, as_of (long)."""
    return spark.range(1).select(F.explode(F.array(*(F.lit(a).cast("long") for a in as_ofs))).alias("as_of"))


def long_array(values: Iterable[int]) -> Column:
    """A constant array, parsed from one text: a JVM call per number takes seconds per query."""
    return F.expr(f"array({', '.join(f'{value}L' for value in values)})")


def day_text(instant_s: Column) -> Column:
    """The UTC day as text: `2026-03-01`."""
    return F.date_from_unix_date(F.floor(instant_s / F.lit(DAY_S)).cast("int")).cast("string")


def as_of_text(instant_s: Column) -> Column:
    """The instant as text: `2026-03-01T04:00:00Z`."""
    second = F.pmod(instant_s, F.lit(DAY_S)).cast("int")
    hour, minute = F.floor(second / 3600), F.floor(second / 60) % 60
    clock = F.format_string("%02d:%02d:%02d", hour, minute, second % 60)
    return F.concat(day_text(instant_s), F.lit("T"), clock, F.lit("Z"))


def instant_of_text(text: Column) -> Column:
    """Seconds since 1970 from `2026-03-01T04:00:00Z`."""
    return F.unix_seconds(text.cast("timestamp"))


def hour_of_day(instant_s: Column) -> Column:
    """0 to 23, UTC."""
    return F.floor(F.pmod(instant_s, F.lit(DAY_S)) / 3600)


def weekday(instant_s: Column) -> Column:
    """Monday 0 to Sunday 6, UTC."""
    return F.pmod(F.floor(instant_s / F.lit(DAY_S)) + F.lit(_THURSDAY), F.lit(7))
