"""The order that misses the fewest bytes now: shadows of each run on a sample of the files."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence

import numpy as np

from features.common.arrays import BoolArray
from replay.policies.learned import Order
from replay.steward.heuristics import DatasetLru, Lru, S3Fifo
from replay.steward.learned import LearnedOrder
from replay.steward.order import EvictionOrder, Shadow

LRU = "lru"
MOST_SAMPLED = 2**17
"""Of more files, a half, a quarter, … stand for all."""
ROUND = 1 / 16
"""A round ends when LRU has missed this share of its capacity."""
HALF_LIFE = 64
"""Rounds after which a result counts half."""
FEWEST = 4
"""Rounds, weighted, before another order is followed."""
SURENESS = 2.33
"""Standard errors, at each round, by which an order must have missed less than the one that is followed."""
MARGIN = 0.01
"""It must also have missed less by this share of what LRU missed."""

_GOLDEN, _WORD = 0x9E3779B97F4A7C15, 1 << 64


class Auto:
    """Follows LRU, then a proven learned order from its beginning, until another's shadow surely misses less.

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
        shadowed: dict[str, EvictionOrder] = _heuristics(shadow_bytes)
        self._all_orders = [*self._orders.values(), *shadowed.values()]
        if learned:
            order = LearnedOrder(learned, lru=self._orders[LRU])
            self._all_orders.append(order)
            self._orders["learned"] = order
            shadowed["learned"] = LearnedOrder(learned, lru=shadowed[LRU], history=order.history)
        self._shadows = [Shadow(order, shadow_bytes) for order in shadowed.values()]
        self._chooser = OrderChooser(list(self._orders), ROUND * shadow_bytes)
        self._learned_from_s = learned[0].from_s if learned and is_proven else math.inf
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
        for order in self._all_orders:
            order.add(dataset, tier, size_bytes)

    def resize(self, file: int, size_bytes: int) -> None:
        """See `EvictionOrder`."""
        self._takes[file] = max(0, size_bytes)
        for order in self._all_orders:
            order.resize(file, size_bytes)

    def read(self, file: int, reader: int, at_s: float, *, is_held: bool) -> None:
        """See `EvictionOrder`."""
        if at_s >= self._learned_from_s:
            self._chooser.trust("learned")
            self._learned_from_s = math.inf
        if file * _GOLDEN % _WORD < self._sampled_below:
            n_bytes = self._takes[file]
            # That of LRU comes last: it is what the learned one asks before its first order.
            missed = [
                0 if shadow.read(file, reader, at_s, n_bytes, self._nothing) else n_bytes
                for shadow in reversed(self._shadows)
            ]
            self._chooser.count(missed[::-1])
        for order in self._orders.values():
            order.read(file, reader, at_s, is_held=is_held)

    def stored(self, file: int, n_bytes: int, at_s: float) -> None:
        """See `EvictionOrder`."""
        self._takes[file] = n_bytes
        for order in self._orders.values():
            order.stored(file, n_bytes, at_s)
        if file * _GOLDEN % _WORD < self._sampled_below:
            for shadow in self._shadows:
                shadow.fill(file, n_bytes, at_s)

    def removed(self, file: int) -> None:
        """See `EvictionOrder`."""
        for order in self._orders.values():
            order.removed(file)

    def expect(self, file: int, due_s: float) -> None:
        """See `EvictionOrder`."""
        for order in self._all_orders:
            order.expect(file, due_s)

    def bytes_on_disk(self, file: int) -> int | None:
        """See `EvictionOrder`."""
        return self._orders[LRU].bytes_on_disk(file)

    def victims(self, n_bytes: int, now_s: float, spare: BoolArray) -> list[int]:
        """The victims of the order that is followed."""
        return self._orders[self.following].victims(n_bytes, now_s, spare)


class OrderChooser:
    """Which of several orders to follow, by the bytes that each misses per round; earlier rounds count less.

    To change costs something, as the disk holds what the order before chose: another one must surely miss
    less than the one that is followed, at first the first one.
    """

    def __init__(self, names: Sequence[str], round_bytes: float) -> None:
        self._names, self._round_bytes = list(names), max(1.0, round_bytes)
        self._now = np.zeros(len(names))
        # Decayed sums over rounds: of weights and their squares, of missed bytes and their products.
        self._weight = self._weight2 = 0.0
        self._missed, self._products = np.zeros(len(names)), np.zeros((len(names), len(names)))
        self._followed = 0

    @property
    def best(self) -> str:
        """The order to follow."""
        return self._names[self._followed]

    def count(self, missed: Sequence[int]) -> None:
        """Count what each order missed at a read."""
        self._now += missed
        if self._now[0] >= self._round_bytes:
            self._end_round()

    def trust(self, name: str) -> None:
        """Follow the order `name`, which begins now: until now it has missed what the best one has."""
        new, best = self._names.index(name), int(self._missed.argmin())
        self._missed[new] = self._missed[best]
        self._products[new] = self._products[best]
        self._products[:, new] = self._products[:, best]
        self._followed = new

    def _end_round(self) -> None:
        decay = 0.5 ** (1 / HALF_LIFE)
        self._weight = self._weight * decay + 1
        self._weight2 = self._weight2 * decay**2 + 1
        self._missed = self._missed * decay + self._now
        self._products = self._products * decay + np.outer(self._now, self._now)
        self._now[:] = 0
        self._followed = self._judge()

    def _judge(self) -> int:
        followed = self._followed
        mean, n_rounds = self._missed / self._weight, self._weight**2 / self._weight2
        if n_rounds < FEWEST:
            return followed
        moments = self._products / self._weight - np.outer(mean, mean)
        variance = moments[followed, followed] + moments.diagonal() - 2 * moments[followed]
        error = np.sqrt(np.maximum(0, variance) / (n_rounds - 1))
        surely = mean[followed] - mean - SURENESS * error
        return int(surely.argmax()) if surely.max() > MARGIN * mean[0] else followed


def _heuristics(capacity_bytes: int) -> dict[str, EvictionOrder]:
    return {LRU: Lru(), "s3fifo": S3Fifo(capacity_bytes), "dataset-lru": DatasetLru()}
