"""The configuration of a replayed cache, and which files it never admits."""

import dataclasses
import re
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from features.common.arrays import BoolArray
from features.common.errors import ConfigError


@dataclasses.dataclass(frozen=True)
class CacheConfig:
    """An XCache with XCache's own defaults; watermarks are fractions of the capacity. Raises ConfigError.

    `cold_age_s`: every `cold_every`-th check also purges files unused for that long (`purgecoldfiles`).
    `block_bytes`: files are fetched by blocks of this size, as far as they are read; None: whole.
    `ssd_bytes`: this part of the capacity is a faster tier; files move to it when they are read.
    `never_cache`: name patterns (`*`, `?`) of files that are read past the cache.
    """

    capacity_bytes: int
    low_watermark: float = 0.90
    high_watermark: float = 0.95
    purge_interval_s: int = 300
    cold_age_s: int | None = None
    cold_every: int = 1
    block_bytes: int | None = None
    ssd_bytes: int = 0
    never_cache: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not 0 < self.low_watermark <= self.high_watermark <= 1:
            marks = f"{self.low_watermark}, {self.high_watermark}"
            raise ConfigError("watermarks", f"{marks} must be ascending within 0 … 1, for example 0.90, 0.95")
        for key in ("capacity_bytes", "purge_interval_s", "cold_age_s", "cold_every", "block_bytes"):
            value = getattr(self, key)
            if value is not None and value <= 0:
                raise ConfigError(key, f"{value} must be above 0")
        if not 0 <= self.ssd_bytes <= self.capacity_bytes:
            raise ConfigError("ssd_bytes", f"{self.ssd_bytes} must be within the capacity")


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
    is_match = pc.match_substring_regex(names, f"^(?:[^:/]*:)?(?:{expression(patterns)})$")
    return np.asarray(is_match.fill_null(False).to_numpy(zero_copy_only=False), np.bool_)


def expression(patterns: Sequence[str]) -> str:
    """A regular expression for a text that one of `patterns` describes, as a whole."""
    return "|".join(map(_expression, patterns))


def matching(patterns: Sequence[str]) -> Callable[[str], object]:
    """A check whether one of `patterns` describes a text as a whole; however many `*` it has, it is quick.

    What stands between two `*` is taken where it comes first: Python would try every other place too.
    """
    forms = list[str]()
    for pattern in patterns:
        first, *rest = map(_expression, pattern.split("*"))
        between = "".join(f"(?>.*?{part})" for part in rest[:-1])
        forms.append(first + between + "".join(f".*{part}" for part in rest[-1:]))
    return re.compile("|".join(forms)).fullmatch if forms else lambda _: None


def _expression(pattern: str) -> str:
    return "".join({"*": ".*", "?": "."}.get(letter) or re.escape(letter) for letter in pattern)
