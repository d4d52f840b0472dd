"""A region with a cache, its plan, its steward and its models, as commands would leave it at `now_s`."""

import datetime as dt
from pathlib import Path
from typing import Any

from features.common.times import as_of_label, day_label
from features.results import DRIFT, PROMOTIONS, STEWARD_DAYS
from features.schema import ACCESSES, PREDICTIONS, RECEIPTS, Table
from jobs.ground.settings.tree import Settings
from jobs.ground.store.tables import Tables
from jobs.loop.plan import plan
from jobs.loop.plan.cache_state import CacheAtMoment
from prefetch.steward.figures import Evicted, Eviction, StewardFigures
from prefetch.target import Held

GB = 10**9
HOSTILE = "<script>alert('x')</script>\"&\u202e.root"
"""The end of a file's name that must never become markup, nor turn the text around."""
BAD_WORDS = "<img src=x onerror=alert(1)>"
N_FILES = 120


def lfn(i: int) -> str:
    """The name of a file; that of file 100 is hostile."""
    return f"/store/mc/Run3/A/AOD/v{i % 3}/000/{HOSTILE if i == 100 else f'f{i}.root'}"


def row(table: Table, **values: Any) -> dict[str, Any]:
    """A row of a table; what is not given is what its type has for nothing."""
    nothing = {"string": "", "long": 0, "double": 0.0, "bool": False, "strings": []}
    at = dt.datetime(2026, 3, 1, 4, tzinfo=dt.UTC)
    return {column.name: nothing.get(column.kind, at) for column in table.columns} | values


def environment(folder: Path) -> dict[str, str]:
    """Where the tables, the journal and the steward's figures are."""
    return {
        "CACHECAST_TABLES__ROOT": str(folder / "tables"),
        "CACHECAST_PUSH__JOURNAL": str(folder / "journal.db"),
        "CACHECAST_STEWARD__STATE": str(folder / "steward"),
    }


def loaded(folder: Path) -> Settings:
    """The settings of the region in `folder`."""
    return Settings.load(folder / "conf", env=environment(folder))


def configured(folder: Path) -> Settings:
    """Write and load the settings of the caches xc1 and xc2."""
    (folder / "conf" / "caches").mkdir(parents=True, exist_ok=True)
    for name in ("xc1", "xc2"):
        text = f'name = "{name}"\nkind = "xcache"\nurl = "root://{name}:1094"\ncapacity = "100GB"\n'
        (folder / "conf" / "caches" / f"{name}.toml").write_text(text)
    return loaded(folder)


def figures(now_s: float, **changes: Any) -> StewardFigures:
    """What the steward of xc1 reports."""
    fields: dict[str, Any] = {
        **{"cache": "xc1", "at_s": now_s - 20, "started_s": now_s - 7200, "following": "s3fifo"},
        **{"used_bytes": 92 * GB, "target_bytes": 93 * GB, "high_bytes": 95 * GB, "inflow_bytes": GB},
        **{"first_files": 4, "first_bytes": 4 * GB, "server": "v6.2.1"},
        **{"held_files": 92, "open_files": 3, "evicted_files": 40, "evicted_bytes": 40 * GB},
        **{"evicted_bytes_hour": 12 * GB, "kept": 1, "lost": 0, "rescans": 1, "saved_bytes": 7 * GB},
        "alarms": {},
        "last_hour": {
            "a plan evicts it": Evicted(2, 2 * GB),
            "next in the order s3fifo": Evicted(10, 10 * GB),
        },
        "version": "cachecast-default/2",
        "version_since_s": now_s - 3600,
        "newest": (Eviction(now_s - 90, lfn(3), GB, "a plan evicts it"),),
    }
    return StewardFigures(**(fields | changes))


def planted(folder: Path, *, now_s: int) -> Settings:
    """Plant the region in `folder`; its settings. xc2 has neither plan nor steward."""
    settings = configured(folder)
    tables, region = Tables(settings.tables.root), settings.region.name
    as_of_s = now_s - now_s % settings.features.cycle
    day, at = day_label(as_of_s), as_of_label(as_of_s)
    predictions = [
        row(PREDICTIONS, did=f"cms:{lfn(i)}", horizon_s=settings.plan.horizon, probability=0.008 * i)
        | {"size_bytes": GB, "model_version": "cachecast-default/2", "last_read_s": 3600}
        for i in range(N_FILES)
    ]
    tables.replace_rows(PREDICTIONS, predictions, (day, at, region))
    held = [Held(lfn(i), GB, GB, True, as_of_s - 7200 - i, False) for i in range(92)]
    held.append(Held(lfn(100), GB, GB, True, as_of_s - 7200, False))
    plan.make(CacheAtMoment(tables, settings, settings.caches["xc1"], held, set(), as_of_s))
    tables.replace_rows(RECEIPTS, [row(RECEIPTS, item_id="0", state="done")], (day, at, "xc1"))
    promoted = row(PROMOTIONS, action="promote", model_version="cachecast-default/2", comparisons="[]")
    promoted |= {"champion": "cachecast-default/2", "may_evict": False, "steward": None}
    promoted |= {"reasons": ["saves 2 TB per day against lru"], "order_reasons": [BAD_WORDS]}
    promoted |= {"trained_until": as_of_label(as_of_s - 86400)}
    tables.replace_rows(PROMOTIONS, [promoted], (day, at, region))
    tables.replace_rows(DRIFT, [row(DRIFT, column="size", drifted=True)], (day, at, region))
    for ago_s, hit, missed in ((3600, 6 * GB, 2 * GB), (3 * 86400, 0, 4 * GB)):
        fields = {"bytes_hit": hit, "bytes_missed": missed, "n_reads": 1, "source": "xcache_gstream"}
        fields |= {"cache": "xc1", "accessed_at": dt.datetime.fromtimestamp(now_s - ago_s, dt.UTC)}
        fields |= {"read_bytes": hit + missed}
        key = (day_label(now_s - ago_s),)
        tables.replace_rows(ACCESSES, [row(ACCESSES, event_id=str(ago_s), **fields)], key)
    saved = {"wan_bytes": 10 * GB, "lru_wan_bytes": 13 * GB, "saved_wan_bytes": 3 * GB, "orders": "s3fifo"}
    tables.replace_rows(STEWARD_DAYS, [row(STEWARD_DAYS, model_version=None, **saved)], (day, "xc1"))
    settings.steward.state.mkdir(exist_ok=True)
    figures(now_s).write(settings.steward.figures("xc1"))
    return settings
