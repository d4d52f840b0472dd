"""Whether to cache a category of files, and why."""

from __future__ import annotations

import dataclasses
from typing import Literal, NamedTuple

from features.common.errors import ConfigError
from features.common.times import DAY_S, HOUR_S
from features.common.units import format_bytes

Verdict = Literal["cache", "cache if small", "do not cache"]
CACHE: Verdict = "cache"
CACHE_SMALL: Verdict = "cache if small"
DO_NOT_CACHE: Verdict = "do not cache"


@dataclasses.dataclass(frozen=True)
class Thresholds:
    """When a category pays: each byte fetched for it saves `min_saved_per_byte` or more of WAN traffic.

    Files up to `small_file_bytes` are small; files with at least `many_accesses` are read often. The reason
    is "read once" if less than `min_reread_share` of the accesses are re-reads. Raises ConfigError.
    """

    min_saved_per_byte: float = 0.1
    min_reread_share: float = 0.05
    small_file_bytes: int = 100 * 10**6
    many_accesses: int = 5

    def __post_init__(self) -> None:
        if min(self.min_saved_per_byte, self.min_reread_share) <= 0:
            raise ConfigError("study", "min_saved_per_byte and min_reread_share must be above 0")


class Sums(NamedTuple):
    """Requests for some files, and what LRU served of them; `inflow_bytes` came into the cache."""

    accesses: int = 0
    files: int = 0
    footprint_bytes: int = 0
    requested_bytes: int = 0
    hits: int = 0
    hit_bytes: int = 0
    inflow_bytes: int = 0

    @property
    def rereads(self) -> int:
        """Accesses that are not a file's first."""
        return self.accesses - self.files

    @property
    def saved_per_byte(self) -> float:
        """Bytes served from the cache per byte fetched from an origin; 0 if none was fetched.

        Bytes that were read past the cache count as fetched too.
        """
        fetched = self.requested_bytes - self.hit_bytes
        return self.hit_bytes / fetched if fetched else 0.0

    @property
    def saved_per_byte_at_best(self) -> float:
        """`saved_per_byte` in a cache that never evicts: bytes of all re-reads per byte of the files."""
        again = self.requested_bytes - self.footprint_bytes
        return again / self.footprint_bytes if self.footprint_bytes else 0.0

    def without(self, part: Sums) -> Sums:
        """The sums of the files that are not in `part`."""
        return Sums(*(whole - some for whole, some in zip(self, part, strict=True)))


def never_pays(whole: Sums, small: Sums, thresholds: Thresholds) -> bool:
    """Whether a category pays in no cache, because too little of it is read again."""
    best = max(whole.saved_per_byte_at_best, small.saved_per_byte_at_best)
    return best < thresholds.min_saved_per_byte


def judged(whole: Sums, small: Sums, thresholds: Thresholds, *, lru_age_s: int | None) -> tuple[Verdict, str]:
    """The verdict on a category, and its reason; `small`: sums over its files up to `small_file_bytes`.

    Both are sums in a cache that does not admit categories that never pay.
    """
    least = thresholds.min_saved_per_byte
    if never_pays(whole, small, thresholds):
        return DO_NOT_CACHE, _why_never(whole, thresholds)
    large = whole.without(small)
    if small.accesses and large.accesses and small.saved_per_byte >= least > large.saved_per_byte:
        return CACHE_SMALL, (
            f"a byte fetched saves {small.saved_per_byte:.2g} for files up to "
            f"{format_bytes(thresholds.small_file_bytes)}, and {large.saved_per_byte:.2g} for larger ones"
        )
    if not whole.inflow_bytes:
        return DO_NOT_CACHE, "none of its files fits into the cache"
    age = "" if lru_age_s is None else f" (LRU age {age_text(lru_age_s)})"
    kept_percent = 100 * whole.hits / whole.rereads
    saved = f"a byte fetched saves {whole.saved_per_byte:.2g}"
    if whole.saved_per_byte >= least:
        return CACHE, f"{_reread(whole)}, {kept_percent:.0f} % of that while still cached{age}; {saved}"
    return (
        DO_NOT_CACHE,
        f"{_reread(whole)}, {100 - kept_percent:.0f} % of that when it was gone{age}; {saved}",
    )


def _why_never(whole: Sums, thresholds: Thresholds) -> str:
    share = whole.rereads / whole.accesses
    if share < thresholds.min_reread_share:
        return f"read once: {100 * (1 - share):.1f} % of accesses are a file's first"
    at_best = f"{whole.saved_per_byte_at_best:.2g}"
    return f"{_reread(whole)}; a byte fetched could save {at_best} even in a cache that never evicts"


def _reread(whole: Sums) -> str:
    return f"re-read {whole.rereads / whole.files:.2g} times a file"


def age_text(seconds: int) -> str:
    """A duration in days, hours, minutes or seconds, for example `2.5 days`."""
    for size, unit in ((DAY_S, "days"), (HOUR_S, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds} seconds"
