"""Splits of trees for many rows at a time, with vector instructions that numba's loops do not become."""

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
            found = cgutils.alloca_once_value(builder, all_open)  # type: ignore[no-untyped-call]
            with cgutils.for_range_slice(builder, given[5], given[6], given[5].type(1)) as (split, _):
                row = builder.mul(builder.load(builder.gep(plane_at, [split])), _WORD(LANES))
                value_at = builder.gep(planes_at, [row])
                value = builder.load(builder.bitcast(value_at, _vector(_FLOAT, lanes).as_pointer()), align=4)
                most, left = (
                    _in_all_lanes(builder, builder.load(builder.gep(at, [split])), lanes)
                    for at in (threshold_at, rest_at)
                )
                before = builder.load(found)
                stays = builder.fcmp_ordered("<=", value, most)
                builder.store(builder.select(stays, before, builder.and_(before, left)), found)
            words_at = builder.bitcast(words_at, _vector(_WORD, lanes).as_pointer())
            builder.store(builder.load(found), words_at, align=4)
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
