"""Replay of the site's own accesses: policies, LRU + plan and the bound; results go into the tables."""

import datetime as dt

from features.common.errors import StaleInputError
from features.common.progress import Advance
from features.common.times import DAY_S, as_of_label, day_label
from features.common.units import duration_label
from features.results import REPLAY_DAYS, REPLAY_FILLS, REPLAYS
from features.schema import PREDICTIONS
from jobs.ground.settings.tree import Settings
from jobs.ground.store.tables import Tables
from jobs.loop.plan.file_facts import files_and_hours
from jobs.loop.plan.planner import MODEL_COLUMNS, model_of, planner
from jobs.loop.traces import KNOWN_AT
from jobs.studies.simulate.accesses import Accesses, ReplayAnswer
from jobs.studies.simulate.replay_trace import Caches, compared, named_policies, rows_of, summaries
from replay.comparison import PLAN, Row


def run(
    settings: Settings,
    caches: Caches,
    accesses: Accesses,
    *,
    on_progress: Advance,
) -> ReplayAnswer:
    """Replay days of the tables, and write the results into them unless they are of one site or activity.

    The history of features before them warms the caches. Fractions are of the bytes of all files read in the
    history and those days. The policy lru+plan plans as production does, and needs predictions for every
    cycle of the counted days. Returns the rows of the replays table with further columns. Raises ConfigError,
    InputError, StaleInputError.
    """
    first_s, last_s = accesses.days
    tables, region, cycle_s = Tables.of(settings), settings.region.name, settings.features.cycle
    tables.check_writable(REPLAYS)
    loaded = accesses.load(settings, keep=(*caches.keep, KNOWN_AT) if caches.keep else ())
    trace, plan_by = loaded.trace, None
    if PLAN in named_policies(caches):
        _require_predictions(tables, region, first_s, last_s + DAY_S, cycle_s)
        label = as_of_label(first_s)
        version = model_of(
            tables.read_arrow(PREDICTIONS, as_of=label, owner=region, columns=MODEL_COLUMNS)
        ).version
        files, _ = files_and_hours(settings, tables, trace.names)
        plan_by = planner(
            tables,
            trace.names,
            region=region,
            plan=settings.plan,
            cycle_s=cycle_s,
            files=files,
            version=version,
        )
    replayed = compared(
        loaded, caches, count_from_s=first_s, on_progress=on_progress, planner=plan_by, cycle_s=cycle_s
    )
    replays = summaries(loaded, caches, replayed)
    answer = ReplayAnswer(replays, loaded.notes, capacity=caches.asked)
    if accesses.only:  # the site's report would show them as its region's
        return answer
    rows = [at.rows[name] for at in replayed for name in rows_of(caches)]
    key = day_label(last_s), region
    tables.replace_rows(REPLAYS, replays, key)
    days = [_cache(row) | day for row in rows for day in row.result.daily.rows()]
    tables.replace_rows(REPLAY_DAYS, days, key)
    fills = [
        _cache(row) | {"at": dt.datetime.fromtimestamp(at, dt.UTC), "used_bytes": used}
        for row in rows
        for at, used in zip(row.result.fill.time_s.tolist(), row.result.fill.used_bytes.tolist(), strict=True)
    ]
    tables.replace_rows(REPLAY_FILLS, fills, key)
    return answer


def planned_by(settings: Settings) -> dict[str, object]:
    """What plans of a replay depend on, by name, as parameters of its run in MLflow."""
    plan = settings.plan
    names = ("objective", "model_weight", "prefetch_share", "min_prefetch_probability", "read_once_below")
    return {"cycle": duration_label(settings.features.cycle)} | {name: getattr(plan, name) for name in names}


def _require_predictions(tables: Tables, region: str, since_s: int, until_s: int, cycle_s: int) -> None:
    predicted = {as_of for _, as_of, _ in tables.head(PREDICTIONS).select(owner=region)}
    boundaries = [as_of_label(at) for at in range(since_s, until_s, cycle_s)]
    missing = [label for label in boundaries if label not in predicted]
    if missing:
        raise StaleInputError(
            f"no predictions for {len(missing)} of the replayed plan boundaries, the first at {missing[0]}; "
            "run `cachecast features` and `cachecast predict` for those days, or leave lru+plan out: "
            "--policy lru,clairvoyant"
        )


def _cache(row: Row) -> dict[str, object]:
    return {"policy": row.policy, "capacity_bytes": row.capacity_bytes}
