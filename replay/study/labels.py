"""The category of each file, and the region that its bytes come from."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from features.common.arrays import IntArray
from features.common.names import MAX_NAME_CHARS, RULES, UNFIT
from replay.origins import first_fit
from replay.trace import ItemArray, Trace

EVERYTHING, OTHER, REST, UNKNOWN = "all", "other", "the rest", "unknown"
MAX_CATEGORIES = 20
_SCOPE = "^[^/:]*:"


class Labels(NamedTuple):
    """A code per file (int32[m]) and the name of each code."""

    code: ItemArray
    names: list[str]


class Region(NamedTuple):
    """Origins that match `hosts` (patterns, for example `*.fr`), and their round-trip time if known."""

    name: str
    hosts: tuple[str, ...]
    rtt_ms: float | None


def categories(trace: Trace, details: pa.Table) -> Labels:
    """Each file's category: the category in `details`, else the tier there, else the tier in its name.

    `details`: one row per access, with columns category and tier if the trace has them; a file's first known
    value counts. A file of unknown category is `other`, or `all` if every file is. All but the 20 categories
    with most bytes requested become `the rest`.
    """
    known = [
        _of_files(trace, details[column]) for column in ("category", "tier") if column in details.column_names
    ]
    value = pc.coalesce(*known) if known else pa.nulls(trace.n_items, pa.string())
    if trace.names is not None and value.null_count:
        nameless = pc.is_null(value)
        value = pc.replace_with_mask(value, nameless, tiers_of(trace.names.filter(nameless)))
    value = value.fill_null(EVERYTHING if value.null_count == trace.n_items else OTHER)
    coded = value.dictionary_encode()
    return _largest(trace, Labels(coded.indices.to_numpy().astype(np.int32), coded.dictionary.to_pylist()))


def tiers_of(names: pa.StringArray) -> pa.StringArray:
    """The data tier in each name or did, or null: the rules of `features.common.names` for whole columns."""
    bare = pc.replace_substring_regex(names.cast(pa.string()), _SCOPE, "")
    unfit = pc.match_substring_regex(bare, re.sub(r"\\u([0-9a-f]{4})", r"\\x{\1}", UNFIT))
    fit = pc.and_(pc.invert(unfit), pc.less_equal(pc.utf8_length(bare), MAX_NAME_CHARS))
    left = pc.if_else(fit, bare, None)
    found = pa.nulls(len(names), pa.string())
    for rule in RULES:
        matches = pc.match_substring_regex(left, rule.pattern).fill_null(False)
        if rule.tier:
            tier = pc.replace_substring_regex(left, rule.pattern, rf"\{rule.tier}")
            found = pc.if_else(matches, tier, found)
        left = pc.if_else(matches, None, left)
    return pc.if_else(pc.equal(found, ""), None, found)


def regions_of(origin: pa.ChunkedArray, regions: Sequence[Region]) -> tuple[ItemArray, list[str]]:
    """The region of each access by its origin (host, host:port, URL or RSE), and the regions' names.

    The first region with a matching pattern counts; case does not matter. The last name is `unknown`.
    """
    encoded = _encoded(origin)
    of_origin = first_fit(encoded.dictionary.cast(pa.string()), [region.hosts for region in regions])
    of_origin = np.append(of_origin, len(regions))
    code = encoded.indices.fill_null(-1).to_numpy()
    return of_origin[code].astype(np.int32), [region.name for region in regions] + [UNKNOWN]


def _of_files(trace: Trace, column: pa.ChunkedArray) -> pa.StringArray:
    encoded = _encoded(column)
    code: IntArray = encoded.indices.fill_null(-1).to_numpy().astype(np.int64)
    known = np.flatnonzero(code >= 0)[::-1]
    of_file = np.full(trace.n_items, -1, np.int64)
    # With repeated indices the last assignment stays, which in reversed order is the first access.
    of_file[trace.item[known]] = code[known]
    index = pa.array(of_file, mask=of_file < 0)
    return encoded.dictionary.cast(pa.string()).take(index)


def _encoded(column: pa.ChunkedArray) -> pa.DictionaryArray:
    is_encoded = pa.types.is_dictionary(column.type)
    whole = (column if is_encoded else column.dictionary_encode()).unify_dictionaries().combine_chunks()
    return whole if isinstance(whole, pa.DictionaryArray) else whole.chunk(0)


def _largest(trace: Trace, labels: Labels) -> Labels:
    if len(labels.names) <= MAX_CATEGORIES:
        return labels
    size = trace.size_bytes[trace.item]
    requested = np.bincount(labels.code[trace.item], weights=size, minlength=len(labels.names))
    kept = np.argsort(-requested, kind="stable")[:MAX_CATEGORIES]
    renumbered = np.full(len(labels.names), MAX_CATEGORIES, np.int32)
    renumbered[kept] = np.arange(MAX_CATEGORIES)
    return Labels(renumbered[labels.code], [labels.names[code] for code in kept] + [REST])
