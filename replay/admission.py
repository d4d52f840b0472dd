"""Which files a cache admits, by name."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from features.common.arrays import BoolArray
from features.common.errors import ConfigError


def refused(names: pa.StringArray | None, patterns: Sequence[str], n_items: int) -> BoolArray:
    """Which files match one of `patterns`, where `*` is any text and `?` any character; bool[n_items].

    Such files are read past the cache, as with XRootD's blacklist decision library. There, however, `*` and
    `?` match no slash, so that a pattern needs one line per depth of folders. A name may begin with its
    scope. Raises ConfigError if there are patterns and the trace has no names.
    """
    if not patterns:
        return np.zeros(n_items, np.bool_)
    if names is None:
        raise ConfigError("never_cache", "the trace has no names to match; leave the patterns out")
    found = pc.match_substring_regex(names, f"^(?:[^:/]*:)?(?:{expression(patterns)})$")
    matches: BoolArray = found.fill_null(False).to_numpy(zero_copy_only=False)
    return matches


def expression(patterns: Sequence[str]) -> str:
    """A regular expression for a text that one of `patterns` describes, as a whole."""
    return "|".join(map(_expression, patterns))


def _expression(pattern: str) -> str:
    return "".join({"*": ".*", "?": "."}.get(letter) or re.escape(letter) for letter in pattern)
