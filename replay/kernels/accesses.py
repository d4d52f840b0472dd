"""What a policy's loop reads and writes, and `fetch`, which asks for array elements before they are needed.

A replay reads a few bytes of state per access, at random places that are known long before. An early
request hides the time that memory takes. Without it, on zipf10m, LRU takes 1.5 times as long, SIEVE 1.4,
S3-FIFO and the byte bound 1.2.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import numpy.typing as npt
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from features.common.arrays import BoolArray, IntArray
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


def accesses(trace: Trace, capacity_bytes: int, hit: BoolArray) -> Accesses:
    """The accesses of `trace`, for a cache of `capacity_bytes`."""
    return Accesses(trace.item, trace.size_bytes, capacity_bytes, hit)
