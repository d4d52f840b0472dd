"""The snapshot of a refresh: where datasets go, and what the caches hold of each file.

A job makes it from predictions, plans and inventories; the service looks the result up.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from features.common.arrays import FloatArray, IntArray
from prefetch.placement.snapshot import MAX_SITES, NOBODY, NOWHERE, Snapshot
from replay.federation.ranges import KeyArray, keys_of, scores


class Holding(NamedTuple):
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
    holdings: Sequence[Holding],
) -> Snapshot:
    """The snapshot of `datasets` (keys) with their rows, and of `items` (dids of files and datasets).

    `capacities`: bytes of the caches by site and name.
    `holdings`: one per cache; an item is named at most once in each.
    """
    by_key = np.argsort(datasets, kind="stable")
    keys = keys_of(items)
    order = np.argsort(keys, kind="stable")
    rank = np.empty(order.size, np.int64)
    rank[order] = np.arange(order.size)
    item = np.concatenate([np.empty(0, np.int64), *(one.item for one in holdings)])
    cache = np.repeat(np.arange(len(holdings)), [one.item.size for one in holdings])
    size = size_bytes[item]
    cached = fraction(np.concatenate([np.empty(0), *(one.cached_bytes for one in holdings)]), size)
    predicted = fraction(np.concatenate([np.empty(0), *(one.predicted_bytes for one in holdings)]), size)
    rows = np.flatnonzero((cached > 0) | (predicted > 0))
    rows = rows[np.argsort(rank[item[rows]], kind="stable")]
    n_rows = np.bincount(rank[item[rows]], minlength=len(items))
    return Snapshot(
        as_of=as_of,
        sites=tuple(sites),
        caches=tuple(caches),
        capacities=capacities,
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
    readers are expected to draw; `n_reads`: expected reads of each file. A dataset goes to the site that
    holds most of it (by hash and weight among equals), and to further ones until they can serve the demand.
    One that nobody holds and that is read less than `min_reads` goes nowhere.
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
