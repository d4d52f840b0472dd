"""The choice of an order of eviction among several, by the bytes that each misses.

Orders are compared by round, and earlier rounds count less. To change costs something, as the disk holds
what the order before chose: another one must miss significantly less, at first than the first one. Orders
that are trusted begin where the best one is, and need no such proof. They are left before they have cost much
(`MOST_LOST`), but not for less than a change may cost (`CHANGED`).
"""

from typing import NamedTuple

import numpy as np

from features.common.arrays import BoolArray, FloatArray, IntArray
from features.common.jit import bare, inner, wide
from features.common.times import DAY_S

ROUND = 1 / 16
"""A round ends when LRU has missed this share of its capacity."""
HALF_LIFE = 64
"""Rounds after which a result counts half."""
FEWEST = 4
"""Rounds, weighted, before it is judged whether another order misses significantly less."""
SURENESS = 2.33
"""Standard errors, at each round, by which an order must have missed less than the one that is followed."""
MARGIN = 0.01
"""It must also have missed less by this share of what LRU missed."""
MOST_LOST = 0.01
"""A trusted order is left when another one has saved more than this share of what LRU misses in a week,"""
CHANGED = 0.2
"""and more than this share of the capacity: what another one would hold must be fetched first. The followed
order's own savings over another one count up to as much.
"""

WEEK_S = 7 * DAY_S
_DECAY = 0.5 ** (1 / HALF_LIFE)
_DECAY2 = _DECAY**2

# Entries of Chooser.sums.
WEIGHT, WEIGHT2, BEGAN_S, LRU_BYTES = range(4)
# Entries of Chooser.state.
SUREST, FOLLOWED = range(2)


class Chooser(NamedTuple):
    """Of n orders, LRU the first.

    `missing`: int64[n], bytes that each missed at the read at hand; `now`: float64[n], in this round.
    `missed`: float64[n], `products`: float64[n, n], of earlier rounds. `is_trusted`: bool[n]; `saved`:
    float64[n], bytes over the followed order since it is followed. `sums`: float64[4], weights of the rounds
    and of their squares, time of the first read, bytes that LRU missed in all. `state`: int64[2], the order
    with the most significant lead of those that are not trusted, and the one that is followed.
    """

    round_bytes: float
    missing: IntArray
    now: FloatArray
    missed: FloatArray
    products: FloatArray
    is_trusted: BoolArray
    saved: FloatArray
    sums: FloatArray
    state: IntArray


def new_chooser(n_orders: int, capacity_bytes: int) -> Chooser:
    """Orders of caches of a capacity; LRU is followed."""
    return Chooser(
        max(1.0, ROUND * capacity_bytes),
        np.zeros(n_orders, np.int64),
        np.zeros(n_orders),
        np.zeros(n_orders),
        np.zeros((n_orders, n_orders)),
        np.zeros(n_orders, np.bool_),
        np.zeros(n_orders),
        np.array([0.0, 0.0, np.nan, 0.0]),
        np.zeros(2, np.int64),
    )


@bare
def count(chooser: Chooser, at_s: float) -> None:
    """Count what each order missed at a read, `chooser.missing`."""
    sums, missing = chooser.sums, chooser.missing
    for k in range(missing.size):
        chooser.now[k] += missing[k]
    if np.isnan(sums[BEGAN_S]):
        sums[BEGAN_S] = at_s
    sums[LRU_BYTES] += missing[0]
    if chooser.is_trusted.any():
        _weigh(chooser, at_s - sums[BEGAN_S])
    if chooser.now[0] >= chooser.round_bytes:
        _end_round(chooser)


@bare
def trust(chooser: Chooser, first: int) -> None:
    """Follow order `first`; it and those behind it begin now, and have missed what the best one has."""
    missed, products = chooser.missed, chooser.products
    best = 0
    for k in range(missed.size):
        if missed[k] < missed[best]:
            best = k
    for new in range(first, missed.size):
        missed[new] = missed[best]
        for k in range(missed.size):
            products[new, k] = products[best, k]
        for k in range(missed.size):
            products[k, new] = products[k, best]
        chooser.is_trusted[new] = True
    _follow(chooser, wide(first))


@inner
def _weigh(chooser: Chooser, since_s: float) -> None:
    """Leave the followed order once another one has saved enough since it is followed."""
    missing, saved, state = chooser.missing, chooser.saved, chooser.state
    week_bytes = chooser.sums[LRU_BYTES] * WEEK_S / max(since_s, float(DAY_S))
    most_lost = max(MOST_LOST * week_bytes, CHANGED * chooser.round_bytes / ROUND)
    followed_missing = missing[state[FOLLOWED]]
    rival = -1
    for k in range(saved.size):
        saved[k] = max(saved[k] + (followed_missing - missing[k]), -most_lost)
        if chooser.is_trusted[k] and (rival < 0 or saved[k] > saved[rival]):
            rival = k
    if saved[state[SUREST]] > saved[rival]:
        rival = state[SUREST]
    if saved[rival] > most_lost:
        _follow(chooser, rival)


@inner
def _follow(chooser: Chooser, order: int) -> None:
    if order != chooser.state[FOLLOWED]:
        chooser.saved[:] = 0
    chooser.state[FOLLOWED] = order


@inner
def _end_round(chooser: Chooser) -> None:
    now, sums, state = chooser.now, chooser.sums, chooser.state
    sums[WEIGHT] = sums[WEIGHT] * _DECAY + 1
    sums[WEIGHT2] = sums[WEIGHT2] * _DECAY2 + 1
    for k in range(now.size):
        chooser.missed[k] = chooser.missed[k] * _DECAY + now[k]
        for other in range(now.size):
            chooser.products[k, other] = chooser.products[k, other] * _DECAY + now[k] * now[other]
    now[:] = 0
    before = state[SUREST]
    state[SUREST] = _surest(chooser, before)
    if state[FOLLOWED] == before:
        _follow(chooser, state[SUREST])


@inner
def _surest(chooser: Chooser, followed: int) -> int:
    """The order, of those not trusted, that misses significantly less than `followed`; `followed` if none."""
    missed, products, weight = chooser.missed, chooser.products, chooser.sums[WEIGHT]
    n_rounds = weight**2 / chooser.sums[WEIGHT2]
    if n_rounds < FEWEST:
        return followed
    surest, most = followed, MARGIN * (missed[0] / weight)
    own = missed[followed] / weight
    for k in range(missed.size):
        if chooser.is_trusted[k]:
            continue
        mean = missed[k] / weight
        variance = (
            (products[followed, followed] / weight - own * own)
            + (products[k, k] / weight - mean * mean)
            - 2 * (products[followed, k] / weight - own * mean)
        )
        error = np.sqrt(max(0.0, variance) / (n_rounds - 1))
        if own - mean - SURENESS * error > most:
            surest, most = k, own - mean - SURENESS * error
    return surest
