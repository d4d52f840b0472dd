"""The order that misses the fewest bytes now: shadows of each run on a sample of the files."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence

import numpy as np

from features.common.arrays import BoolArray
from features.common.times import DAY_S
from replay.policies.learned import Order
from replay.steward.heuristics import DatasetLru, Lru, S3Fifo
from replay.steward.learned import LearnedOrder
from replay.steward.order import EvictionOrder, Shadow

LRU, LEARNED, HALF_LEARNED = "lru", "learned", "half-learned"
MOST_SAMPLED = 2**17
"""Of more files, a half, a quarter, … stand for all."""
ROUND = 1 / 16
"""A round ends when LRU has missed this share of its capacity."""
HALF_LIFE = 64
"""Rounds after which a result counts half."""
FEWEST = 4
"""Rounds, weighted, before another order surely misses less."""
SURENESS = 2.33
"""Standard errors, at each round, by which an order must have missed less than the one that is followed."""
MARGIN = 0.01
"""It must also have missed less by this share of what LRU missed."""
MOST_LOST = 0.01
"""A learned order is left when another one has saved more than this share of what LRU misses in a week."""
CREDIT = 0.02
"""Savings of the followed order over another one count up to this share."""
FILLS = 2.5
"""That is done where LRU fetches at least so many times the capacity in a week."""

WEEK_S = 7 * DAY_S
_GOLDEN, _WORD = 0x9E3779B97F4A7C15, 1 << 64
_UNSAMPLED = -1


class Auto:
    """Follows LRU, then a proven learned order from its beginning, until another's shadow has missed less.

    Beside the learned order one competes that follows recency by half: it is never far from LRU, and often
    better where what was learned holds no more.
    Every order is kept up to date with the cache, so that it can be followed from one victim to the next.
    """

    def __init__(
        self,
        capacity_bytes: int,
        learned: Sequence[Order] | None,
        n_files: int,
        *,
        is_proven: bool = True,
    ) -> None:
        """`learned`: None for a choice among heuristics; `n_files`: how many will be known, 0: a few.

        `is_proven`: False for a learned order that its shadow must prove before it is followed.
        """
        share = 1.0
        while n_files * share > MOST_SAMPLED:
            share /= 2
        self._sampled_below = int(share * _WORD)
        shadow_bytes = int(capacity_bytes * share)
        self._orders: dict[str, EvictionOrder] = _heuristics(capacity_bytes)
        # Of the sample: the number in it of each file known, and the files in it.
        self._place, self._sample = array("i"), array("i")
        sampled = _heuristics(shadow_bytes)
        self._sampled_orders = list(sampled.values())
        learned_shadows: list[EvictionOrder] = []
        proven: list[str] = []
        if learned:
            first = LearnedOrder(learned, lru=self._orders[LRU])
            halved = [order._replace(share=order.share / 2) for order in learned]
            lru, history = self._orders[LRU], first.history
            self._orders[LEARNED] = first
            self._orders[HALF_LEARNED] = LearnedOrder(halved, lru=lru, history=history, twin=first)
            lru_by_file = _ByFile(sampled[LRU], self._sample)
            learned_shadows = [
                LearnedOrder(orders, lru=lru_by_file, history=history) for orders in (learned, halved)
            ]
            proven = [LEARNED, HALF_LEARNED] if is_proven else []
        self._shadows = [(Shadow(order, shadow_bytes), True) for order in self._sampled_orders]
        self._shadows += [(Shadow(order, shadow_bytes), False) for order in learned_shadows]
        self._chooser = OrderChooser(list(self._orders), ROUND * shadow_bytes)
        self._proven, self._proven_from_s = proven, learned[0].from_s if learned and proven else math.inf
        self._takes = array("q")
        self._nothing = np.zeros(1, np.bool_)

    @property
    def following(self) -> str:
        """The order that is followed now."""
        return self._chooser.best

    def add(self, dataset: int, tier: int, size_bytes: int) -> None:
        """See `EvictionOrder`."""
        self._takes.append(max(0, size_bytes))
        if len(self._takes) > self._nothing.size:
            self._nothing = np.zeros(2 * len(self._takes), np.bool_)
        orders, file = [*self._orders.values()], len(self._place)
        if file * _GOLDEN % _WORD < self._sampled_below:
            self._place.append(len(self._sample))
            self._sample.append(file)
            orders += self._sampled_orders
        else:
            self._place.append(_UNSAMPLED)
        for order in orders:
            order.add(dataset, tier, size_bytes)

    def resize(self, file: int, size_bytes: int) -> None:
        """See `EvictionOrder`."""
        self._takes[file] = max(0, size_bytes)
        for order in self._orders.values():
            order.resize(file, size_bytes)

    def read(self, file: int, reader: int, at_s: float, *, is_held: bool) -> None:
        """See `EvictionOrder`."""
        if at_s >= self._proven_from_s:
            self._chooser.trust(self._proven)
            self._proven_from_s = math.inf
        place = self._place[file]
        if place != _UNSAMPLED:
            n_bytes = self._takes[file]
            # That of LRU comes last: it is what the learned ones ask before their first order.
            missed = [
                0
                if shadow.read(place if is_sample else file, reader, at_s, n_bytes, self._nothing)
                else n_bytes
                for shadow, is_sample in reversed(self._shadows)
            ]
            self._chooser.count(missed[::-1], at_s)
        for order in self._orders.values():
            order.read(file, reader, at_s, is_held=is_held)

    def stored(self, file: int, n_bytes: int, at_s: float) -> None:
        """See `EvictionOrder`."""
        self._takes[file] = n_bytes
        for order in self._orders.values():
            order.stored(file, n_bytes, at_s)
        place = self._place[file]
        if place != _UNSAMPLED:
            for shadow, is_sample in self._shadows:
                shadow.fill(place if is_sample else file, n_bytes, at_s)

    def removed(self, file: int) -> None:
        """See `EvictionOrder`."""
        for order in self._orders.values():
            order.removed(file)

    def expect(self, file: int, due_s: float) -> None:
        """See `EvictionOrder`."""
        for order in self._orders.values():
            order.expect(file, due_s)

    def bytes_on_disk(self, file: int) -> int | None:
        """See `EvictionOrder`."""
        return self._orders[LRU].bytes_on_disk(file)

    def victims(self, n_bytes: int, now_s: float, spare: BoolArray) -> list[int]:
        """The victims of the order that is followed."""
        return self._orders[self.following].victims(n_bytes, now_s, spare)


class _ByFile:
    """The choices of an order that knows files by their number in a `sample` of all, as numbers of these."""

    def __init__(self, order: EvictionOrder, sample: array[int]) -> None:
        self._order, self._sample = order, sample

    def victims(self, n_bytes: int, now_s: float, spare: BoolArray) -> list[int]:
        """The order's victims, if none is spared."""
        return [self._sample[place] for place in self._order.victims(n_bytes, now_s, spare)]


class OrderChooser:
    """Which of several orders to follow, by the bytes that each misses.

    Orders are compared by round, and earlier rounds count less. To change costs something, as the disk holds
    what the order before chose: another one must surely miss less, at first than the first one. Orders that
    are trusted begin where the best one is, and need no such proof. Where LRU fills its capacity often in a
    week (`FILLS`), they are left before they have cost much (`MOST_LOST`); elsewhere the disk is what earlier
    evictions have made it for so long that this would come too late.
    """

    def __init__(self, names: Sequence[str], round_bytes: float) -> None:
        self._names, self._round_bytes = list(names), max(1.0, round_bytes)
        self._now = np.zeros(len(names))
        # Decayed sums over rounds: of weights and their squares, of missed bytes and their products.
        self._weight = self._weight2 = 0.0
        self._missed, self._products = np.zeros(len(names)), np.zeros((len(names), len(names)))
        self._surest = self._followed = 0
        self._is_trusted, self._is_quick = np.zeros(len(names), np.bool_), False
        self._saved = np.zeros(len(names))
        self._began_s, self._lru_bytes = math.nan, 0

    @property
    def best(self) -> str:
        """The order to follow."""
        return self._names[self._followed]

    def count(self, missed: Sequence[int], at_s: float) -> None:
        """Count what each order missed at a read."""
        self._now += missed
        self._began_s = at_s if math.isnan(self._began_s) else self._began_s
        self._lru_bytes += missed[0]
        if self._is_trusted.any():
            self._weigh(missed, at_s - self._began_s)
        if self._now[0] >= self._round_bytes:
            self._end_round()

    def trust(self, names: Sequence[str]) -> None:
        """Follow the first of the orders `names`, which begin now: they have missed what the best one has."""
        best = int(self._missed.argmin())
        for new in (self._names.index(name) for name in names):
            self._missed[new] = self._missed[best]
            self._products[new] = self._products[best]
            self._products[:, new] = self._products[:, best]
            self._is_trusted[new] = True
        self._follow(self._names.index(names[0]))

    def _weigh(self, missed: Sequence[int], since_s: float) -> None:
        """Leave the followed order once another one has saved enough since it is followed."""
        week_bytes = self._lru_bytes * WEEK_S / max(since_s, DAY_S)
        self._saved += missed[self._followed] - np.array(missed)
        np.maximum(self._saved, -CREDIT * week_bytes, out=self._saved)
        rivals = np.flatnonzero(self._is_trusted).tolist()
        rival = max((*rivals, self._surest), key=self._saved.__getitem__)
        self._is_quick = since_s >= DAY_S and week_bytes >= FILLS * self._round_bytes / ROUND
        if self._is_quick and self._saved[rival] > MOST_LOST * week_bytes:
            self._follow(rival)

    def _follow(self, order: int) -> None:
        if order != self._followed:
            self._saved[:] = 0
        self._followed = order

    def _end_round(self) -> None:
        decay = 0.5 ** (1 / HALF_LIFE)
        self._weight = self._weight * decay + 1
        self._weight2 = self._weight2 * decay**2 + 1
        self._missed = self._missed * decay + self._now
        self._products = self._products * decay + np.outer(self._now, self._now)
        self._now[:] = 0
        before, self._surest = self._surest, self._judge(self._surest, ~self._is_trusted)
        if not self._is_quick:
            self._follow(self._judge(self._followed, np.ones(len(self._names), np.bool_)))
        elif self._followed == before:
            self._follow(self._surest)

    def _judge(self, followed: int, among: BoolArray) -> int:
        """The order that surely misses less than `followed`, or that itself."""
        mean, n_rounds = self._missed / self._weight, self._weight**2 / self._weight2
        if n_rounds < FEWEST:
            return followed
        moments = self._products / self._weight - np.outer(mean, mean)
        variance = moments[followed, followed] + moments.diagonal() - 2 * moments[followed]
        error = np.sqrt(np.maximum(0, variance) / (n_rounds - 1))
        surely = np.where(among, mean[followed] - mean - SURENESS * error, -np.inf)
        return int(surely.argmax()) if surely.max() > MARGIN * mean[0] else followed


def _heuristics(capacity_bytes: int) -> dict[str, EvictionOrder]:
    return {LRU: Lru(), "s3fifo": S3Fifo(capacity_bytes), "dataset-lru": DatasetLru()}
