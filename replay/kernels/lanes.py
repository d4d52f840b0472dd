"""The innermost step of scoring trees, for many rows at a time, in vector instructions.

A part of a tree has at most 32 leaves, and for each row a word with a bit per leaf: 1 while the leaf is open,
that is, while no split has ruled it out. Every split is asked of every row, in any order; the row is in the
leftmost leaf that stays open (see `replay.kernels.trees`). One step asks one split of all rows:

      plane[split]       the values that the split compares, one float32 per row
           │
           ▼
      ┌──────┬──────┬──────┬──────┬─ … ─┬──────┐
      │  0.5 │  2.0 │  NaN │  1.0 │     │  7.1 │   values, row 0 … row 63
      └──────┴──────┴──────┴──────┴─ … ─┴──────┘
         ≤      ≤      ≤      ≤            ≤       threshold[split], here 1.0, the same in all lanes
        yes    no     no     yes          no       ordered comparison: NaN is never "yes"
         │      │      │      │            │
       keep    AND    AND    keep         AND      with rest[split], the leaves that a "no" leaves open
      ┌──────┬──────┬──────┬──────┬─ … ─┬──────┐
      │ word │ word │ word │ word │     │ word │   open leaves, uint32 per row, kept in registers
      └──────┴──────┴──────┴──────┴─ … ─┴──────┘

A lane is one row's place in such a vector. With 64 lanes of 32 bits, a step is four loads, comparisons and
masked ANDs of AVX-512 (eight of AVX2), without a branch, for 64 rows.

The same loop in plain numba is right, but takes two to five times as long: numba gives LLVM an array for the
words, which are then stored and loaded again at each split. Here they have a place on the stack, of which
LLVM makes registers. So this module emits LLVM's instructions itself, with llvmlite:
`_ruling_out(lanes)` makes a numba intrinsic whose `code` loops over the splits with
`cgutils.for_range_slice` and does the step above on vectors of `lanes` rows.

What it relies on: all arrays are contiguous, of the types below, and long enough. Nothing is checked, so
`models.learning` checks a model's trees before they come here. `aligned` gives arrays that begin at a
cache line; others work too, at half the speed. tests/replay/test_lanes.py has the plain twin.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils, types
from numba.extending import intrinsic

LANES = 64
"""Rows side by side."""
FEW = 16
"""So many rows take half the time."""

_WORD, _FLOAT = ir.IntType(32), ir.FloatType()
_LINE = 64
"""Bytes of a cache line: what begins within one is loaded in two halves, at half the speed."""

_Kind = TypeVar("_Kind", bound=np.generic)


def aligned(n: int, kind: type[_Kind]) -> npt.NDArray[_Kind]:
    """Zeros of a type, [n], from the beginning of a cache line on."""
    n_bytes = n * np.dtype(kind).itemsize
    room = np.zeros(n_bytes + _LINE, np.uint8)
    first = -room.ctypes.data % _LINE
    return room[first : first + n_bytes].view(kind)


def _ruling_out(lanes: int) -> Any:
    @intrinsic
    def rule_out(
        _typing: Any, words: Any, planes: Any, plane: Any, threshold: Any, rest: Any, _first: Any, _stop: Any
    ) -> Any:
        signature = types.void(words, planes, plane, threshold, rest, types.intp, types.intp)

        def code(context: Any, builder: Any, signature: Any, given: Any) -> Any:
            words_at, planes_at, plane_at, threshold_at, rest_at = (
                context.make_array(kind)(context, builder, array).data
                for kind, array in zip(signature.args[:5], given[:5], strict=True)
            )
            # What is found stays in registers: LLVM makes one of a place on the stack, not of an array.
            all_open = _vector(_WORD, lanes)([-1] * lanes)
            open_leaves = cgutils.alloca_once_value(builder, all_open)  # type: ignore[no-untyped-call]
            with cgutils.for_range_slice(builder, given[5], given[6], given[5].type(1)) as (split, _):
                row = builder.mul(builder.load(builder.gep(plane_at, [split])), _WORD(LANES))
                value_at = builder.gep(planes_at, [row])
                value = builder.load(builder.bitcast(value_at, _vector(_FLOAT, lanes).as_pointer()), align=4)
                most, left = (
                    _in_all_lanes(builder, builder.load(builder.gep(at, [split])), lanes)
                    for at in (threshold_at, rest_at)
                )
                before = builder.load(open_leaves)
                stays = builder.fcmp_ordered("<=", value, most)
                builder.store(builder.select(stays, before, builder.and_(before, left)), open_leaves)
            words_at = builder.bitcast(words_at, _vector(_WORD, lanes).as_pointer())
            builder.store(builder.load(open_leaves), words_at, align=4)
            return context.get_dummy_value()

        return signature, code

    return rule_out


def _vector(kind: Any, lanes: int) -> Any:
    return ir.VectorType(kind, lanes)


def _in_all_lanes(builder: Any, scalar: Any, lanes: int) -> Any:
    nothing = ir.Constant(_vector(scalar.type, lanes), ir.Undefined)
    first = builder.insert_element(nothing, scalar, _WORD(0))
    return builder.shuffle_vector(first, nothing, _vector(_WORD, lanes)([0] * lanes))


rule_out, rule_out_few = _ruling_out(LANES), _ruling_out(FEW)
"""Of `LANES` rows, or of `FEW`, what splits `first` … `stop` - 1 leave: each takes the bits outside its
`rest` from rows whose value in its plane is above its threshold, or NaN.

Given: words uint32[LANES], the result; planes float32[p, LANES]; of each split its plane, int32, threshold,
float32, and rest, uint32; first and stop. All contiguous; nothing is checked.
"""
