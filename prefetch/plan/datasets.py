"""Whole datasets: as far as it pays to cache them, and all of one or nothing where that is worth more."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from features.common.arrays import BoolArray, FloatArray, IntArray
from prefetch.plan.choice import head
from prefetch.plan.scored_files import ScoredFiles
from prefetch.plan.scores import Files, Scores


def fraction_bytes(scores: Scores, files: Files, fraction: float) -> IntArray:
    """Bytes of each dataset (by code) that are worth caching: `fraction` of those of its candidates."""
    code = files.dataset[scores.item]
    member = code >= 0
    size = np.zeros(1 + int(files.dataset.max(initial=-1)), np.int64)
    np.add.at(size, code[member], scores.size_bytes[member])
    return (fraction * size).astype(np.int64)


def held_bytes(disk: ScoredFiles, files: Files, n_datasets: int) -> IntArray:
    """Bytes on disk of each dataset (by code)."""
    code = files.dataset[disk.item]
    held = np.zeros(n_datasets, np.int64)
    np.add.at(held, code[code >= 0], disk.size_bytes[code >= 0])
    return held


class Wanted(NamedTuple):
    """Candidates to fetch: where `wanted`, ranked by `key`; `as_whole`: with its whole dataset."""

    wanted: BoolArray
    key: FloatArray
    as_whole: BoolArray

    def order(self, candidates: ScoredFiles, files: Files) -> IntArray:
        """The wanted by `key`; datasets that go as one stay together, their likeliest files first."""
        index = np.flatnonzero(self.wanted)
        unit = np.where(self.as_whole, files.dataset[candidates.item], -1)[index]
        keys = (candidates.item, -candidates.last_use_s, -candidates.density)
        return index[np.lexsort((*(key[index] for key in keys), unit, -self.key[index]))]


def by_the_file(candidates: ScoredFiles, wanted: BoolArray) -> Wanted:
    """Each wanted file for itself, by its own density."""
    return Wanted(wanted, candidates.density, np.zeros(wanted.size, np.bool_))


def completed(
    candidates: ScoredFiles, files: Files, usable: BoolArray, wanted: BoolArray, bonus: float
) -> Wanted:
    """What is wanted, by which density, if a whole dataset is worth a share of `bonus` more than its files.

    A dataset with a wanted file is fetched as one: all its usable candidates, at their mean density and the
    bonus. It stays by the file where its best file alone is worth more than that.
    """
    code = files.dataset[candidates.item]
    n = 1 + int(code.max(initial=-1))
    inside = usable & (code >= 0)
    n_wanted = np.bincount(code[inside & wanted], minlength=n)
    size = np.bincount(code[inside], weights=candidates.size_bytes[inside], minlength=n)
    worth = candidates.density * candidates.size_bytes
    total = np.bincount(code[inside], weights=worth[inside], minlength=n)
    as_one = (1 + bonus) * total / np.maximum(size, 1)
    best = np.zeros(n)
    np.maximum.at(best, code[inside], candidates.density[inside])
    as_whole = inside & np.append((n_wanted > 0) & (as_one >= best), False)[code]
    key = np.where(as_whole, np.append(as_one, 0.0)[code], candidates.density)
    return Wanted(wanted | as_whole, key, as_whole)


def whole(
    order: IntArray, candidates: ScoredFiles, files: Files, as_whole: BoolArray, limit: int
) -> IntArray:
    """The head of `order` within `limit` bytes, without the dataset that the limit would cut in two."""
    chosen = head(order, candidates.size_bytes, limit)
    rest = order[chosen.size :]
    if not rest.size or not as_whole[rest[0]]:
        return chosen
    cut = files.dataset[candidates.item[rest[0]]]
    in_cut: BoolArray = as_whole[chosen] & (files.dataset[candidates.item[chosen]] == cut)
    return chosen[~in_cut]
