"""The origin that a file's bytes are to come from, of all that have it, and why."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from features.common.arrays import BoolArray, FloatArray, IntArray
from features.common.hosts import first_fit, stated
from jobs.ground.settings.study import OriginSettings
from prefetch.plan.scores import Barred


@dataclasses.dataclass(frozen=True)
class OriginRules:
    """What decides between origins, which are hosts or RSEs; patterns of them name groups.

    `regions`: groups and their distance; `storage`: the site's own, where jobs read without a cache; `tape`:
    those that nothing is fetched from; `failing`: origins that pushes leave alone now; `caches`: no origins,
    what they have came from one.
    """

    regions: Mapping[str, OriginSettings] = dataclasses.field(default_factory=dict)
    storage: tuple[str, ...] = ()
    tape: tuple[str, ...] = ()
    failing: frozenset[str] = frozenset()
    caches: tuple[str, ...] = ()


def nearest(origins: pa.ChunkedArray, rules: OriginRules) -> pa.Table:
    """The best origin of each list of `origins`: the site's own storage, else the nearest that does not fail.

    Of equals the first listed; one of unknown distance is farthest, and tape counts if there is nothing else.
    Columns: `origin` (null: none is listed); `why`, in words; `barred`, a code of `Barred`.
    """
    lists = origins.combine_chunks()
    named = stated(pc.list_flatten(lists))
    is_cache = pa.array(first_fit(named, [rules.caches]) == 0)
    flat = pc.if_else(is_cache, pa.scalar(None, pa.string()), named).dictionary_encode()
    code = flat.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    parent = pc.list_parent_indices(lists).to_numpy(zero_copy_only=False)
    parent, code = parent[code >= 0], code[code >= 0]
    known = _known(flat.dictionary, rules)
    rank = (known.rtt_ms, known.fails, known.barred == Barred.ON_TAPE, known.barred != Barred.AT_SITE)
    order = np.lexsort((np.arange(code.size), *(key[code] for key in rank), parent))
    owner, first = np.unique(parent[order], return_index=True)
    best: IntArray = np.full(len(lists), -1, np.int64)
    best[owner] = code[order][first]
    taken = pa.array(best, mask=best < 0)
    of = np.bincount(parent, minlength=len(lists))
    failing_ms = np.full(len(lists), np.inf)
    np.minimum.at(failing_ms, parent[known.fails[code]], known.rtt_ms[code][known.fails[code]])
    is_farther = failing_ms < np.append(known.rtt_ms, np.inf)[best]
    more = np.where(of > 1, np.where(is_farther, ", nearer ones fail", ", nearest of several"), "")
    why = pc.binary_join_element_wise(known.words.take(taken), pa.array(more.tolist(), pa.string()), "")
    barred = np.append(known.barred, int(Barred.NOT))[best]
    return pa.table({"origin": flat.dictionary.take(taken), "why": why, "barred": barred})


@dataclasses.dataclass(frozen=True)
class _Known:
    """Facts about each distinct origin; the words are for an operator."""

    rtt_ms: FloatArray
    fails: BoolArray
    barred: IntArray
    words: pa.StringArray


def _known(names: pa.StringArray, rules: OriginRules) -> _Known:
    regions = [*rules.regions.items(), ("", None)]
    region = first_fit(names, [one.hosts for one in rules.regions.values()]).tolist()
    rtt_ms = [None if one is None else one.rtt_ms for _, one in regions]
    is_site, is_tape = (first_fit(names, [group]) == 0 for group in (rules.storage, rules.tape))
    barred = np.where(is_tape, int(Barred.ON_TAPE), np.where(is_site, int(Barred.AT_SITE), int(Barred.NOT)))
    places = [
        f"{name}, {'of unknown distance' if rtt_ms[at] is None else f'{rtt_ms[at]:g} ms ({regions[at][0]})'}"
        for name, at in zip(names.to_pylist(), region, strict=True)
    ]
    return _Known(
        rtt_ms=np.array([np.inf if one is None else one for one in rtt_ms])[region],
        fails=np.array([name in rules.failing for name in names.to_pylist()], np.bool_),
        barred=barred,
        words=pa.array(places, pa.string()),
    )
