"""Names by number, in little memory."""

from __future__ import annotations

from array import array
from itertools import pairwise
from typing import Final

_FEWEST: Final = 1024
_FREE: Final = -1


class Names:
    """Different names, each with its number, from 0 in the order of `add`: about 20 bytes and its UTF-8.

    The room for them doubles, which takes a second for a million.
    """

    def __init__(self) -> None:
        self._text, self._ends = bytearray(), array("q", [0])
        # A hash table with linear probing, at most half full.
        self._slots = array("i", [_FREE]) * _FEWEST

    def __len__(self) -> int:
        """How many there are."""
        return len(self._ends) - 1

    def __getitem__(self, number: int) -> str:
        """The name with this number, from 0 on."""
        return self._text[self._ends[number] : self._ends[number + 1]].decode(errors="surrogatepass")

    def find(self, name: str) -> int | None:
        """The number of a name; None if it is not there."""
        number = self._slots[self._slot(name.encode(errors="surrogatepass"))]
        return None if number == _FREE else number

    def add(self, name: str) -> int:
        """The number of a name, which is added if it is not there."""
        if 2 * len(self._ends) > len(self._slots):
            self._double()
        text = name.encode(errors="surrogatepass")
        at = self._slot(text)
        if self._slots[at] == _FREE:
            self._slots[at] = len(self)
            self._text += text
            self._ends.append(len(self._text))
        return self._slots[at]

    def _slot(self, text: bytes) -> int:
        """Where the number of a name is, or would be."""
        slots, ends, last = self._slots, self._ends, len(self._slots) - 1
        at = hash(text) & last
        while (number := slots[at]) != _FREE and self._text[ends[number] : ends[number + 1]] != text:
            at = (at + 1) & last
        return at

    def _double(self) -> None:
        slots = array("i", [_FREE]) * (2 * len(self._slots))
        last = len(slots) - 1
        for number, (begin, end) in enumerate(pairwise(self._ends)):
            at = hash(bytes(self._text[begin:end])) & last
            while slots[at] != _FREE:
                at = (at + 1) & last
            slots[at] = number
        self._slots = slots
