"""Comparison of origins with host patterns, however the origin is written."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from features.common.arrays import IntArray

_BEFORE_HOST = r"^(?:[A-Za-z0-9+.-]+://)?(?:[^@/]*@)?"
_AFTER_HOST = r"[:/].*$"


def hosts_of(origins: pa.StringArray) -> pa.StringArray:
    """The host of each origin (host, host:port, URL or RSE) in lower case; an RSE counts as a host."""
    host = pc.replace_substring_regex(origins, _BEFORE_HOST, "")
    return pc.utf8_lower(pc.replace_substring_regex(host, _AFTER_HOST, ""))


def first_fit(origins: pa.StringArray, groups: Sequence[Sequence[str]]) -> IntArray:
    """Index of the first of `groups` (host patterns, for example `*.fr`) that fits each origin.

    Case does not matter. `len(groups)` if none fits, and for null.
    """
    coded = hosts_of(origins).dictionary_encode()
    found = [_first(host, groups) for host in coded.dictionary.to_pylist()]
    code = coded.indices.fill_null(len(found)).to_numpy(zero_copy_only=False)
    first: IntArray = np.array([*found, len(groups)], np.int64)[code]
    return first


def _first(host: str, groups: Sequence[Sequence[str]]) -> int:
    fits = (code for code, hosts in enumerate(groups) if any(fnmatchcase(host, one.lower()) for one in hosts))
    return next(fits, len(groups))
