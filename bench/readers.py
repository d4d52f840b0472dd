"""The reader of Rucio traces: records a second and core, beside what any reader of the same file costs.

bench/readers.py [N] [--hdfs]     N records (default 400 000), the best of two runs

    --hdfs  also the merge by Spark with traces and tables on an HDFS of one NameNode and one DataNode, whose
            CPU seconds are not counted

Times are CPU seconds of all that works (this process; Spark's JVM with its compiler and collector of garbage,
and its Python workers; the kernel's included), so that they hold on a busy machine. The limit is what Spark
takes to parse the same fields out of the same file, and keep nothing.

Needs the environment that `make verify` makes: .venv/bin/python bench/readers.py
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import gzip
import itertools
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support" / "servers")]

import hdfs_server  # noqa: E402
from measured import family_cpu_s  # noqa: E402

from features.common.input_files import InputFile  # noqa: E402
from features.schema import ACCESSES  # noqa: E402
from jobs.ground.settings.tree import SparkSettings  # noqa: E402
from jobs.ground.spark.session import spark_session  # noqa: E402
from jobs.ground.store.filesystems import store_at  # noqa: E402
from jobs.ground.store.tables import Tables  # noqa: E402
from jobs.loop.ingest import pull_input  # noqa: E402
from jobs.loop.ingest.local_engine import LocalEngine  # noqa: E402
from jobs.loop.ingest.pull_input import Engine  # noqa: E402
from jobs.loop.ingest.sources import (  # noqa: E402
    Site,
    lines,
    rucio_traces,
)
from jobs.loop.ingest.sources.workspace import opened  # noqa: E402
from jobs.loop.ingest.spark_engine import SparkEngine  # noqa: E402
from jobs.loop.ingest.spark_parts import local_lines, parsed  # noqa: E402
from jobs.studies.simulate.workload import load, write  # noqa: E402

RUNS = 2
SPARK = SparkSettings(
    master="local[1]",
    driver_memory="2g",
    shuffle_partitions=2,
    conf={"spark.driver.extraJavaOptions": "-XX:+UseSerialGC"},
)


def made(folder: Path, n_records: int) -> tuple[Path, Path]:
    """Traces of a day at MWT2, plain and gz."""
    write(load("mwt2", seed=1, days=1, accesses=n_records), out=folder, raw=True)
    (plain,) = (folder / "traces").iterdir()
    packed = folder / "traces.jsonl.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes(), compresslevel=6))
    return plain, packed


def best(work: Callable[[], object], process: int) -> tuple[float, float]:
    """CPU and wall seconds of the run that used least CPU."""
    runs = []
    for _ in range(RUNS):
        began, used = time.perf_counter(), family_cpu_s(process)
        work()
        runs.append((family_cpu_s(process) - used, time.perf_counter() - began))
    return min(runs)


def decoded(path: Path) -> int:
    """Records, with Python's gzip and json."""
    with gzip.open(path, "rb") as stream:
        return sum(1 for line in stream if json.loads(line))


def read(path: Path) -> None:
    """Parse the traces at `path` with the local engine's reader."""
    with opened(ACCESSES) as space:
        batches = lines.batches([lines.Piece(InputFile(path))], lambda _, why: print(why))
        space.take(rucio_traces.query(Site(salt="s")), batches)


def pull(engine: Engine, root: str, path: Path | str) -> None:
    """Pull the traces at `path` into the tables at `root`."""
    pull_input.pull(
        engine, Tables(root), source="rucio_traces", path=str(path), day=date(2026, 3, 1), salt="s"
    )


def main() -> None:
    """Print what our readers and others of the same file cost."""
    options = argparse.ArgumentParser()
    options.add_argument("n", nargs="?", type=int, default=400_000)
    options.add_argument("--hdfs", action="store_true")
    given = options.parse_args()
    spark = spark_session(SPARK)
    jvm = spark._jvm
    assert jvm is not None
    java = jvm.java.lang.ProcessHandle.current().pid()
    with contextlib.ExitStack() as stack:
        name = stack.enter_context(tempfile.TemporaryDirectory())
        plain, packed = made(Path(name), given.n)
        n_records, size = sum(1 for _ in plain.open("rb")), plain.stat().st_size
        print(f"{n_records} traces of {size / n_records:.0f} bytes")
        query = rucio_traces.query(Site(salt="s"))
        fields = ",".join(f"`{field}` string" for field in rucio_traces._FIELDS)

        pieces = spark.sparkContext.parallelize(lines.pieces(InputFile(plain), 128 * 2**20))

        def pulled(engine: Engine) -> None:
            with tempfile.TemporaryDirectory(dir=name) as root:
                pull(engine, root, plain)

        def drained(frame: Any) -> None:
            frame.write.format("noop").mode("overwrite").save()

        works: dict[str, tuple[Callable[[], object], int]] = {
            "Spark: its schema guessed, counted": (lambda: spark.read.json(str(plain)).count(), java),
            "Spark: our fields parsed (the limit)": (
                lambda: drained(spark.read.schema(fields).json(str(plain))),
                java,
            ),
            "Python: gzip and json": (lambda: decoded(packed), os.getpid()),
            "local: reader, plain": (lambda: read(plain), os.getpid()),
            "local: reader, gz": (lambda: read(packed), os.getpid()),
            "local: reader and merge": (lambda: pulled(LocalEngine()), os.getpid()),
            "Spark: reader, plain": (
                lambda: pieces.mapPartitions(
                    functools.partial(parsed, query=query, n_parts=2, read=local_lines)
                ).count(),
                java,
            ),
            "Spark: reader and merge": (lambda: pulled(SparkEngine(spark)), java),
        }
        if given.hdfs:
            (Path(name) / "hdfs").mkdir()
            url, number = stack.enter_context(hdfs_server.running(Path(name) / "hdfs")), itertools.count()
            store_at(f"{url}/traces").put_if_absent(plain.name, plain.read_bytes())
            works["Spark: reader and merge, HDFS"] = (
                lambda: pull(SparkEngine(spark), f"{url}/{next(number)}", f"{url}/traces/{plain.name}"),
                java,
            )
        limit = 0.0
        for what, (work, process) in works.items():
            used, wall = best(work, process)
            rate = n_records / used
            limit = rate if "limit" in what else limit
            share = f"{rate / limit:5.2f} of the limit" if limit else ""
            print(f"{what:38} {rate:9.0f} records/s and core, {wall / used:4.1f} x in wall time  {share}")
    spark.stop()


if __name__ == "__main__":
    main()
