"""The grid of cycles as expressions of Spark; none depends on the session's time zone.

Cycles start at multiples of `cycle_s`, and every as_of is such a multiple. So an instant is before as_of if
and only if the next boundary after it is as_of or earlier, and whole seconds suffice to compare.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F


def next_boundary(instant: Column, cycle_s: int) -> Column:
    """The first boundary after `instant` (timestamp), in seconds: the first as_of that may know of it."""
    seconds = F.unix_seconds(instant)
    return seconds - F.pmod(seconds, F.lit(cycle_s)) + F.lit(cycle_s)
