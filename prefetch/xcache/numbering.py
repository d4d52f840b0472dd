"""Counts what is missing in numbered datagrams of several senders."""

from __future__ import annotations

from collections.abc import Hashable

# Senders are named by datagrams, which anyone can make up.
MAX_SENDERS = 10_000


class Numberings:
    """The gaps in each sender's numbers, which wrap from `modulus` - 1 to 0, or from that of one sender.

    Gaps of `modulus` or more are counted short, so `n_lost` is at least what is missing. Of more than
    `MAX_SENDERS` senders the oldest are forgotten, and what they lost is kept.
    """

    def __init__(self, modulus: int) -> None:
        self.n_lost = 0
        self._modulus = modulus
        self._last: dict[Hashable, int] = {}

    def note(
        self, sender: Hashable, number: int, *, before_first: int | None = None, modulus: int = 0
    ) -> None:
        """Take the next number of `sender`, whose first one follows `before_first` where that is known.

        One that comes late is taken off `n_lost` again. `modulus`: of this sender, 0: as of others.
        """
        last, wraps = self._last.get(sender, before_first), modulus or self._modulus
        step = 1 if last is None else (number - last) % wraps
        if step > wraps // 2:
            self.n_lost = max(0, self.n_lost - 1)
            return
        self.n_lost += max(0, step - 1)
        self._last[sender] = number
        if len(self._last) > MAX_SENDERS:
            del self._last[next(iter(self._last))]
