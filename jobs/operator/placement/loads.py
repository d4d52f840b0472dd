"""How busy caches are, by the reads of the last hour that they reported."""

import datetime as dt
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from features.common.times import DAY_S, HOUR_S, day_label
from features.schema import ACCESSES
from jobs.ground.settings.tree import CacheSettings
from jobs.ground.store.tables import Tables

WINDOW_S = HOUR_S
_REPORTS = "xcache_gstream"
_COLUMNS = ("cache", "accessed_at", "closed_at", "known_at", "read_bytes", "source")
_MOMENT = pa.timestamp("us", tz="UTC")


def cache_loads(tables: Tables, caches: Sequence[CacheSettings], as_of_s: int) -> dict[str, float]:
    """The load of each cache by name, 1 for the mean of its site; without those of unknown load.

    The mean of two shares, of bytes/s and open files in the hour before, each by the mean of the site's
    caches. A cache without reads may be idle or unheard.
    """
    rates = _rates(tables, as_of_s)
    sites: dict[str, list[str]] = {}
    for cache in caches:
        if cache.name in rates:
            sites.setdefault(cache.at_site, []).append(cache.name)
    loads: dict[str, float] = {}
    for names in sites.values():
        figures = np.array([rates[name] for name in names])
        is_known = np.isfinite(figures)
        total = np.where(is_known, figures, 0.0).sum(axis=0)
        is_known &= total > 0
        shares = np.where(is_known, figures, 0.0) * is_known.sum(axis=0) / np.where(total > 0, total, 1.0)
        n_known = is_known.sum(axis=1)
        known = zip(names, n_known.tolist(), shares.sum(axis=1).tolist(), strict=True)
        loads |= {name: share / n for name, n, share in known if n}
    return loads


def _rates(tables: Tables, as_of_s: int) -> dict[str, tuple[float, float]]:
    """Bytes/s and open files of each cache in the window, on average; NaN: unknown."""
    since, until = day_label(as_of_s - DAY_S), day_label(as_of_s)
    rows = tables.head(ACCESSES).rows(_COLUMNS, since=since, until=until)
    begin, now = (dt.datetime.fromtimestamp(at_s, dt.UTC) for at_s in (as_of_s - WINDOW_S, as_of_s))
    is_reported = pc.and_(pc.equal(rows["source"], _REPORTS), pc.is_valid(rows["cache"]))
    is_past = pc.and_(pc.less_equal(rows["known_at"], now), pc.less_equal(rows["accessed_at"], now))
    rows = rows.filter(pc.and_(pc.and_(is_reported, is_past), pc.greater(rows["closed_at"], begin)))
    opened, closed = (
        rows[name].cast(_MOMENT).cast(pa.int64()).to_numpy() / 1e6 for name in ("accessed_at", "closed_at")
    )
    within_s = np.maximum(0.0, np.minimum(closed, as_of_s) - np.maximum(opened, as_of_s - WINDOW_S))
    length_s = closed - opened
    share = np.where(length_s > 0, within_s / np.where(length_s > 0, length_s, 1.0), 1.0)
    n_bytes = pc.max_element_wise(rows["read_bytes"].cast(pa.float64(), safe=False), 0.0, skip_nulls=False)
    figures = {"bytes": pc.multiply(n_bytes, pa.array(share)), "open_s": pa.array(within_s)}
    by_cache = pa.table({"cache": rows["cache"], **figures}).group_by("cache")
    sums = by_cache.aggregate([(name, "sum") for name in figures])
    means = (sums[f"{name}_sum"].fill_null(float("nan")).to_numpy() / WINDOW_S for name in figures)
    return {cache: (rate, n) for cache, rate, n in zip(sums["cache"].to_pylist(), *means, strict=True)}
