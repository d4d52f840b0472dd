"""What features cost: kernels, both engines, DuckDB for the counts alone, and cycles; rates and ratios.

bench/feature_speed.py              2 M accesses in 30 days; cycles of 20 000 reads a day at days 10, 60, 90
bench/feature_speed.py --accesses N       another rebuild; --reads-a-day N another volume of the cycles
bench/feature_speed.py --rebuild          the rebuild alone

Every file is read at least once on the day it appears; two in five are read again, on days after it that fall
off as 1/age; files come in datasets of 50.

Needs the environment that `make verify` makes: .venv/bin/python bench/feature_speed.py
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

import duckdb  # noqa: E402
import numpy as np  # noqa: E402
import pyarrow as pa  # noqa: E402
import pyarrow.compute as pc  # noqa: E402
from measured import family_cpu_s  # noqa: E402

from features.common.times import DAY_S, as_of_label, day_label  # noqa: E402
from features.schema import ACCESSES, FILES, STATES, arrow_schema  # noqa: E402
from features.spec import (  # noqa: E402
    COLUMNS,
    HALF_LIVES_S,
    FeatureSpec,
)
from features.stream import events, names, row  # noqa: E402
from features.stream.facts import CATALOGUE, Stored  # noqa: E402
from features.stream.region import Region  # noqa: E402
from features.stream.state import DATASET_WIDTH, FILE_WIDTH, PASS_WIDTH, PASSES, Files, State, new_state  # noqa: E402
from jobs.ground.settings.tree import Settings  # noqa: E402
from jobs.ground.store.tables import Tables  # noqa: E402
from jobs.loop.train import features as job  # noqa: E402
from jobs.loop.train import local_engine  # noqa: E402
from jobs.loop.train.engines import (  # noqa: E402
    Engine,
    RegionData,
)
from jobs.loop.train.local_engine import LocalEngine  # noqa: E402
from jobs.loop.train.states import States  # noqa: E402

START_S = 1_772_323_200 // DAY_S * DAY_S
FILES_PER_DATASET = 50
REREAD_SHARE = 0.4
SPREAD_DAYS = 30
RUNS = 3
DAYS = (10, 60, 90)
READS, ROWS, STATE, REST = "new reads", "candidates", "state", "rest"
FOLLOWS = (
    *((States, "source", READS), (local_engine, "coded_reads", READS), (Region, "advance", READS)),
    (Region, "features", ROWS),
    *((local_engine, "carried", STATE), (Region, "__init__", STATE), (Region, "stored", STATE)),
    (local_engine, "_staged", ROWS),
)
"""Steps of a cycle, and what the time of each follows."""
ROW_BYTES = 8 * (FILE_WIDTH + DATASET_WIDTH + PASSES * PASS_WIDTH) + 4 * len(COLUMNS)
"""What a row is made from and written to; an update touches the same state, to read and to write it."""


@dataclasses.dataclass(frozen=True)
class Only:
    """Always this engine."""

    chosen: Engine

    def engine(self, n_rows: int) -> Engine:
        return self.chosen


def main() -> int:
    """Print rates and ratios."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--accesses", type=int, default=2_000_000)
    parser.add_argument("--reads-a-day", type=int, default=20_000)
    parser.add_argument("--rebuild", action="store_true")
    options = parser.parse_args()
    settings = Settings.load(None)
    spec = settings.features.spec
    with tempfile.TemporaryDirectory(prefix="cachecast-bench-") as folder:
        tables = Tables(f"{folder}/rebuild")
        reads = _accesses(range(30), options.accesses // 30)
        tables.replace_arrow(ACCESSES, reads)
        if not options.rebuild:
            bandwidth = _bandwidth()
            print(f"memory, one core                   {bandwidth / 1e9:8.1f} GB/s read and written")
            _kernels(reads, spec, bandwidth)
        _rebuilds(tables, spec, settings, options.accesses)
        if not options.rebuild:
            _cycles(Tables(f"{folder}/cycles"), spec, options.reads_a_day)
    return 0


def _bandwidth() -> float:
    """Bytes per second that one core copies, read and written."""
    source, target = np.ones(32_000_000), np.zeros(32_000_000)
    return 2 * source.nbytes / _median(lambda: np.copyto(target, source))


def _kernels(reads: pa.Table, spec: FeatureSpec, bandwidth: float) -> None:
    """Both kernels on one core, beside what memory would allow if nothing were in the processor's caches."""
    dids = names.distinct([reads["did"]])
    known, order = events.ordered(reads, lambda: names.numbers(reads["did"], dids), cycle_s=spec.cycle_s)
    datasets = names.distinct([reads["dataset"]])
    dataset = np.zeros(len(dids), np.int32)
    dataset[known.item] = names.numbers(reads["dataset"], datasets)[order]
    m, d = len(dids), len(datasets)
    files = Files(
        dataset,
        np.zeros(m, np.int32),
        np.ones(m, np.int64),
        np.full(m, -1, np.int32),
        np.zeros(d, np.int64),
        float(spec.history_s),
    )
    states: list[State] = []

    def count(stop: int) -> None:
        states[:] = [new_state(m, d)]
        events.count(states[0], files, known, (0, stop))

    count(1)
    seconds = _median(lambda: count(known.item.size))
    _rate("update, one core", known.item.size, seconds, bandwidth / (2 * ROW_BYTES))
    item = np.arange(m, dtype=np.int32)
    now_s = float(START_S + 31 * DAY_S)
    seconds = _median(lambda: row.written(states[0], files, item, now_s))
    _rate("row, one core", m, seconds, bandwidth / ROW_BYTES)
    empty = arrow_schema(FILES).empty_table().select(list(CATALOGUE))
    seconds = _median(lambda: Region(reads, empty, Stored.empty(), spec).features(int(now_s)))
    _rate("a region, in memory", reads.num_rows, seconds)


def _rebuilds(tables: Tables, spec: FeatureSpec, settings: Settings, n_accesses: int) -> None:
    """One as_of from all accesses, written: in this process, with Spark on two cores, and DuckDB's part."""
    as_of_s = START_S + 30 * DAY_S
    local = _cost(lambda: _rebuilt(tables, spec, as_of_s, LocalEngine()))
    n_rows = tables.read_arrow(spec.features_table, columns=["did"]).num_rows
    _rate(f"rebuild, {n_rows} rows: here", n_accesses, local.seconds)
    duck = _cost(lambda: _duckdb(tables, spec, as_of_s))
    from jobs.ground.spark.session import spark_session  # noqa: PLC0415  Spark starts after what needs none
    from jobs.loop.train.spark_engine import SparkEngine  # noqa: PLC0415

    before_s = family_cpu_s(os.getpid())
    spark = spark_session(settings.spark.model_copy(update={"master": "local[2]"}))
    _rebuilt(tables, spec, as_of_s, SparkEngine(spark))
    first_s = family_cpu_s(os.getpid()) - before_s
    distributed = _cost(lambda: _rebuilt(tables, spec, as_of_s, SparkEngine(spark)))
    spark.stop()
    _rate("rebuild: Spark, two cores", n_accesses, distributed.seconds)
    _rate("counts alone: DuckDB, two cores", n_accesses, duck.seconds)
    print(f"rebuild here / DuckDB              {local.seconds / duck.seconds:8.2f}")
    print(f"rebuild with Spark / DuckDB        {distributed.seconds / duck.seconds:8.2f}")
    print(f"of CPU: here {local.cpu_s:.1f} s, DuckDB {duck.cpu_s:.1f} s, Spark {distributed.cpu_s:.1f} s")
    print(f"    once, to start Spark and its workers {first_s - distributed.cpu_s:.1f} s")
    print(f"    rebuild with Spark / here      {distributed.cpu_s / local.cpu_s:8.2f}")


def _rebuilt(tables: Tables, spec: FeatureSpec, as_of_s: int, engine: Engine) -> None:
    states = tables.head(STATES)
    if states.partitions:
        tables.commit(STATES, [], base=states, drop=list(states.partitions))
    job.compute(RegionData(Only(engine), tables, spec, "r"), [as_of_s])  # type: ignore[arg-type]


def _duckdb(tables: Tables, spec: FeatureSpec, as_of_s: int) -> None:
    accesses = tables.head(ACCESSES)
    files = [f"{accesses.root}/{p.path}/{name}" for p in accesses.partitions.values() for name in p.files]
    connection = duckdb.connect()
    connection.execute("set threads = 2")
    with tempfile.NamedTemporaryFile(suffix=".parquet") as out:
        connection.execute(_query(files, out.name, as_of_s=as_of_s, spec=spec))
        theirs = connection.execute(f"select count(*), sum(n_reads) from '{out.name}'").fetchone()
    ours = tables.read_arrow(spec.features_table, as_of=as_of_label(as_of_s), columns=["n_reads"])
    if theirs != (ours.num_rows, pc.sum(ours["n_reads"]).as_py()):
        raise SystemExit(f"DuckDB's rows {theirs} are not those of the features table: nothing is compared")


def _query(files: Sequence[str], out: str, *, as_of_s: int, spec: FeatureSpec) -> str:
    """SQL that reads accesses from `files` (Parquet) and writes counts of candidates at `as_of_s` to `out`.

    There are no passes, gaps, places, states, or late reads: it is the part that a database does well.
    """
    listed = ", ".join(f"'{name}'" for name in files)
    return f"""copy (
        with reads as (select did, dataset, tier, campaign, size_bytes, n_reads,
                {as_of_s} - epoch(accessed_at) as age_s
            from read_parquet([{listed}])
            where epoch_us(known_at) < {as_of_s}000000 and epoch_us(accessed_at) < {as_of_s}000000),
        of_did as (select did, min(dataset) as dataset, min(tier) as tier, min(campaign) as campaign,
            min(size_bytes) as size_bytes, {_figures("")} from reads group by did),
        of_dataset as (select dataset, count(distinct did) as dataset_n_files, {_figures("dataset_")}
            from reads group by dataset)
        select * from of_did join of_dataset using (dataset)
        where dataset_recency_s <= {spec.history_s}
            and (recency_s <= {spec.candidate_s} or dataset_recency_s <= {spec.active_dataset_s})
        order by did) to '{out}'"""


def _figures(prefix: str) -> str:
    decayed = (
        f"sum(n_reads * pow(2, -age_s / {s})) as {prefix}decayed_{s / 3600:.0f}h" for s in HALF_LIVES_S
    )
    plain = (
        f"sum(n_reads) as {prefix}n_reads",
        f"min(age_s) as {prefix}recency_s",
        f"max(age_s) as {prefix}since_first_s",
    )
    return ", ".join((*plain, *decayed))


class _Cycle(NamedTuple):
    """Seconds of a cycle, its seconds of CPU by what they follow, and the rows that it wrote."""

    seconds: float
    cpu_s: Mapping[str, float]
    candidates: int

    @property
    def total_cpu_s(self) -> float:
        return sum(self.cpu_s.values())


def _cycles(tables: Tables, spec: FeatureSpec, reads_a_day: int) -> None:
    """An hour's cycle, from the state of the hour before; a day's first is carried from the day before."""
    tables.replace_arrow(ACCESSES, _accesses(range(DAYS[-1] + 1), reads_a_day))
    data = RegionData(Only(LocalEngine()), tables, spec, "r")  # type: ignore[arg-type]
    cycles = {}
    for day in range(DAYS[-1] + 1):
        at = START_S + day * DAY_S + DAY_S // 2
        first_s = _cycle(data, at).total_cpu_s
        if day in DAYS:
            timed = [_cycle(data, at + k * spec.cycle_s) for k in range(1, 1 + RUNS)]
            cycles[day] = median = sorted(timed, key=lambda cycle: cycle.total_cpu_s)[RUNS // 2]
            parts = ", ".join(f"{what} {seconds:.2f}" for what, seconds in median.cpu_s.items())
            print(f"a carried cycle, day {day}           {median.seconds:8.2f} s; of CPU {parts}")
            remembered = tables.newest(STATES).n_rows
            print(f"    {median.candidates} candidates, a state of {remembered} files and datasets")
            print(f"    the day's first, which writes the state: of CPU {first_s:.2f}")
    first, last = cycles[DAYS[0]], cycles[DAYS[-1]]
    fewer = last.cpu_s[ROWS] * (1 - first.candidates / last.candidates)
    per_candidate = last.total_cpu_s / last.candidates / (first.total_cpu_s / first.candidates)
    print(f"day 90 / day 10                    {last.seconds / first.seconds:8.2f}")
    print(f"    of CPU                         {last.total_cpu_s / first.total_cpu_s:8.2f}")
    print(f"    the same with equal candidates {(last.total_cpu_s - fewer) / first.total_cpu_s:8.2f}")
    print(f"    the same per candidate         {per_candidate:8.2f}")


def _cycle(data: RegionData, as_of_s: int) -> _Cycle:
    """One cycle, its calls timed; the time of a call is not that of the one that it is in."""
    cpu_s, running, since_s = dict.fromkeys((READS, ROWS, STATE, REST), 0.0), [REST], time.process_time()

    def pause() -> None:
        nonlocal since_s
        now_s = time.process_time()
        cpu_s[running[-1]] += now_s - since_s
        since_s = now_s

    def timed(function: Callable[..., Any], what: str) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            pause()
            running.append(what)
            try:
                return function(*arguments, **options)
            finally:
                pause()
                running.pop()

        return call

    started = time.perf_counter()
    with contextlib.ExitStack() as patches:
        for owner, name, what in FOLLOWS:
            patches.enter_context(mock.patch.object(owner, name, timed(getattr(owner, name), what)))
        job.compute(data, [as_of_s])
        pause()
    seconds = time.perf_counter() - started
    return _Cycle(seconds, cpu_s, data.tables.newest(data.spec.features_table).n_rows)


def _rate(what: str, n: int, seconds: float, limit: float | None = None) -> None:
    far = "" if limit is None else f", {n / seconds / limit:.0%} of what memory's bandwidth allows"
    print(f"{what:34} {n / seconds / 1e3:8.0f} k/s ({seconds:.1f} s){far}", flush=True)


class _Cost(NamedTuple):
    """Seconds, and seconds of CPU of this process and all below it."""

    seconds: float
    cpu_s: float


def _median(work: Callable[[], object]) -> float:
    """Median seconds of `work`, after a first time that does not count."""
    return _cost(work).seconds


def _cost(work: Callable[[], object]) -> _Cost:
    """The same with the median seconds of CPU."""
    work()
    took = []
    for _ in range(RUNS):
        started, before_s = time.perf_counter(), family_cpu_s(os.getpid())
        work()
        took.append((time.perf_counter() - started, family_cpu_s(os.getpid()) - before_s))
    return _Cost(*map(statistics.median, zip(*took, strict=True)))


def _accesses(days: range, reads_a_day: int) -> pa.Table:
    """`reads_a_day` on each day, as the table; half a minute after a read it is known."""
    draw = np.random.default_rng(1)
    n = len(days) * reads_a_day
    n_day = np.arange(n) // reads_a_day
    age = np.where(draw.random(n) < REREAD_SHARE, np.floor(SPREAD_DAYS ** draw.random(n)), 0)
    born = np.maximum(0, n_day - age).astype(np.int64)
    file = born * reads_a_day + (draw.random(n) * reads_a_day * (1 - REREAD_SHARE)).astype(np.int64)
    at = ((START_S + n_day * DAY_S + draw.random(n) * DAY_S * 0.99) * 1e6).astype(np.int64)
    times = pa.array(at, pa.timestamp("us", tz="UTC"))
    values = {
        "did": _coded("s:AOD.{:012}._000001.pool.root.1", file),
        "dataset": _coded("s:data{}", file // FILES_PER_DATASET),
        "tier": _coded("T{}", file % 7),
        "campaign": _coded("C{}", file % 5),
        "accessed_at": times,
        "known_at": pc.add(times, pa.scalar(30_000_000, pa.duration("us"))),
        "size_bytes": pa.repeat(pa.scalar(2_000_000_000), n),
        "n_reads": pa.repeat(pa.scalar(1), n),
        "user": _coded("u{}", draw.integers(0, 300, n)),
        "task": _coded("t{}", draw.integers(0, 5000, n)),
        "event_id": pc.cast(pa.array(np.arange(n)), pa.string()),
        **{name: pa.repeat("bench", n) for name in ("scope", "name", "source")},
    }
    columns = [values.get(f.name, pa.nulls(n, f.type)).cast(f.type) for f in arrow_schema(ACCESSES)]
    rows = pa.table(columns, schema=arrow_schema(ACCESSES))
    labels = pa.array([day_label(START_S + day * DAY_S) for day in days])
    return rows.append_column("day", labels.take(pa.array(n_day)))


def _coded(form: str, numbers: np.ndarray) -> pa.Array:
    every, place = np.unique(numbers, return_inverse=True)
    return pa.array([form.format(k) for k in every]).take(pa.array(place))


if __name__ == "__main__":
    raise SystemExit(main())
