"""What a cycle of features costs: carried or rebuilt, early or late, in Spark or in DuckDB; as ratios.

bench/features.py                    equal daily volume; days 10, 60 and 90 of daily cycles
bench/features.py --reads-a-day N    another volume (default 100 000); --runs 1 for a quick look
bench/features.py --accesses N       one rebuild of N accesses in 30 days, with 4 GB for Spark's driver

Every file is read at least once on the day it appears; two in five are read again, on days after it that fall
off as 1/age; files come in datasets of 50. The state's expiry is the longest window, 30 days.

Needs the environment that `make verify` makes: .venv/bin/python bench/features.py
"""

from __future__ import annotations

import argparse
import dataclasses
import re
import statistics
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "bench")]

import duckdb  # noqa: E402
import pyarrow as pa  # noqa: E402
import pyarrow.compute as pc  # noqa: E402
from features_duckdb import query  # noqa: E402
from jobs.train.feature_state import Histories  # noqa: E402
from pyspark.sql import DataFrame, SparkSession  # noqa: E402
from pyspark.sql import functions as F  # noqa: E402

from features.schema import ACCESSES, HISTORIES  # noqa: E402
from features.spec import FeatureSpec  # noqa: E402
from features.times import DAY_S, as_of_label, day_label  # noqa: E402
from jobs.settings.tree import Settings  # noqa: E402
from jobs.spark.session import spark_session  # noqa: E402
from jobs.spark.table_io import replace  # noqa: E402
from jobs.store.tables import Tables  # noqa: E402
from jobs.train import features as job  # noqa: E402

START_S = 1_772_323_200
FILES_PER_DATASET = 50
REREAD_SHARE = 0.4
SPREAD_DAYS = 30


# By name: the least and the most that the ratio may be.
PROMISED = {
    "day 90 / day 10": (0.0, 2.0),
    "rebuild / carried, day 60": (5.0, 1e9),
    "rebuild / DuckDB, day 60": (0.0, 6.0),
}


@dataclasses.dataclass(frozen=True)
class Bench:
    """One bench's tables and knobs."""

    spark: SparkSession
    tables: Tables
    spec: FeatureSpec
    runs: int

    def cycle(self, day: int) -> float:
        """Seconds of the features at the end of `day`, from what state there is."""
        started = time.perf_counter()
        job.compute(self.spark, self.tables, spec=self.spec, region="r", as_ofs=[_as_of(day)])
        return time.perf_counter() - started

    def prepare(self, day: int) -> None:
        """Have the state of the end of `day`, and no other."""
        self.forget()
        Histories(self.spark, self.tables, self.spec, "r", {}).at(_as_of(day))

    def forget(self) -> None:
        """Have no state."""
        states = self.tables.head(HISTORIES)
        self.tables.commit(HISTORIES, {}, base=states, drop=list(states.partitions))

    def carried(self, day: int) -> float:
        """Median seconds of the cycle of `day`, from the state of the day before."""
        return _told(f"carried, day {day}", [self._once(day) for _ in range(self.runs)])

    def _once(self, day: int) -> float:
        self.prepare(day - 1)
        return self.cycle(day)

    def rebuilt(self, day: int) -> float:
        """Median seconds of the features at the end of `day` without any state."""

        def once() -> float:
            self.forget()
            return self.cycle(day)

        return _told(f"rebuilt, day {day}", [once() for _ in range(self.runs)])


def main() -> int:
    """Print a table of ratios; 1 if one is worse than promised."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--reads-a-day", type=int, default=100_000)
    parser.add_argument("--accesses", type=int)
    parser.add_argument("--runs", type=int, default=3)
    chosen = parser.parse_args()
    memory = "4g"
    settings = Settings.load(None)
    spark = spark_session(settings.spark.model_copy(update={"driver_memory": memory, "master": "local[2]"}))
    with tempfile.TemporaryDirectory(prefix="cachecast-bench-") as folder:
        spec = dataclasses.replace(settings.features.spec, cycle_s=DAY_S, **_daily())
        bench = Bench(spark, Tables(folder), spec, chosen.runs)
        return _large(bench, chosen.accesses) if chosen.accesses else _cycles(bench, chosen.reads_a_day)


def _daily() -> dict[str, tuple[int, ...]]:
    return {"windows_s": tuple(n * DAY_S for n in (1, 3, 7, 14, 30)), "horizons_s": (DAY_S,)}


def _cycles(bench: Bench, reads_a_day: int) -> int:
    replace(_accesses(bench.spark, range(90), reads_a_day), bench.tables, ACCESSES)
    bench.carried(4)  # compile
    told: dict[str, float] = {}
    early, late = bench.carried(10), bench.carried(90)
    incremental, rebuilt = bench.carried(60), bench.rebuilt(60)
    duck = _told("DuckDB, day 60", [_duckdb(bench, 60) for _ in range(bench.runs)])
    told["day 90 / day 10"] = late / early
    told["rebuild / carried, day 60"] = rebuilt / incremental
    told["rebuild / DuckDB, day 60"] = rebuilt / duck
    kept = True
    for name, ratio in told.items():
        least, most = PROMISED[name]
        is_kept = least <= ratio <= most
        kept &= is_kept
        print(f"{name:28} {ratio:6.2f}  {'as promised' if is_kept else 'NOT as promised'}")
    return 0 if kept else 1


def _large(bench: Bench, n_accesses: int) -> int:
    replace(_accesses(bench.spark, range(30), n_accesses // 30), bench.tables, ACCESSES)
    seconds = bench.cycle(30)
    rows = bench.tables.head(bench.spec.features_table).partitions
    n_rows = sum(part.n_rows for part in rows.values())
    told = f"{n_accesses:,} accesses, {n_rows:,} candidates: {seconds:.0f} s"
    print(f"{told}; Spark's driver held at most {_peak_bytes(bench.spark) / 1e9:.1f} GB")
    return 0


def _peak_bytes(spark: SparkSession) -> int:
    """The most memory that the JVM of a local session has held (Linux)."""
    jvm = spark.sparkContext._gateway.proc.pid
    (peak,) = re.findall(r"^VmHWM:\s+(\d+) kB$", Path(f"/proc/{jvm}/status").read_text(), re.MULTILINE)
    return int(peak) * 1024


def _told(what: str, seconds: list[float]) -> float:
    """The median of `seconds`, printed with all of them."""
    median = statistics.median(seconds)
    print(f"{what:28} {median:6.1f} s  of {', '.join(f'{s:.1f}' for s in sorted(seconds))}", flush=True)
    return median


def _as_of(day: int) -> int:
    return START_S + day * DAY_S


def _accesses(spark: SparkSession, days: range, reads_a_day: int) -> DataFrame:
    """`reads_a_day` on each day, as the table; half a minute after a read it is known."""
    rows = spark.range(len(days) * reads_a_day).select(
        (F.col("id") / reads_a_day).cast("long").alias("n_day"),
        (F.rand(1) * DAY_S * 0.99).alias("second"),
        F.rand(2).alias("again"),
        F.rand(3).alias("age"),
        F.rand(4).alias("which"),
        F.rand(5).alias("who"),
        "id",
    )
    age = F.floor(F.pow(F.lit(float(SPREAD_DAYS)), F.col("age")))
    born = F.col("n_day") - F.when(F.col("again") < REREAD_SHARE, age).otherwise(0)
    number = F.floor(F.col("which") * reads_a_day * (1 - REREAD_SHARE)).cast("long")
    rows = rows.withColumn("file", F.greatest(born, F.lit(0)) * reads_a_day + number)
    dataset = F.concat(F.lit("s:data"), F.floor(F.col("file") / FILES_PER_DATASET).cast("string"))
    at = F.timestamp_micros(((F.col("n_day") * DAY_S + F.col("second") + START_S) * 1e6).cast("long"))
    told = {
        "name": F.concat(
            F.lit("AOD."), F.lpad(F.col("file").cast("string"), 12, "0"), F.lit("._000001.pool.root.1")
        ),
        "scope": F.lit("s"),
        "dataset": dataset,
        "tier": F.concat(F.lit("T"), (F.col("file") % 7).cast("string")),
        "campaign": F.concat(F.lit("C"), (F.col("file") % 5).cast("string")),
        "accessed_at": at,
        "known_at": at + F.expr("interval 30 seconds"),
        "size_bytes": F.lit(2_000_000_000).cast("long"),
        "n_reads": F.lit(1).cast("long"),
        "user": F.concat(F.lit("u"), F.floor(F.col("who") * 300).cast("string")),
        "task": F.concat(F.lit("t"), F.floor(F.col("who") * 5000).cast("string")),
        "source": F.lit("bench"),
        "event_id": F.col("id").cast("string"),
        "day": F.date_format(at, "yyyy-MM-dd"),
    }
    rows = rows.select(*(column.alias(name) for name, column in told.items()))
    rows = rows.withColumn("did", F.concat(F.lit("s:"), "name"))
    kinds = {
        "long": "long",
        "double": "double",
        "string": "string",
        "timestamp": "timestamp",
        "bool": "boolean",
    }
    missing = [column for column in ACCESSES.columns if column.name not in rows.columns]
    return rows.withColumns({c.name: F.lit(None).cast(kinds[c.kind]) for c in missing})


def _duckdb(bench: Bench, day: int) -> float:
    """Seconds of the same columns by DuckDB, from the same files to a Parquet file."""
    chosen = bench.tables.head(ACCESSES).select(
        since=day_label(_as_of(day) - bench.spec.history_s), until=day_label(_as_of(day))
    )
    root = bench.tables.head(ACCESSES).root
    files = [f"{root}/{part.path}/{name}" for part in chosen.values() for name in part.files]
    connection = duckdb.connect()
    connection.execute("set threads = 2")
    started = time.perf_counter()
    with tempfile.NamedTemporaryFile(suffix=".parquet") as out:
        connection.execute(query(files, out.name, as_of_s=_as_of(day), spec=bench.spec))
        seconds = time.perf_counter() - started
        _same_figures(bench, day, pa.parquet.read_table(out.name))
    return seconds


def _same_figures(bench: Bench, day: int, rows: pa.Table) -> None:
    """Stop if DuckDB's candidates or counts are not those of the table."""
    ours = bench.tables.read_arrow(
        bench.spec.features_table, as_of=as_of_label(_as_of(day)), columns=["n_access_7d"]
    )
    if (len(ours), pc.sum(ours["n_access_7d"]).as_py()) != (len(rows), pc.sum(rows["n_access_7d"]).as_py()):
        raise SystemExit(
            "DuckDB's rows are not those of the features table: the comparison would be of nothing"
        )


if __name__ == "__main__":
    raise SystemExit(main())
