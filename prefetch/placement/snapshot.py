"""What the service knows of datasets and files: sorted arrays, written by a job.

A name is its 64-bit key: the chance that two of a million names have the same key is 3 in 10^8.
"""

import bisect
import dataclasses
import functools
import io
import json
import struct
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from features.common import strict_json
from features.common.arrays import FloatArray, IntArray, joined
from features.common.errors import InputError
from replay.ranges import KeyArray, key_of, keys_of, scores

MAX_SITES = 5
"""Most sites of one dataset: as many as Rucio asks for."""
NOBODY, NOWHERE = 255, 254
"""In a row of `placed`: no further site; and as the first one: not to be placed."""
_DAMAGED = "the stored placements are damaged or of another version; run `cachecast place`"
_MAGIC = b"CACHECAST-PLACEMENT-4\n"
_ARRAYS = (
    *("dataset_keys", "placed", "item_keys", "size_bytes"),
    *("first_row", "row_cache", "cached", "predicted"),
)

_FAULTS = (
    *(ValueError, TypeError, AttributeError, LookupError, OSError, EOFError, RuntimeError, MemoryError),
    *(zipfile.BadZipFile, struct.error),
)
"""What numpy and zipfile raise for a file that is none of theirs."""


class Fractions(NamedTuple):
    """For n items and c caches: size in bytes, -1 where not known; shares of it, float[n, c]."""

    size_bytes: IntArray
    cached: FloatArray
    predicted: FloatArray


@dataclasses.dataclass(frozen=True, eq=False)
class Snapshot:
    """Placements and fractions at one moment.

    `capacities`: bytes of the planner's caches, by site and name; from them follows who owns a file.
    `loads`: how busy caches are, by name, 1 for the mean of their site; unknown: left out.
    `dataset_keys`: uint64[d], rising; `placed`: uint8[d, MAX_SITES], indices into `sites`, best first.
    `item_keys`: uint64[m], rising, of files and datasets; `size_bytes`: int64[m]; the rows of item i are
    `first_row[i]` … `first_row[i + 1]`: a cache (index into `caches`), the fraction it holds, and the one it
    will hold when its plan is carried out.
    """

    as_of: str
    sites: tuple[str, ...]
    caches: tuple[tuple[str, str], ...]
    capacities: Mapping[str, Mapping[str, int]]
    loads: Mapping[str, float]
    dataset_keys: KeyArray
    placed: npt.NDArray[np.uint8]
    item_keys: KeyArray
    size_bytes: IntArray
    first_row: npt.NDArray[np.uint32]
    row_cache: npt.NDArray[np.uint8]
    cached: npt.NDArray[np.float32]
    predicted: npt.NDArray[np.float32]

    @functools.cached_property
    def _lookup(self) -> tuple[Sequence[int], memoryview]:
        # A memoryview gives plain ints and bytes at a third of numpy's price; this is the hot path.
        return self.dataset_keys.data, self.placed.reshape(-1).data

    def row(self, did: str) -> bytes | None:
        """The row of `placed` of a dataset; None if it is unknown."""
        keys, placed = self._lookup
        key = key_of(did)
        at = bisect.bisect_left(keys, key)
        if at == len(keys) or keys[at] != key:
            return None
        return placed[at * MAX_SITES : (at + 1) * MAX_SITES].tobytes()

    def sites_of(self, row: bytes) -> tuple[str, ...]:
        return tuple(self.sites[i] for i in row if i < NOWHERE)

    def fractions(self, dids: Sequence[str]) -> Fractions:
        keys = keys_of(dids)
        at = np.searchsorted(self.item_keys, keys)
        at[at == self.item_keys.size] = 0
        known = np.zeros(keys.size, bool) if not self.item_keys.size else self.item_keys[at] == keys
        size = np.full(keys.size, -1, np.int64)
        size[known] = self.size_bytes[at[known]]
        cached = np.zeros((keys.size, len(self.caches)))
        predicted = np.zeros((keys.size, len(self.caches)))
        for i in np.flatnonzero(known).tolist():
            rows = slice(int(self.first_row[at[i]]), int(self.first_row[at[i] + 1]))
            cached[i, self.row_cache[rows]] = self.cached[rows]
            predicted[i, self.row_cache[rows]] = self.predicted[rows]
        return Fractions(size, cached, predicted)


def dump(snapshot: Snapshot) -> bytes:
    """The snapshot as bytes: its arrays and, as JSON, its names, and a checksum."""
    names = {"as_of": snapshot.as_of, "sites": snapshot.sites, "caches": snapshot.caches}
    head = json.dumps(names | {"capacities": snapshot.capacities, "loads": snapshot.loads}).encode()
    content = io.BytesIO()
    content.write(_MAGIC)
    arrays = {name: getattr(snapshot, name) for name in _ARRAYS}
    np.savez(content, head=np.frombuffer(head, np.uint8), **arrays)
    body = content.getvalue()
    return body + zlib.crc32(body).to_bytes(8, "little")


def load(data: bytes) -> Snapshot:
    """The snapshot in `data`. Raises InputError if it is damaged."""
    body = memoryview(data)[:-8]
    if not data.startswith(_MAGIC) or zlib.crc32(body) != int.from_bytes(data[-8:], "little"):
        raise InputError(_DAMAGED)
    try:
        with np.load(io.BytesIO(body[len(_MAGIC) :]), allow_pickle=False) as stored:
            if any(member.compress_type for member in stored.zip.infolist()):
                raise ValueError("it could unpack to more than memory")
            head = strict_json.loads(stored["head"].tobytes())
            arrays = {name: stored[name] for name in _ARRAYS}
        caches = tuple((cache, site) for cache, site in head["caches"])
        loads = {cache: float(load) for cache, load in head["loads"].items()}
        snapshot = Snapshot(head["as_of"], tuple(head["sites"]), caches, head["capacities"], loads, **arrays)
        if not _is_whole(snapshot):
            raise ValueError("its arrays do not belong together")
    except _FAULTS:
        raise InputError(_DAMAGED) from None
    return snapshot


def _is_whole(snapshot: Snapshot) -> bool:
    """Whether the arrays have the types and lengths of each other's, so that every look-up succeeds."""
    n, m, n_rows = len(snapshot.dataset_keys), len(snapshot.item_keys), len(snapshot.cached)
    shapes = ((n,), (n, MAX_SITES), (m,), (m,), (m + 1,), (n_rows,), (n_rows,), (n_rows,))
    for name, shape in zip(_ARRAYS, shapes, strict=True):
        array = getattr(snapshot, name)
        if array.shape != shape or array.dtype != getattr(NOTHING, name).dtype:
            return False
    is_placed = snapshot.placed[snapshot.placed < NOWHERE].max(initial=0) < max(1, len(snapshot.sites))
    is_cached = snapshot.row_cache.max(initial=0) < max(1, len(snapshot.caches))
    return bool(is_placed and is_cached and snapshot.first_row.max() <= n_rows)


class CacheHolding(NamedTuple):
    """What one cache holds of items (indices), in bytes: now, and after its plan is carried out."""

    item: IntArray
    cached_bytes: FloatArray
    predicted_bytes: FloatArray


def snapshot_of(
    *,
    as_of: str,
    sites: Sequence[str],
    caches: Sequence[tuple[str, str]],
    capacities: Mapping[str, Mapping[str, int]],
    datasets: KeyArray,
    placed: npt.NDArray[np.uint8],
    items: Sequence[str],
    size_bytes: FloatArray,
    holdings: Sequence[CacheHolding],
) -> Snapshot:
    """The snapshot of `datasets` (keys) with their rows, and of `items`; `holdings`: one per cache."""
    by_key = np.argsort(datasets, kind="stable")
    keys = keys_of(items)
    order = np.argsort(keys, kind="stable")
    rank = np.empty(order.size, np.int64)
    rank[order] = np.arange(order.size)
    none = CacheHolding(np.empty(0, np.int64), np.empty(0), np.empty(0))
    item, cached_bytes, predicted_bytes = joined([none, *holdings])
    cache = np.repeat(np.arange(len(holdings)), [holding.item.size for holding in holdings])
    size = size_bytes[item]
    cached, predicted = fraction(cached_bytes, size), fraction(predicted_bytes, size)
    rows = np.flatnonzero((cached > 0) | (predicted > 0))
    rows = rows[np.argsort(rank[item[rows]], kind="stable")]
    n_rows = np.bincount(rank[item[rows]], minlength=len(items))
    return Snapshot(
        as_of=as_of,
        sites=tuple(sites),
        caches=tuple(caches),
        capacities=capacities,
        loads={},
        dataset_keys=datasets[by_key],
        placed=placed[by_key],
        item_keys=keys[order],
        size_bytes=size_bytes[order].astype(np.int64),
        first_row=np.concatenate([[0], np.cumsum(n_rows)]).astype(np.uint32),
        row_cache=cache[rows].astype(np.uint8),
        cached=cached[rows].astype(np.float32),
        predicted=predicted[rows].astype(np.float32),
    )


def fraction(held_bytes: FloatArray, size_bytes: FloatArray) -> FloatArray:
    """Bytes held as a share of the size, 0 to 1; 0 where the size is 0."""
    return np.minimum(held_bytes / np.maximum(size_bytes, 1.0), 1.0) * (size_bytes > 0)


NOTHING = snapshot_of(
    as_of="",
    sites=(),
    caches=(),
    capacities={},
    datasets=np.empty(0, np.uint64),
    placed=np.empty((0, MAX_SITES), np.uint8),
    items=(),
    size_bytes=np.empty(0),
    holdings=(),
)
"""What is known before the first refresh."""


_CHUNK = 100_000
_STEPS = 1000
"""Held fractions closer than a thousandth count as equal: then hash and size decide, not a stray block."""


@dataclasses.dataclass(frozen=True)
class Supply:
    """What sites offer: `weights`, bytes of their caches; `bytes_s`, bytes/s that a dataset may draw."""

    sites: tuple[str, ...]
    weights: tuple[float, ...]
    bytes_s: tuple[float, ...]


def placed(
    keys: KeyArray,
    held: FloatArray,
    demand_bytes_s: FloatArray,
    n_reads: FloatArray,
    supply: Supply,
    *,
    min_reads: float,
) -> npt.NDArray[np.uint8]:
    """Rows of `Snapshot.placed` for datasets with these keys, uint8[d, MAX_SITES].

    `held`: float[d, s], fraction that each site holds once its plans are carried out; `demand_bytes_s`: what
    readers will draw; `n_reads`: expected reads of each file. A dataset goes to the site that holds most of
    it (by hash and weight among equals), and to more sites until they can serve the demand. One that nobody
    holds and that is read less than `min_reads` goes nowhere.
    """
    rows = np.full((keys.size, MAX_SITES), NOBODY, np.uint8)
    for start in range(0, keys.size, _CHUNK):
        part = slice(start, start + _CHUNK)
        rows[part] = _rows(keys[part], held[part], demand_bytes_s[part], supply)
    nowhere = (held.max(axis=1, initial=0.0) < 1 / _STEPS) & (n_reads < min_reads)
    rows[nowhere] = NOBODY
    rows[nowhere, 0] = NOWHERE
    return rows


def _rows(
    keys: KeyArray, held: FloatArray, demand_bytes_s: FloatArray, supply: Supply
) -> npt.NDArray[np.uint8]:
    liking = scores(keys, supply.sites, supply.weights)
    by_hash = liking / (1.0 + liking)
    order = np.argsort(-(np.floor(held * _STEPS) + by_hash), axis=1, kind="stable")[:, :MAX_SITES]
    drawn = np.cumsum(np.asarray(supply.bytes_s)[order], axis=1)
    needed = np.ones(order.shape, bool)
    needed[:, 1:] = drawn[:, :-1] < demand_bytes_s[:, None]
    rows = np.full((keys.size, MAX_SITES), NOBODY, np.uint8)
    rows[:, : order.shape[1]] = np.where(needed, order, NOBODY)
    return rows
