"""Optional facts of an access: when it ended, and how many bytes it read."""

from __future__ import annotations

import numpy as np

from features.arrays import IntArray
from replay.read.rows import Rows, pick
from replay.read.source import Source
from replay.read.times import read_closes
from replay.read.values import UNKNOWN, least


def closes(
    source: Source, name: str | None, rows: Rows, time_s: IntArray, time_unit: str
) -> tuple[IntArray | None, int]:
    """When each access ended (int64[n]), and the number of accesses stated to end before they began.

    These, and accesses without an end, end at once. None: every access ends at once.
    """
    if name is None:
        return None, 0
    ticks, absent = read_closes(source, name, time_unit)
    if absent.all():
        return None, 0
    stated = ticks.seconds(rows)
    close_s = np.where(pick(rows, absent), time_s, stated)
    n_early = int((close_s < time_s).sum())
    close_s = np.maximum(close_s, time_s)
    return (close_s if (close_s > time_s).any() else None), n_early


def reads(
    source: Source, name: str | None, rows: Rows, n_reads: IntArray | None, size_bytes: IntArray
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
