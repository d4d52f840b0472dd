"""Gradient-boosted trees that a kernel scores many rows at a time: one binary model per horizon.

A split that sends a row to the right rules out the leaves to its left, and the row is in the leftmost leaf
that no split rules out (QuickScorer: Lucchese et al., SIGIR 2015). So every split of a tree is applied to all
rows of a block side by side, without a branch, wherever a row is in the tree.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
import numpy.typing as npt
from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils, types
from numba.extending import intrinsic

from features.common.arrays import Float32Array, FloatArray, Ids, IntArray
from features.common.jit import bare, inner, kernel

LANES = 64
"""Rows that are scored side by side."""
FEW, SOME = 16, 32
"""Up to this many rows are scored in shorter vectors, in less time."""

_WORD, _FLOAT = ir.IntType(32), ir.FloatType()
_LINE = 64
"""Bytes of a cache line: a vector that lies across two is loaded in halves, at half the speed."""

PART = 32
"""Leaves of a part of a tree: the bits of a word."""

_Kind = TypeVar("_Kind", bound=np.generic)


def aligned(n: int, kind: type[_Kind]) -> npt.NDArray[_Kind]:
    """`n` zeros of a type, of which the first begins a cache line."""
    n_bytes = n * np.dtype(kind).itemsize
    room = np.zeros(n_bytes + _LINE, np.uint8)
    first = -room.ctypes.data % _LINE
    return room[first : first + n_bytes].view(kind)


def _compile_rule_out(lanes: int) -> Any:
    @intrinsic
    def rule_out(
        _typing: Any, words: Any, planes: Any, plane: Any, threshold: Any, rest: Any, _first: Any, _stop: Any
    ) -> Any:
        signature = types.void(words, planes, plane, threshold, rest, types.intp, types.intp)

        def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            words_at, planes_at, plane_at, threshold_at, rest_at = (
                context.make_array(kind)(context, builder, array).data
                for kind, array in zip(signature.args[:5], args[:5], strict=True)
            )
            # The open leaves stay in a register: LLVM makes one of a place on the stack, not of an array.
            all_open = _vector(_WORD, lanes)([-1] * lanes)
            open_leaves = cgutils.alloca_once_value(builder, all_open)  # type: ignore[no-untyped-call]
            with cgutils.for_range_slice(builder, args[5], args[6], args[5].type(1)) as (split, _):
                row = builder.mul(builder.load(builder.gep(plane_at, [split])), _WORD(LANES))
                value_at = builder.gep(planes_at, [row])
                value = builder.load(builder.bitcast(value_at, _vector(_FLOAT, lanes).as_pointer()), align=4)
                most, rest = (
                    _in_all_lanes(builder, builder.load(builder.gep(at, [split])), lanes)
                    for at in (threshold_at, rest_at)
                )
                before = builder.load(open_leaves)
                stays = builder.fcmp_ordered("<=", value, most)
                builder.store(builder.select(stays, before, builder.and_(before, rest)), open_leaves)
            words_at = builder.bitcast(words_at, _vector(_WORD, lanes).as_pointer())
            builder.store(builder.load(open_leaves), words_at, align=4)
            return context.get_dummy_value()

        return signature, code

    return rule_out


def _compile_rule_out_others(lanes: int) -> Any:
    @intrinsic
    def rule_out_others(_typing: Any, words: Any, values: Any, members: Any, rest: Any) -> Any:
        signature = types.void(words, values, members, rest)

        def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            words_at, values_at = (
                builder.bitcast(context.make_array(kind)(context, builder, array).data, of.as_pointer())
                for kind, array, of in zip(
                    signature.args[:2], args[:2], (_vector(_WORD, lanes), _vector(_FLOAT, lanes)), strict=True
                )
            )
            members, rest = (_in_all_lanes(builder, word, lanes) for word in args[2:])
            category = builder.fptoui(builder.load(values_at, align=4), _vector(_WORD, lanes))
            last = ir.Constant(category.type, [PART - 1] * lanes)
            bit = builder.shl(ir.Constant(category.type, [1] * lanes), builder.and_(category, last))
            none = ir.Constant(category.type, [0] * lanes)
            is_member = builder.and_(
                builder.icmp_unsigned("!=", builder.and_(members, bit), none),
                builder.icmp_unsigned("<=", category, last),
            )
            before = builder.load(words_at, align=4)
            builder.store(builder.select(is_member, before, builder.and_(before, rest)), words_at, align=4)
            return context.get_dummy_value()

        return signature, code

    return rule_out_others


def _vector(kind: Any, lanes: int) -> Any:
    return ir.VectorType(kind, lanes)


def _in_all_lanes(builder: Any, scalar: Any, lanes: int) -> Any:
    nothing = ir.Constant(_vector(scalar.type, lanes), ir.Undefined)
    first = builder.insert_element(nothing, scalar, _WORD(0))
    return builder.shuffle_vector(first, nothing, _vector(_WORD, lanes)([0] * lanes))


rule_out, rule_out_some, rule_out_few = (_compile_rule_out(lanes) for lanes in (LANES, SOME, FEW))
"""Write to `words` the leaves, as bits, that splits `first` … `stop` - 1 leave to `LANES` rows, or to fewer.
A row whose value in a split's plane is above its threshold, or NaN, keeps only the leaves of its `rest`.

Arguments: words uint32[LANES]; planes float32[p, LANES]; for each split its plane, int32, its threshold,
float32, and its rest, uint32; first; stop. All contiguous; nothing is checked.
"""
rule_out_others, rule_out_some_others, rule_out_few_others = (
    _compile_rule_out_others(lanes) for lanes in (LANES, SOME, FEW)
)
"""The same for a row whose category in `values`, float32[LANES], is not among `members`, the first `PART`
categories as bits. Arguments: words; values; members; rest.
"""


def _zeros(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
    return builder.zext(builder.cttz(args[0], ir.Constant(ir.IntType(1), 0)), ir.IntType(64))


# trailing_zeros(word): the place of the lowest bit of a word, a uint32; 32 if it has none.
trailing_zeros = cast(
    Callable[[int], int], intrinsic(lambda _typing, _word: (types.intp(types.uint32), _zeros))
)


ZERO = float(np.float32(1e-35))
"""LightGBM takes magnitudes up to this for zero (include/LightGBM/meta.h, kZeroThreshold)."""
BEYOND = float(1 << 24)
"""A category that no set has, and that a float32 holds exactly."""
_ALL = np.uint32(0xFFFFFFFF)

# How a plane takes the missing values of its column; see `_compared`.
NAN_IS_ZERO, NAN_LEFT, NAN_RIGHT, ZERO_LEFT, ZERO_RIGHT, CATEGORY = range(6)
N_RULES = 6

Words = npt.NDArray[np.uint32]


class Forest(NamedTuple):
    """Trees of one model, or of several models one after the other.

    A plane is what splits compare: the values of `column` (int32[p]) after `rule` (int8[p], see above).
    Tree t has parts first_part[t] … first_part[t + 1] - 1 of 32 leaves, its last leaves first; int32[t + 1].
    Part k has splits first_split[k] … first_split[k + 1] - 1, int32[k + 1]; splits on categories come last,
    from first_set[k] on, int32[k]. `leaf`, float64[k, 32]: its leaves' values, from the left. A split asks
    whether the value in `plane` (int32[s]) is at most `threshold` (float32[s]), or is in a set of categories:
    `n_words` (int32[s]) words of `words` (uint32) and a zero, from `first_word` (int32[s]) on. If it is not,
    the leaves outside `right` (uint32[s]) are ruled out.
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
    """Rows that are scored together: `planes`, float32[p, LANES], else a value per row, [LANES]."""

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


def join_forests(forests: Sequence[Forest]) -> Forest:
    """The trees of several forests in one, in order; equal comparisons share a plane."""
    parts_before, splits_before, words_before, planes_before = (
        np.cumsum([0, *(len(values) for values in column)])
        for column in zip(*((f.leaf, f.plane, f.words, f.column) for f in forests), strict=True)
    )
    kinds = np.concatenate([f.column * N_RULES + f.rule for f in forests])
    kind, plane_of = np.unique(kinds, return_inverse=True)

    # After the last forest, it becomes the number that all forests hold.
    end = [np.zeros(1, np.int32)]

    def moved(columns: Sequence[Ids], before: IntArray) -> Ids:
        """The indices of all forests in one array, each moved by what the forests before its own hold."""
        return np.concatenate([c + n for c, n in zip(columns, before, strict=False)]).astype(np.int32)

    return Forest(
        column=(kind // N_RULES).astype(np.int32),
        rule=(kind % N_RULES).astype(np.int8),
        first_part=moved([f.first_part[:-1] for f in forests] + end, parts_before),
        first_split=moved([f.first_split[:-1] for f in forests] + end, splits_before),
        first_set=moved([f.first_set for f in forests], splits_before),
        leaf=np.concatenate([f.leaf for f in forests]),
        plane=plane_of[moved([f.plane for f in forests], planes_before)].astype(np.int32),
        threshold=np.concatenate([f.threshold for f in forests]),
        right=np.concatenate([f.right for f in forests]),
        first_word=moved([f.first_word for f in forests], words_before),
        n_words=np.concatenate([f.n_words for f in forests]),
        words=np.concatenate([f.words for f in forests]),
    )


def join_models(forests: Sequence[Forest], horizons_s: Sequence[float]) -> HorizonModels:
    """The models of all horizons, one forest each."""
    first = np.cumsum([0, *(f.first_part.size - 1 for f in forests)]).astype(np.int32)
    return HorizonModels(join_forests(forests), first, np.array(horizons_s, np.float64))


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


@kernel
def margins_by_horizon(models: HorizonModels, x: Float32Array, block: Block, out: FloatArray) -> None:
    """Write each model's sum for each row of `x`, float32[n, columns], to `out`, float64[h, n]."""
    for start in range(0, x.shape[0], LANES):
        n = min(LANES, x.shape[0] - start)
        for lane in range(n):
            fill(models.forest, x[start + lane], block, lane)
        for k in range(models.horizon_s.size):
            _add_trees(models.forest, models.first_tree[k], models.first_tree[k + 1], block, n)
            out[k, start : start + n] = block.total[:n]


@bare
def hit_rates(models: HorizonModels, block: Block, n: int) -> None:
    """Write the hit rate of the first `n` rows, per s, to `block.rate`: the chance of a read within a
    horizon, over the expected time until the read or the horizon's end; of all horizons the highest.
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


@inner
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


@inner
def _add_trees(forest: Forest, first: int, stop: int, block: Block, n: int) -> None:
    """Write the sum of trees `first` … `stop` - 1 for the first `n` rows to `block.total`."""
    block.total[:n] = 0.0
    splits = forest.plane, forest.threshold, forest.right
    for t in range(first, stop):
        last = forest.first_part[t + 1] - 1
        for part in range(forest.first_part[t], last + 1):
            begin, sets, end = forest.first_split[part], forest.first_set[part], forest.first_split[part + 1]
            # Not in a function of its own: to pass the arrays would take as long as the work.
            if n <= FEW:
                rule_out_few(block.open, block.planes, *splits, begin, sets)
            elif n <= SOME:
                rule_out_some(block.open, block.planes, *splits, begin, sets)
            else:
                rule_out(block.open, block.planes, *splits, begin, sets)
            for split in range(sets, end):
                value, right = block.planes[forest.plane[split]], forest.right[split]
                if forest.n_words[split] == 1:
                    _rule_out_others(block.open, value, forest.words[forest.first_word[split]], right, n)
                    continue
                for i in range(n):
                    block.open[i] &= _ALL if _is_member(forest, split, value[i]) else right
            leaf = forest.leaf[part]
            for i in range(n if part == last else 0):
                block.total[i] += _leaf(leaf, block.open[i], block.leaf[i])
            for i in range(n if part < last else 0):
                block.leaf[i] = _leaf(leaf, block.open[i], block.leaf[i])


@inner
def _rule_out_others(words: Words, value: Float32Array, members: int, rest: int, n: int) -> None:
    if n <= FEW:
        rule_out_few_others(words, value, members, rest)
    elif n <= SOME:
        rule_out_some_others(words, value, members, rest)
    else:
        rule_out_others(words, value, members, rest)


@inner
def _leaf(leaf: FloatArray, open_leaves: int, otherwise: float) -> float:
    """The value of a part's leftmost open leaf; if none is open `otherwise`, that of leaves to its right."""
    value = leaf[trailing_zeros(open_leaves) & (PART - 1)]
    return value if open_leaves else otherwise


@inner
def _is_member(forest: Forest, split: int, value: float) -> bool:
    category = np.uint32(value)
    word = min(category >> np.uint32(5), np.uint32(forest.n_words[split]))
    bits = forest.words[forest.first_word[split] + word]
    return bool((bits >> (category & np.uint32(31))) & np.uint32(1))
