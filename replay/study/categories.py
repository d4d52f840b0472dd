"""The category of each file, and what a cache saves for each category: whether to admit it, and why."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from features.common.arrays import BoolArray
from features.common.errors import ConfigError
from features.common.names import tiers_of
from features.common.times import DAY_S, HOUR_S
from features.common.units import format_bytes
from replay.read.values import first_known
from replay.study.use import Use, lru_age_s, total_by
from replay.trace import ItemArray, Trace

Verdict = Literal["cache", "cache if small", "do not cache"]
CACHE: Verdict = "cache"
CACHE_SMALL: Verdict = "cache if small"
DO_NOT_CACHE: Verdict = "do not cache"


@dataclasses.dataclass(frozen=True)
class Thresholds:
    """When a category pays: each byte fetched for it saves `min_saved_per_byte` or more of WAN traffic.

    Files up to `small_file_bytes` are small. The reason is "read once" if less than `min_reread_share` of the
    accesses are re-reads. Raises ConfigError.
    """

    min_saved_per_byte: float = 0.1
    min_reread_share: float = 0.05
    small_file_bytes: int = 100 * 10**6

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
        """Bytes served from the cache per byte fetched, past the cache too, from an origin; 0 if none was."""
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


EVERYTHING, OTHER, REST = "all", "other", "the rest"
MAX_CATEGORIES = 20
HINTED_NAMES = 1000
"""Names, spread evenly over the trace's, in which a hint looks for tiers."""
LOOKS_LIKE = {
    "CMS": r"(^|/)store/|(^|[/_-])(RAW-?RECO|RECO|(MINI|NANO)?AOD(SIM)?|GEN-SIM)([/_.-]|$)|/Run20[0-9]{2}",
    "ATLAS": r"(^|[:/.])((data|mc|valid|hi)[0-9]{2}_|D?(AOD|ESD|RAW)_|user[.])|/rucio/|[.]pool[.]root",
}


class Labels(NamedTuple):
    """A code per file (int32[m]) and the name of each code."""

    code: ItemArray
    names: list[str]


@dataclasses.dataclass(frozen=True)
class Category:
    """One category of files under LRU: sums over its files that were read, and the verdict."""

    name: str
    sums: Sums
    verdict: Verdict
    reason: str


def never_paying(use: Use, labels: Labels, thresholds: Thresholds) -> BoolArray:
    """Which files have a category that does not pay in any cache, bool[m]."""
    never = [
        whole.accesses > 0 and never_pays(whole, small, thresholds)
        for whole, small in _sums(use, labels, thresholds)
    ]
    return np.array(never, np.bool_)[labels.code]


def category_table(
    use: Use, labels: Labels, thresholds: Thresholds, *, cleared: Use | None = None
) -> list[Category]:
    """Every category that was read, by descending bytes requested: its sums under `use`, and its verdict.

    `cleared`: the same cache without the files of `never_paying`; the other categories are judged by it.
    None if there are no such files.
    """
    judge = use if cleared is None else cleared
    age_s = lru_age_s(judge)
    rows = [
        Category(name, whole, *judged(*cleared_sums, thresholds, lru_age_s=age_s))
        for name, (whole, _), cleared_sums in zip(
            labels.names, _sums(use, labels, thresholds), _sums(judge, labels, thresholds), strict=True
        )
        if whole.accesses
    ]
    return sorted(rows, key=lambda row: -row.sums.requested_bytes)


def refused(trace: Trace, labels: Labels, table: list[Category], thresholds: Thresholds) -> BoolArray:
    """Which files `table` says not to cache, bool[m]; never those of a category that was not read."""
    verdicts = {row.name: row.verdict for row in table}
    of_code = [verdicts.get(name, CACHE) for name in labels.names]
    never, if_small = (
        np.array([v == verdict for v in of_code])[labels.code] for verdict in (DO_NOT_CACHE, CACHE_SMALL)
    )
    return np.asarray(never | (if_small & (trace.size_bytes > thresholds.small_file_bytes)), np.bool_)


def _sums(use: Use, labels: Labels, thresholds: Thresholds) -> list[tuple[Sums, Sums]]:
    """Sums per category: over all its files, and over its small ones."""
    is_small = use.trace.size_bytes <= thresholds.small_file_bytes
    small = np.where(is_small, labels.code, np.int32(-1))
    return list(zip(_summed(use, labels.code, labels), _summed(use, small, labels), strict=True))


def _summed(use: Use, code: ItemArray, labels: Labels) -> list[Sums]:
    read = (use.accesses > 0).astype(np.int64)
    per_file = (
        use.accesses,
        read,
        use.trace.size_bytes * read,
        use.requested_bytes,
        use.hits,
        use.hit_bytes,
        use.inflow_bytes,
    )
    totals = (total_by(code, amount, len(labels.names)).tolist() for amount in per_file)
    return [Sums(*row) for row in zip(*totals, strict=True)]


def categories(trace: Trace, details: pa.Table) -> Labels:
    """Each file's category: the category in `details`, else the tier there, else the tier in its name.

    If no file has any of these, it is the dataset. `details`: one row per access, with columns category, tier
    and dataset if the trace has them; a file's first known value counts. A file of unknown category is
    `other`, or `all` if every file is. All but the 20 categories with most bytes requested become `the rest`.
    """
    value = _known(trace, details, ("category", "tier"))
    if trace.names is not None and value.null_count:
        nameless = pc.is_null(value)
        value = pc.replace_with_mask(value, nameless, tiers_of(trace.names.filter(nameless)))
    if value.null_count == trace.n_items:
        value = _known(trace, details, ("dataset",))
    value = value.fill_null(EVERYTHING if value.null_count == trace.n_items else OTHER)
    coded = value.dictionary_encode()
    return _largest(trace, Labels(coded.indices.to_numpy().astype(np.int32), coded.dictionary.to_pylist()))


def hints(trace: Trace, details: pa.Table) -> tuple[str, ...]:
    """That names look like an experiment's and tell no tier, if no column does: one sentence, or none."""
    columns = [details[role] for role in ("category", "tier") if role in details.column_names]
    if trace.names is None or any(column.null_count < len(column) for column in columns):
        return ()
    spread = np.linspace(0, trace.n_items - 1, min(HINTED_NAMES, trace.n_items)).astype(np.int64)
    names = trace.names.take(pa.array(spread))
    if tiers_of(names).null_count < len(names):
        return ()
    return tuple(
        f"names look like {experiment}'s and tell no data tier; if a column does, --columns category=NAME"
        for experiment, pattern in LOOKS_LIKE.items()
        if pc.any(pc.match_substring_regex(names.cast(pa.string()), pattern)).as_py()
    )[:1]


def _known(trace: Trace, details: pa.Table, roles: Sequence[str]) -> pa.StringArray:
    """The first of `roles` that is known of each file."""
    columns = [details[role] for role in roles if role in details.column_names]
    known = [first_known(column, trace.item, trace.n_items) for column in columns]
    return pc.coalesce(*known) if known else pa.nulls(trace.n_items, pa.string())


def _largest(trace: Trace, labels: Labels) -> Labels:
    if len(labels.names) <= MAX_CATEGORIES:
        return labels
    size = trace.size_bytes[trace.item]
    requested = np.bincount(labels.code[trace.item], weights=size, minlength=len(labels.names))
    largest = np.argsort(-requested, kind="stable")[:MAX_CATEGORIES]
    renumbered = np.full(len(labels.names), MAX_CATEGORIES, np.int32)
    renumbered[largest] = np.arange(MAX_CATEGORIES)
    return Labels(renumbered[labels.code], [labels.names[code] for code in largest] + [REST])
