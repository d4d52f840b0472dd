"""What an evaluation replays: copies of the accesses, so that no table of the site changes, and caches."""

import dataclasses
import hashlib
import itertools
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from features.common.errors import InputError, SchemaError, bounded
from features.common.names import did_parts
from features.common.times import DAY_S, day_label, parse_day
from features.results import EVALUATIONS
from features.schema import ACCESSES, FILES, Table, arrow_schema
from jobs.ground.settings.tree import Settings
from jobs.ground.store.schema_check import no_access, partition_groups
from jobs.ground.store.tables import Tables
from jobs.loop.traces import KNOWN_AT, from_tables, known_s
from jobs.loop.train.ready import learned_since_s
from models.parallel import map_parallel
from prefetch.plan.value import CYCLES_PER_AGE
from prefetch.plan.value import fitting_cycle_s as within_grid
from replay.access_context import CONTEXT, AccessContext, context_of
from replay.config import CacheConfig
from replay.engine import simulate
from replay.planner import Actions, CacheState
from replay.read.times import UNITS
from replay.study.use import ACTIVITY
from replay.trace import Trace

LAST_S = 2**32
"""A time after all accesses."""

_NEEDED = ("did", "accessed_at", "size_bytes")


def to_evaluate(settings: Settings, *, from_s: int, to_s: int | None) -> None:
    """Raise InputError or StaleInputError unless the tables have accesses before `from_s`, and from it on."""
    if to_s is not None and to_s < from_s:
        raise InputError(f"--to {day_label(to_s)} is before --from {day_label(from_s)}; exchange them")
    tables = Tables.of(settings)
    tables.check_writable(EVALUATIONS)
    first_s = learned_since_s(settings.features.spec, settings.training, at_s=from_s)
    snapshot = tables.snapshot(ACCESSES)
    partitions = snapshot.select(since=day_label(first_s), until=day_label(to_s or LAST_S))
    days = [parse_day(key[0]) for key, part in partitions.items() if part.n_rows]
    if not days:
        raise no_access(snapshot, first_s=from_s, last_s=to_s or from_s, before_s=from_s - first_s)
    check_days(days[0], days[-1] + DAY_S - 1, from_s=from_s)


def check_days(first_s: int, last_s: int, *, from_s: int) -> None:
    """Raise InputError unless accesses from `first_s` to `last_s` are both before and after `from_s`."""
    if not first_s < from_s <= last_s:
        raise InputError(
            f"there are accesses from {day_label(first_s)} to {day_label(last_s)}; --from "
            f"{day_label(from_s)} must leave some before it, to train on, and some after it"
        )


FROM_FILE = "file"
"""Source of accesses that name none."""
ROWS_AT_ONCE = 200_000
"""Rows of a file whose names are in memory in full, as tables have them; others are as the file has them."""


def copy_file(path: Path, tables: Tables) -> None:
    """Copy the accesses in `path`, and `files.parquet` beside it if it exists, into `tables`.

    Missing columns are derived: scope and name from the did, `known_at` from the end of the read (of a file:
    from its creation), one read per row. Raises InputError, SchemaError.
    """
    rows = _read(path, ACCESSES, _NEEDED)
    if not rows.num_rows:
        raise InputError(f"{path.name} holds no access")
    _check_times(path, rows["accessed_at"])
    starts = range(0, rows.num_rows, ROWS_AT_ONCE)
    numbers = pc.sort_indices(_cast(rows, arrow_schema(ACCESSES).field("accessed_at")))
    if (np.diff(numbers.to_numpy().view(np.int64)) < 0).any():  # a slice in order of time has few days
        rows = rows.take(numbers)
    slices = ((rows.slice(start, ROWS_AT_ONCE), numbers.slice(start, ROWS_AT_ONCE)) for start in starts)
    digest = hashlib.sha256(path.name.encode()).hexdigest()[:12]  # events of other files have another
    pieces = (_accesses(some, digest, of_file) for some, of_file in slices)
    days = itertools.chain.from_iterable(partition_groups(ACCESSES, piece) for piece in pieces)
    tables.replace_each(ACCESSES, days)
    catalogue = path.with_name("files.parquet")
    if catalogue.is_file() and catalogue != path:
        files = _with_names(_read(catalogue, FILES, ["did"]))
        created_at = arrow_schema(FILES).field("created_at")
        known = pa.repeat(pa.scalar(0, created_at.type), files.num_rows)
        if created_at.name in files.column_names:
            known = pc.coalesce(_cast(files, created_at), known)
        tables.replace_arrow(FILES, _fitted(FILES, files, {"known_at": known}))


def _accesses(rows: pa.Table, digest: str, numbers: pa.Array) -> pa.Table:
    """Rows of a file, by their numbers there, as accesses with their days. Raises SchemaError."""
    n, schema = rows.num_rows, arrow_schema(ACCESSES)
    ends = [_cast(rows, schema.field(of)) for of in ("closed_at", "accessed_at") if of in rows.column_names]
    defaults = {
        "known_at": pc.coalesce(*ends),
        "n_reads": pa.repeat(pa.scalar(1, pa.int64()), n),
        "source": pa.repeat(FROM_FILE, n),
        "event_id": pc.binary_join_element_wise(digest, numbers.cast(pa.string()), "-"),
    }
    placed = _fitted(ACCESSES, _with_names(rows), defaults)
    return placed.append_column("day", pc.strftime(placed["accessed_at"], format="%Y-%m-%d"))


def copy_tables(site: Tables, tables: Tables, *, since_s: int, until_s: int) -> None:
    """Copy the site's accesses of the days of `since_s` to `until_s`, and its catalogue, into `tables`."""
    accesses = site.snapshot(ACCESSES)
    days = accesses.select(since=day_label(since_s), until=day_label(until_s))
    pieces = ((key, accesses.rows_of([key])) for key in days)
    tables.replace_each(ACCESSES, pieces)
    if site.exists(FILES):
        tables.replace_arrow(FILES, site.read_arrow(FILES))


def _read(path: Path, table: Table, needed: Sequence[str]) -> pa.Table:
    if not (path.is_file() or path.is_dir()):
        raise InputError(f"{path.name} is not a plain file; give a Parquet file of accesses")
    try:
        rows = pq.read_table(path)
    except (pa.ArrowException, OSError, KeyError, UnicodeDecodeError) as error:
        first = str(error).splitlines()[0]
        raise InputError(f"cannot read {path.name} as Parquet: {first}; write it again") from None
    if missing := [name for name in needed if name not in rows.column_names]:
        raise SchemaError(f"{path.name} has no column {missing[0]!r}; give a table of {table.name}")
    return rows


def _check_times(path: Path, times: pa.ChunkedArray) -> None:
    """Raise InputError for timestamps that no access has."""
    if pa.types.is_timestamp(times.type):
        ends = pc.min_max(times).values()
        ends_s = [end.value // UNITS[times.type.unit] for end in ends if end.is_valid]
        if ends_s and not 0 <= ends_s[0] <= ends_s[-1] < LAST_S:
            raise InputError(
                f"{path.name}: accessed_at is from {ends_s[0]} to {ends_s[-1]} s since 1970, beyond the "
                "times of accesses; correct or drop these rows"
            )


def _with_names(rows: pa.Table) -> pa.Table:
    """`rows` with missing scope and name taken from the did, and with a list of origins."""
    dids = _cast(rows, arrow_schema(FILES).field("did")).combine_chunks()
    parts = did_parts(dids)
    if parts.null_count:
        wrong = dids.filter(pc.is_null(parts))[0].as_py()
        raise SchemaError(f"{wrong!r} is not a DID; write scope:name")
    for name in ("scope", "name"):
        if name not in rows.column_names:
            rows = rows.append_column(name, pc.struct_field(parts, name))
    if "origins" not in rows.column_names and "origin" in rows.column_names:
        origin = rows["origin"].cast(pa.string()).combine_chunks()
        offsets = pa.array(range(len(origin) + 1), pa.int32())
        rows = rows.append_column("origins", pa.ListArray.from_arrays(offsets, origin))
    return rows


def _fitted(table: Table, rows: pa.Table, defaults: Mapping[str, pa.Array | pa.ChunkedArray]) -> pa.Table:
    """The columns of `table`: from `rows`, else from `defaults`, else null."""
    columns = {}
    for field in arrow_schema(table):
        if field.name in rows.column_names:
            columns[field.name] = _cast(rows, field)
        elif field.name in defaults:
            columns[field.name] = defaults[field.name].cast(field.type)
        else:
            columns[field.name] = pa.nulls(rows.num_rows, field.type)
    return pa.table(columns)


def _cast(rows: pa.Table, field: pa.Field) -> pa.ChunkedArray:
    try:
        return rows[field.name].cast(field.type)
    except pa.ArrowException as error:
        first = bounded(str(error).splitlines()[0], 200)
        raise SchemaError(f"column {field.name!r} is no {field.type}: {first}; write it again") from None


WATCHED_EVERY_S = 3600
WARM_AGES = 3
"""Plans begin this many eviction ages before counting does."""
TRIED_SHARE = 0.25
"""Share of the past on which weights are tried."""
TRIED_S = 14 * DAY_S
"""Weights are tried on no more days than this, if the caches are warm by then."""

_NOTHING = np.zeros(0, np.int64)
_IDLE = Actions(_NOTHING, _NOTHING, _NOTHING, _NOTHING)


@dataclasses.dataclass(frozen=True)
class Request:
    """The accesses to be evaluated, of a file or the site's tables, from and to days (both inclusive).

    `cycle_s` None: chosen by each capacity's LRU age; `to_s` None: the last day there is.
    """

    accesses: Path | None
    from_s: int
    to_s: int | None
    cycle_s: int | None
    fractions: Sequence[float]


@dataclasses.dataclass(frozen=True)
class Cache:
    """A capacity with a plan every `cycle_s`, from predictions made every `predicted_every_s`.

    `age_s`: at which LRU purges; None: it never did.
    """

    fraction: float
    config: CacheConfig
    cycle_s: int
    predicted_every_s: int
    age_s: int | None


class Days(NamedTuple):
    """Weights of models are tried from `trial_s` on; days from `from_s` on count."""

    trial_s: int
    from_s: int


@dataclasses.dataclass(frozen=True)
class ReplaySetup:
    """The accesses of an evaluation, the tables made from them, and the replayed caches.

    `details`: the activity of each access; `known_s`: uint32[n], when it became known, s since 1970.
    """

    tables: Tables
    demand: Mapping[str, str]
    trace: Trace
    context: AccessContext
    details: pa.Table
    known_s: npt.NDArray[np.uint32]
    caches: Sequence[Cache]

    @property
    def last_day_s(self) -> int:
        """First second of the last day with an access."""
        return int(self.trace.time_s[-1]) // DAY_S * DAY_S


def replay_setup(settings: Settings, request: Request, tables: Tables) -> ReplaySetup:
    """The requested accesses, copied into `tables`, and the caches. Raises InputError."""
    until_s = request.to_s or LAST_S
    demand: Mapping[str, str] = {}
    if request.accesses is not None:
        copy_file(request.accesses, tables)
    else:
        demand = settings.sources.demand
        site = Tables.of(settings)
        since_s = learned_since_s(settings.features.spec, settings.training, at_s=request.from_s)
        copy_tables(site, tables, since_s=since_s, until_s=until_s)
    keep = (*CONTEXT, ACTIVITY, KNOWN_AT)
    loaded = from_tables(tables, since_s=0, until_s=until_s, demand_sources=demand, keep=keep)
    trace = loaded.trace
    check_days(int(trace.time_s[0]), int(trace.time_s[-1]), from_s=request.from_s)
    caches = map_parallel(partial(_cache, settings, trace, request), request.fractions)
    return ReplaySetup(
        tables,
        demand,
        trace,
        context_of(loaded),
        loaded.details.select([ACTIVITY]),  # a month is in memory until the last replay
        known_s(loaded),
        caches,
    )


def trial_days(settings: Settings, setup: ReplaySetup, from_s: int) -> Days:
    """When plans begin: the caches are full of their choices when counting begins, not of LRU's.

    That is a quarter of the past before, but not more than `TRIED_S`, or `WARM_AGES` of the longest eviction
    age, but never more than half of the past; never, if the past is shorter than two trainings are apart.
    Weights are tried on these days.
    """
    every_s, past_s = settings.training.every, from_s - int(setup.trace.time_s[0])
    warm_s = max(WARM_AGES * (cache.age_s or 0) for cache in setup.caches)
    tried_s = max(min(TRIED_SHARE * past_s, TRIED_S), warm_s)
    return Days(from_s - int(min(tried_s, past_s / 2)) // every_s * every_s, from_s)


def capacity_bytes(trace: Trace, fraction: float) -> int:
    """A share of the bytes of all files read. Raises InputError if that is no room for any."""
    capacity = int(fraction * trace.footprint_bytes)
    if capacity <= 0:
        raise InputError(f"a capacity of {fraction:%} of the files read has no room for any")
    return capacity


def _cache(settings: Settings, trace: Trace, request: Request, fraction: float) -> Cache:
    low, high = settings.replay.watermarks
    config = CacheConfig(capacity_bytes(trace, fraction), low, high, settings.replay.purge_interval)
    grid_s, cycle_s = settings.features.cycle, request.cycle_s
    age_s = warm_age_s(trace, config, until_s=request.from_s)
    if cycle_s is None:
        cycle_s = fitting_cycle_s(age_s, grid_s)
    return Cache(fraction, config, cycle_s, max(grid_s, cycle_s), age_s)


def warm_age_s(trace: Trace, cache: CacheConfig, *, until_s: int) -> int | None:
    """Median age at which LRU purges, in the later half of the time before `until_s`; None: it never did."""
    recorder = _AgeRecorder([])
    past = trace.first_at(until_s)
    if not past:
        return None
    before = Trace(trace.time_s[:past], trace.item[:past], trace.size_bytes)
    begin_s = (int(trace.time_s[0]) + until_s) // 2
    simulate(before, cache, planner=recorder, cycle_s=WATCHED_EVERY_S, plan_from_s=begin_s)
    return int(np.median(recorder.ages_s)) if recorder.ages_s else None


def fitting_cycle_s(age_s: int | None, grid_s: int) -> int:
    """How often to plan for a cache of this LRU age, with predictions on a grid of `grid_s`.

    At most a tenth of the age: the longest multiple of `grid_s` that divides a day, or for shorter ages a
    part of `grid_s` as in production. A day if the age is None (nothing was ever purged).
    """
    most = DAY_S if age_s is None else min(DAY_S, age_s // CYCLES_PER_AGE)
    if most < grid_s or DAY_S % grid_s:
        return within_grid(age_s, grid_s)
    return max(n * grid_s for n in range(1, most // grid_s + 1) if DAY_S % (n * grid_s) == 0)


@dataclasses.dataclass
class _AgeRecorder:
    """A planner that plans nothing, and records the age at which LRU last purged."""

    ages_s: list[int]

    def actions(self, state: CacheState) -> Actions:
        """Record the LRU age; plan nothing."""
        if state.lru_age_s is not None:
            self.ages_s.append(state.lru_age_s)
        return _IDLE
