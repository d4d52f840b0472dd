"""The hit ratios of LRU at every capacity, from one pass over the trace.

An access is a hit in every cache that can hold its file and all files read since the file's last access.
Their bytes are the byte-weighted stack distance (Mattson et al., 1970): all bytes read since, less those of
rereads of what was read since. Accesses are distributed by when their file was read before, digit by digit,
which finds these rereads and goes through memory in order.
"""

import bisect
import dataclasses
from typing import NamedTuple

import numpy as np

from features.common.arrays import IntArray, short_repr, taken
from features.common.jit import bare
from features.common.units import as_bytes
from replay.trace import IndexArray, ItemArray, Trace, window

_DIGIT, _DIGIT_BITS = 64, 6
"""Values of a digit of an access's number."""
_SORT_BITS = 10
"""Of a digit of a distance: more places to write to are more than a processor keeps at hand."""
_NOT_COUNTED = 1 << 62


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Curve:
    """The hits of LRU at every capacity.

    `capacity_bytes`: int64[k], ascending, the capacities at which anything changes; `hits` and `hit_bytes`:
    int64[k], for caches from that capacity up to the next one. From `exact_from_bytes` on, the size of the
    largest file read, the curve equals a replay. Below it, a replay bypasses files that do not fit, which
    the curve does not model.
    """

    capacity_bytes: IntArray
    hits: IntArray
    hit_bytes: IntArray
    requests: int
    bytes_requested: int
    exact_from_bytes: int

    def __repr__(self) -> str:
        return short_repr(self, "requests", "bytes_requested", "exact_from_bytes")

    def hit_ratio_at(self, capacity_bytes: int | str) -> float:
        """Share of the requests that are hits, for example at `"5TB"`."""
        return _at(self.capacity_bytes, self.hits, capacity_bytes) / self.requests

    def byte_hit_ratio_at(self, capacity_bytes: int | str) -> float:
        """Share of the bytes requested that are hits; 0 if none were requested."""
        return self.hit_bytes_at(capacity_bytes) / max(1, self.bytes_requested)

    def hit_bytes_at(self, capacity_bytes: int | str) -> int:
        """Bytes of the hits."""
        return _at(self.capacity_bytes, self.hit_bytes, capacity_bytes)

    def capacity_for(
        self, *, hit_ratio: float | None = None, byte_hit_ratio: float | None = None
    ) -> int | None:
        """The smallest capacity with the given ratios, at least `exact_from_bytes`; None if there is none."""
        goals = (
            (hit_ratio, self.hits, self.requests),
            (byte_hit_ratio, self.hit_bytes, self.bytes_requested),
        )
        least = [_first(cumulative, ratio, of) for ratio, cumulative, of in goals if ratio is not None]
        index = max(least, default=-1)
        if index < 0:
            return 0
        if index == self.capacity_bytes.size:
            return None
        return max(int(self.capacity_bytes[index]), self.exact_from_bytes)


def lru_curve(trace: Trace, *, count_from_s: int | None = None) -> Curve:
    """The curve of `trace`, counting accesses from `count_from_s` on (None: all). Raises InputError.

    Time O(n log n); memory about 40 bytes per access that is not a file's first.
    """
    first = window(trace, count_from_s).first
    last, read_before = np.full(trace.n_items, -1, np.int32), np.zeros(trace.n_items, np.int64)
    rereads = _rereads(trace.n_accesses)
    n = int(_list_rereads(_Accesses(trace.item, trace.size_bytes, first), last, read_before, rereads))
    rereads, spare = taken(rereads, slice(n)), _rereads(n)
    sums, places = np.zeros(_DIGIT, np.int64), np.zeros(1 << _SORT_BITS, np.int64)
    n_digits = -(-trace.n_accesses.bit_length() // _DIGIT_BITS)
    for shift in reversed(range(0, n_digits * _DIGIT_BITS, _DIGIT_BITS)):
        _subtract_rereads(rereads, spare, shift, sums, places[:_DIGIT])
        rereads, spare = spare, rereads
    if first:
        rereads = taken(rereads, rereads.distance >= 0)
        spare = taken(spare, slice(rereads.distance.size))
    n_bits = int(rereads.distance.max(initial=0)).bit_length()
    for shift in range(0, n_bits, _SORT_BITS):
        _sort_by_digit(rereads, spare, shift, places)
        rereads, spare = spare, rereads
    hits, hit_bytes = spare.distance, spare.amount
    k = int(_accumulate(rereads, hits, hit_bytes))
    return Curve(
        capacity_bytes=rereads.distance[:k],
        hits=hits[:k],
        hit_bytes=hit_bytes[:k],
        requests=trace.n_accesses - first,
        bytes_requested=int(trace.size_bytes[trace.item[first:]].sum()),
        exact_from_bytes=int(trace.size_bytes[last >= 0].max()),
    )


def _at(capacity_bytes: IntArray, cumulative: IntArray, at_bytes: int | str) -> int:
    index = int(np.searchsorted(capacity_bytes, as_bytes(at_bytes), side="right"))
    return int(cumulative[index - 1]) if index else 0


def _first(cumulative: IntArray, ratio: float, of: int) -> int:
    """Index of the first capacity with the ratio; -1 if no capacity is needed."""
    if ratio <= 0:
        return -1
    # Shares are compared as they are shown: of petabytes, a share times the whole is bytes off.
    return bisect.bisect_left(range(cumulative.size), ratio, key=lambda k: int(cumulative[k]) / max(1, of))


class _Accesses(NamedTuple):
    item: ItemArray
    size: IntArray
    first: int


class _Rereads(NamedTuple):
    """Accesses to files that were read before.

    `since`: int32, the number of the file's last access; `distance`: int64, bytes; `amount`: int64, the
    file's bytes.
    """

    since: IndexArray
    distance: IntArray
    amount: IntArray


def _rereads(n: int) -> _Rereads:
    return _Rereads(np.empty(n, np.int32), np.empty(n, np.int64), np.empty(n, np.int64))


@bare
def _list_rereads(accesses: _Accesses, last: IndexArray, read_before: IntArray, to: _Rereads) -> int:
    """Fill in `to`, its distances all bytes read since; the number of rereads.

    `last`: -1 for each file; its last access afterwards. `read_before`: the bytes read before that one.
    """
    item, size, first = accesses
    n = n_bytes = 0
    for i in range(item.size):
        file = item[i]
        if last[file] >= 0:
            to.since[n] = last[file]
            to.distance[n] = n_bytes - read_before[file] - (0 if i >= first else _NOT_COUNTED)
            to.amount[n] = size[file]
            n += 1
        last[file], read_before[file] = i, n_bytes
        n_bytes += size[file]
    return n


@bare
def _subtract_rereads(rereads: _Rereads, to: _Rereads, shift: int, sums: IntArray, places: IntArray) -> None:
    """Take earlier rereads of files read later from the distances, and order all by the digit at `shift`.

    Those that are alike above that digit lie side by side, in the order of time: what differs above is done.
    `sums`, `places`: scratch, int64[_DIGIT].
    """
    since, distance, amount = rereads
    begin = 0
    while begin < since.size:
        alike = since[begin] >> shift >> _DIGIT_BITS
        sums[:] = 0
        places[:] = 0
        end = begin
        while end < since.size and since[end] >> shift >> _DIGIT_BITS == alike:
            places[since[end] >> shift & (_DIGIT - 1)] += 1
            end += 1
        _begin_places(places, begin)
        for i in range(begin, end):
            digit = since[i] >> shift & (_DIGIT - 1)
            behind = 0
            for k in range(_DIGIT):
                behind += sums[k] if k > digit else 0
            sums[digit] += amount[i]
            place = places[digit]
            places[digit] += 1
            to.since[place], to.distance[place], to.amount[place] = since[i], distance[i] - behind, amount[i]
        begin = end


@bare
def _sort_by_digit(rereads: _Rereads, to: _Rereads, shift: int, places: IntArray) -> None:
    """Order distances and amounts by the digit of the distance at `shift`; those alike stay in order."""
    distance, amount = rereads.distance, rereads.amount
    places[:] = 0
    for i in range(distance.size):
        places[distance[i] >> shift & (places.size - 1)] += 1
    _begin_places(places, 0)
    for i in range(distance.size):
        digit = distance[i] >> shift & (places.size - 1)
        place = places[digit]
        places[digit] += 1
        to.distance[place], to.amount[place] = distance[i], amount[i]


@bare
def _begin_places(places: IntArray, begin: int) -> None:
    """From numbers to where each digit begins."""
    for digit in range(places.size):
        begin, places[digit] = begin + places[digit], begin


@bare
def _accumulate(rereads: _Rereads, hits: IntArray, hit_bytes: IntArray) -> int:
    """Compact sorted distances to distinct ones, and fill in the hits up to each. Their number."""
    k = n_bytes = 0
    for i in range(rereads.distance.size):
        n_bytes += rereads.amount[i]
        if i + 1 < hits.size and rereads.distance[i + 1] == rereads.distance[i]:
            continue
        rereads.distance[k], hits[k], hit_bytes[k] = rereads.distance[i], i + 1, n_bytes
        k += 1
    return k
