"""What a policy's loop reads and writes, its sums per hour, and `fetch`, which loads array elements early.

A replay reads a few bytes of state per access, at random places that are known long before. An early
request hides the time that memory takes. Without it, on zipf10m, LRU takes 1.5 times as long, SIEVE 1.4,
S3-FIFO and the byte bound 1.2.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from features.common.arrays import BoolArray, FloatArray, IntArray
from features.common.jit import kernel
from features.common.times import HOUR_S
from replay.trace import ItemArray, Trace

# Accesses ahead of the current one; values from 8 to 32 are equally fast.
AHEAD = 16


def _emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    array = context.make_array(signature.args[0])(context, builder, args[0])
    byte = ir.IntType(8).as_pointer()
    flag = ir.IntType(32)
    element = builder.bitcast(builder.gep(array.data, [args[1]]), byte)
    declare: Any = cgutils.get_or_insert_function
    function = declare(
        builder.module, ir.FunctionType(ir.VoidType(), [byte, flag, flag, flag]), "llvm.prefetch.p0"
    )
    # Arguments of llvm.prefetch: for reading, to be kept in every level of the cache, data.
    builder.call(function, [element, flag(0), flag(3), flag(1)])
    return context.get_dummy_value()


def _typed(typing_context: Any, array: Any, index: Any) -> Any:
    return types.void(array, types.intp), _emit


# fetch(array, index): begin to load `array[index]` into the processor's cache. A wrong index is harmless.
fetch = cast(Callable[[npt.NDArray[Any], int], None], intrinsic(_typed))


class Accesses(NamedTuple):
    """File ids in time order, sizes per id, the capacity in bytes, and the array where hits are marked."""

    item: ItemArray
    size: IntArray
    capacity: int
    hit: BoolArray


class Part(NamedTuple):
    """Accesses `start` … `stop` - 1."""

    start: int
    stop: int


def accesses(trace: Trace, capacity_bytes: int, hit: BoolArray) -> Accesses:
    """The accesses of `trace`, for a cache of `capacity_bytes`."""
    return Accesses(trace.item, trace.size_bytes, capacity_bytes, hit)


# Columns of Tally.sums: hits; bytes requested, served from disk, and fetched from the origin.
HITS, REQUESTED, HIT_BYTES, FETCHED = range(4)


class Tally(NamedTuple):
    """`hour`: hours since 1970 that have an access, ascending; `sums`: int64[hours, 4].

    `first`: index of each hour's first access, then the number of accesses. `used`: bytes on disk after each
    access, summed over the hour: float64[hours], as 64 bits are too few for a large cache.
    """

    hour: IntArray
    first: IntArray
    sums: IntArray
    used: FloatArray


def empty_tally(time_s: IntArray, *, first: int = 0) -> Tally:
    """A tally without counts for accesses at `time_s`, ascending; they are numbered from `first` on."""
    starts = np.empty(max(1, _hours(time_s, np.zeros(0, np.int64))) + 1, np.int64)
    n = _hours(time_s, starts)
    starts[n] = time_s.size
    starts = starts[: n + 1]
    return Tally(time_s[starts[:-1]] // HOUR_S, starts + first, np.zeros((n, 4), np.int64), np.zeros(n))


@kernel
def _hours(time_s: IntArray, starts: IntArray) -> int:
    n = 0
    last = np.int64(0)
    for i in range(time_s.size):
        hour = time_s[i] // HOUR_S
        if i == 0 or hour != last:
            if starts.size:
                starts[n] = i
            n += 1
            last = hour
    return n


def tally_of(trace: Trace, served: BoolArray | IntArray) -> Tally:
    """The counts of the last accesses of `trace`, of which `served` says what came from disk.

    bool: whether the whole file did; int64: how many of its bytes, if parts of files are cached.
    """
    first = trace.n_accesses - served.size
    tally = empty_tally(trace.time_s[first:])
    add: Callable[..., None] = _tally_hits if served.dtype == np.bool_ else _tally_bytes
    add(tally, trace.item[first:], trace.size_bytes, served)
    return tally


@kernel
def _tally_hits(tally: Tally, item: ItemArray, size: IntArray, hit: BoolArray) -> None:
    for hour in range(tally.hour.size):
        row = tally.sums[hour]
        for i in range(tally.first[hour], tally.first[hour + 1]):
            row[REQUESTED] += size[item[i]]
            if hit[i]:
                row[HITS] += 1
                row[HIT_BYTES] += size[item[i]]
            else:
                row[FETCHED] += size[item[i]]


@kernel
def _tally_bytes(tally: Tally, item: ItemArray, size: IntArray, hit_bytes: IntArray) -> None:
    for hour in range(tally.hour.size):
        row = tally.sums[hour]
        for i in range(tally.first[hour], tally.first[hour + 1]):
            need = size[item[i]]
            row[REQUESTED] += need
            row[HITS] += hit_bytes[i] == need
            row[HIT_BYTES] += hit_bytes[i]
            row[FETCHED] += need - hit_bytes[i]
