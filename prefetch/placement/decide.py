"""Where datasets go: to the sites that hold or will hold them, to as many as their readers need.

Made by a job, from predictions and plans; the service looks the result up.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt

from features.common.arrays import FloatArray
from prefetch.placement.snapshot import MAX_SITES, NOBODY, NOWHERE
from replay.federation.rendezvous import KeyArray, scores

_CHUNK = 100_000
_STEPS = 1000
"""Held fractions closer than a thousandth count as equal: then hash and size decide, not a stray block."""


@dataclasses.dataclass(frozen=True)
class Supply:
    """What sites offer: `weights` (bytes of their caches), `bytes_s` that one dataset may draw from each."""

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
