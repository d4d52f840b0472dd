"""Gradient-boosted trees that a kernel scores many rows at a time: one binary model per horizon.

A row is in the leftmost leaf that no split rules out, and a split that sends it to the right rules out the
leaves to its left (QuickScorer: Lucchese et al., SIGIR 2015). So every split of a tree is asked of all rows
of a block side by side, without a branch, and nothing depends on where a row is in the tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils, types
from numba.extending import intrinsic

from features.common.arrays import Float32Array, FloatArray, Ids, IntArray
from features.common.jit import bare, kernel

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


PART = 32
"""Leaves of a part of a tree: the bits of a word."""
ZERO = float(np.float32(1e-35))
"""LightGBM takes magnitudes up to this for zero (include/LightGBM/meta.h, kZeroThreshold)."""
BEYOND = float(1 << 24)
"""A category that no set has, and that a float32 holds exactly."""
_ALL = np.uint32(0xFFFFFFFF)
_DE_BRUIJN, _SLOT_SHIFT = np.uint32(0x077CB531), np.uint32(27)
"""Times a power of two, its upper five bits are different for each power."""

# What a plane makes of its column's values.
NAN_IS_ZERO, NAN_LEFT, NAN_RIGHT, ZERO_LEFT, ZERO_RIGHT, CATEGORY = range(6)
N_RULES = 6

Words = npt.NDArray[np.uint32]


class Forest(NamedTuple):
    """Trees of one model, or of several behind each other.

    Planes are what splits compare: the values of `column` (int32[p]) after `rule` (int8[p], see above).
    Tree t has parts first_part[t] … first_part[t + 1] - 1 of 32 leaves, the last leaves first; int32[t + 1].
    Part k has splits first_split[k] … first_split[k + 1] - 1, int32[k + 1]; those of categories come last,
    from first_set[k] on, int32[k]. `leaf`, float64[k, 32], holds its leaves by `slots`. A split asks whether
    the value in `plane` (int32[s]) is at most `threshold` (float32[s]), or is in a set of categories:
    `n_words` (int32[s]) words of `words` (uint32) and a zero, from `first_word` (int32[s]) on. If not, the
    leaves outside `right` (uint32[s]) are ruled out.
    """

    column: Ids
    rule: npt.NDArray[np.int8]
    first_part: Ids
    first_split: Ids
    first_set: Ids
    leaf: FloatArray
    plane: Ids
    threshold: Float32Array
    right: Words
    first_word: Ids
    n_words: Ids
    words: Words


class Block(NamedTuple):
    """Rows that are scored together: `planes`, float32[p, LANES], and results of each row, [LANES]."""

    planes: Float32Array
    open: Words
    leaf: FloatArray
    total: FloatArray
    chance: FloatArray
    waited_s: FloatArray
    rate: FloatArray


class HorizonModels(NamedTuple):
    """A model per horizon: trees first_tree[k] … first_tree[k + 1] - 1 of `forest` give P(read within it).

    `horizon_s`: float64[h], ascending; `first_tree`: int32[h + 1].
    """

    forest: Forest
    first_tree: Ids
    horizon_s: FloatArray


def new_block(forest: Forest) -> Block:
    """Room for rows that `forest` scores."""
    planes = aligned(forest.column.size * LANES, np.float32).reshape(-1, LANES)
    return Block(planes, aligned(LANES, np.uint32), *(aligned(LANES, np.float64) for _ in Block._fields[2:]))


def slots() -> Ids:
    """For each leaf of a part, from the left, its column in `Forest.leaf`: int32[PART]."""
    bits = np.uint32(1) << np.arange(PART, dtype=np.uint32)
    return (bits * _DE_BRUIJN >> _SLOT_SHIFT).astype(np.int32)


def joined(forests: Sequence[Forest]) -> Forest:
    """The trees of several forests in one, in order; what they compare alike has one plane."""
    parts, splits, words, planes = (
        np.cumsum([0, *(len(values) for values in column)])
        for column in zip(*((f.leaf, f.plane, f.words, f.column) for f in forests), strict=True)
    )
    kinds = np.concatenate([f.column * N_RULES + f.rule for f in forests])
    kind, plane_of = np.unique(kinds, return_inverse=True)

    def behind(edges: Sequence[Ids], by: IntArray) -> Ids:
        """The first indices of all forests in one array, each moved by what the forests before it hold."""
        return np.append(np.concatenate([e[:-1] + b for e, b in zip(edges, by, strict=False)]), by[-1])

    plane = np.concatenate([f.plane + by for f, by in zip(forests, planes, strict=False)])
    first_word = np.concatenate([f.first_word + by for f, by in zip(forests, words, strict=False)])
    return Forest(
        column=(kind // N_RULES).astype(np.int32),
        rule=(kind % N_RULES).astype(np.int8),
        first_part=behind([f.first_part for f in forests], parts).astype(np.int32),
        first_split=behind([f.first_split for f in forests], splits).astype(np.int32),
        first_set=np.concatenate([f.first_set + by for f, by in zip(forests, splits, strict=False)]).astype(
            np.int32
        ),
        leaf=np.concatenate([f.leaf for f in forests]),
        plane=plane_of[plane].astype(np.int32),
        threshold=np.concatenate([f.threshold for f in forests]),
        right=np.concatenate([f.right for f in forests]),
        first_word=first_word.astype(np.int32),
        n_words=np.concatenate([f.n_words for f in forests]),
        words=np.concatenate([f.words for f in forests]),
    )


def join_models(forests: Sequence[Forest], horizons_s: Sequence[float]) -> HorizonModels:
    """The models of all horizons, one forest each."""
    first = np.cumsum([0, *(f.first_part.size - 1 for f in forests)]).astype(np.int32)
    return HorizonModels(joined(forests), first, np.array(horizons_s, np.float64))


def no_models() -> HorizonModels:
    """No model at all, for orders that ask none."""
    none, edges = np.zeros(0, np.int32), np.zeros(1, np.int32)
    words = np.zeros(0, np.uint32)
    forest = Forest(
        column=none,
        rule=np.zeros(0, np.int8),
        first_part=edges,
        first_split=edges,
        first_set=none,
        leaf=np.zeros((0, PART)),
        plane=none,
        threshold=np.zeros(0, np.float32),
        right=words,
        first_word=none,
        n_words=none,
        words=words,
    )
    return HorizonModels(forest, edges, np.zeros(0))


@kernel
def margins(forest: Forest, x: Float32Array, block: Block, out: FloatArray) -> None:
    """Write the sum of all trees for each row of `x`, float32[n, columns], to `out`, float64[n]."""
    for start in range(0, x.shape[0], LANES):
        n = min(LANES, x.shape[0] - start)
        for lane in range(n):
            fill(forest, x[start + lane], block, lane)
        _add_trees(forest, 0, forest.first_part.size - 1, block, n)
        out[start : start + n] = block.total[:n]


@bare
def hit_rates(models: HorizonModels, block: Block, n: int) -> None:
    """Write to `block.rate` of the first `n` rows the best over horizons of: chance of a read, over the
    expected time until it or the horizon; per s.
    """
    last_s = 0.0
    block.chance[:n], block.waited_s[:n], block.rate[:n] = 0.0, 0.0, 0.0
    for k in range(models.horizon_s.size):
        _add_trees(models.forest, models.first_tree[k], models.first_tree[k + 1], block, n)
        for i in range(n):
            before = block.chance[i]
            chance = max(before, 1 / (1 + np.exp(-block.total[i])))
            block.waited_s[i] += (models.horizon_s[k] - last_s) * (1 - (chance + before) / 2)
            block.rate[i] = max(block.rate[i], chance / block.waited_s[i])
            block.chance[i] = chance
        last_s = models.horizon_s[k]


@bare
def fill(forest: Forest, x: Float32Array, block: Block, lane: int) -> None:
    """Make `x`, float32[columns], the row in `lane`."""
    for p in range(forest.column.size):
        block.planes[p, lane] = _compared(x[forest.column[p]], forest.rule[p])


@bare
def _compared(value: float, rule: int) -> float:
    """What a split compares, so that missing values go where LightGBM sends them; NaN goes to the right."""
    if rule == CATEGORY:
        return value if 0 <= value < BEYOND else BEYOND
    is_missing = np.isnan(value) or (rule in (ZERO_LEFT, ZERO_RIGHT) and abs(value) <= ZERO)
    if not is_missing:
        return value
    if rule == NAN_IS_ZERO:
        return 0.0
    return -np.inf if rule in (NAN_LEFT, ZERO_LEFT) else np.nan


@bare
def _add_trees(forest: Forest, first: int, stop: int, block: Block, n: int) -> None:
    """Write the sum of trees `first` … `stop` - 1 for the first `n` rows to `block.total`."""
    block.total[:n] = 0.0
    for t in range(first, stop):
        last = forest.first_part[t + 1] - 1
        for part in range(forest.first_part[t], last):
            _rule_out(forest, part, block, n)
            for i in range(n):
                block.leaf[i] = _leaf(forest, part, block.open[i], block.leaf[i])
        _rule_out(forest, last, block, n)
        for i in range(n):
            block.total[i] += _leaf(forest, last, block.open[i], block.leaf[i])


@bare
def _rule_out(forest: Forest, part: int, block: Block, n: int) -> None:
    """Write to `block.open` the leaves of a part that no split rules out for each row."""
    first, sets = forest.first_split[part], forest.first_set[part]
    splits = forest.plane, forest.threshold, forest.right
    if n <= FEW:
        rule_out_few(block.open, block.planes, *splits, first, sets)
    else:
        rule_out(block.open, block.planes, *splits, first, sets)
    for split in range(sets, forest.first_split[part + 1]):
        value, right = block.planes[forest.plane[split]], forest.right[split]
        for i in range(n):
            block.open[i] &= _ALL if _is_member(forest, split, value[i]) else right


@bare
def _leaf(forest: Forest, part: int, is_open: int, otherwise: float) -> float:
    """The value of the leftmost open leaf of a part; `otherwise`, that of a part behind it, if none is."""
    leftmost = is_open & (~is_open + np.uint32(1))
    value = forest.leaf[part, (leftmost * _DE_BRUIJN & _ALL) >> _SLOT_SHIFT]
    return value if is_open else otherwise


@bare
def _is_member(forest: Forest, split: int, value: float) -> bool:
    category = np.uint32(value)
    word = min(category >> np.uint32(5), np.uint32(forest.n_words[split]))
    bits = forest.words[forest.first_word[split] + word]
    return bool((bits >> (category & np.uint32(31))) & np.uint32(1))
