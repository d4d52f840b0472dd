"""A snapshot put together from names and numbers in any order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from features.common.arrays import FloatArray, IntArray
from prefetch.placement.snapshot import Snapshot
from replay.federation.rendezvous import KeyArray, keys_of


class Holding(NamedTuple):
    """What one cache holds of items (indices), in bytes: now, and once its plan is carried out."""

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
    """Bytes held as a share of the size, at most 1; of a size of 0: none."""
    return np.minimum(held_bytes / np.maximum(size_bytes, 1.0), 1.0) * (size_bytes > 0)
