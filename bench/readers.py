"""The reader of Rucio traces: records a second and core, beside what any reader of the same file costs.

bench/readers.py [N]                  N records (default 400 000), the best of two runs
bench/readers.py [N] --beside FOLDER  the local engine alone, beside that of another checkout in the same run

Times are CPU seconds of all that works (this process; Spark's JVM with its compiler and collector of garbage,
and its Python workers; the kernel's included), so that they hold on a busy machine. The limit is what Spark
takes to parse the same fields out of the same file, and keep nothing.

Needs the environment that `make verify` makes: .venv/bin/python bench/readers.py
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import date
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

_CODE = "READERS_OF"
ROOT = Path(os.environ.get(_CODE, Path(__file__).parents[1]))
sys.path.insert(0, str(ROOT))

from features.schema import ACCESSES  # noqa: E402
from jobs.ingest import raw_input  # noqa: E402
from jobs.ingest.local_engine import LocalEngine  # noqa: E402
from jobs.ingest.raw_input import Engine  # noqa: E402
from jobs.ingest.sources import lines, rucio_traces  # noqa: E402
from jobs.ingest.sources.base import read_lines  # noqa: E402
from jobs.ingest.sources.site import Site  # noqa: E402
from jobs.ingest.sources.workspace import lines_of, opened  # noqa: E402
from jobs.ingest.spark_engine import SparkEngine, rows_of  # noqa: E402
from jobs.simulate.workload import load, write  # noqa: E402
from jobs.spark.session import spark_session  # noqa: E402
from jobs.store.tables import Tables  # noqa: E402

RUNS = 2
TARGET = 100_000
"""Records a second and core."""
SPARK: dict[str, Any] = {"master": "local[1]", "driver_memory": "2g", "shuffle_partitions": 2}


def made(folder: Path, n_records: int) -> tuple[Path, Path]:
    """Traces of a day at MWT2, plain and gz."""
    write(load("mwt2", seed=1, days=1, accesses=n_records), out=folder, raw=True)
    (plain,) = (folder / "traces").iterdir()
    packed = folder / "traces.jsonl.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes(), compresslevel=6))
    return plain, packed


def cpu_s(process: int) -> float:
    """CPU seconds that a process and its children, running and ended, used so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    running = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    mine = sum(int(fields[at]) for at in (11, 12, 13, 14)) / os.sysconf("SC_CLK_TCK")
    return mine + sum(cpu_s(int(child)) for child in running)


def best(work: Callable[[], object], process: int) -> tuple[float, float]:
    """CPU and wall seconds of the run that used least CPU."""
    runs = []
    for _ in range(RUNS):
        began, used = time.perf_counter(), cpu_s(process)
        work()
        runs.append((cpu_s(process) - used, time.perf_counter() - began))
    return min(runs)


def decoded(path: Path) -> int:
    """Records, with Python's gzip and json."""
    with gzip.open(path, "rb") as stream:
        return sum(1 for line in stream if json.loads(line))


def own_cpu_s() -> float:
    """CPU seconds that this process used so far."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def local_cpu_s(path: Path) -> tuple[float, float]:
    """CPU seconds of the reader alone and of the whole pull by the local engine."""
    moments = [own_cpu_s()]
    for work in (read, pulled_alone):
        work(path)
        moments.append(own_cpu_s())
    reader_s, pull_s = (after - before for before, after in pairwise(moments))
    return reader_s, pull_s


def read(path: Path) -> None:
    """Parse the traces at `path` with the local engine's reader."""
    with opened(ACCESSES) as space:
        space.take(rucio_traces.query(Site(salt="s")), map(lines_of, lines.batches([path])))


def pulled_alone(path: Path) -> None:
    """Pull the traces at `path` into fresh tables with the local engine."""
    with tempfile.TemporaryDirectory(dir=path.parent) as root:
        pull(LocalEngine(), root, path)


def pull(engine: Engine, root: str, path: Path) -> None:
    """Pull the traces at `path` into the tables at `root`."""
    raw_input.pull(
        engine, Tables(root), source="rucio_traces", path=str(path), day=date(2026, 3, 1), salt="s"
    )


def of_checkout(folder: Path, path: Path, n_cores: int) -> list[float]:
    """`local_cpu_s` with the code in `folder`, on `n_cores` cores."""
    cores = sorted(os.sched_getaffinity(0))[:n_cores]
    found = subprocess.run(
        [sys.executable, __file__, "--only", str(path)],
        env=os.environ | {_CODE: str(folder)},
        preexec_fn=lambda: os.sched_setaffinity(0, cores),
        stdout=subprocess.PIPE,
        check=True,
    )
    return [float(used) for used in found.stdout.split()]


def beside(n_asked: int, other: Path) -> None:
    """Print CPU seconds per million records of the local engine, and those of `other`'s code."""
    with tempfile.TemporaryDirectory() as name:
        plain, _ = made(Path(name), n_asked)
        millions = sum(1 for _ in plain.open("rb")) / 1e6
        print(f"{'CPU s per million records':28} {'before':>7} {'after':>7} {'ratio':>6}  records/s and core")
        for n_cores in (1, 2):
            # In turns, as a busy machine slows both.
            runs = [[of_checkout(folder, plain, n_cores) for folder in (other, ROOT)] for _ in range(3)]
            before, after = ([min(used) for used in zip(*of, strict=True)] for of in zip(*runs, strict=True))
            for what, old, new in zip(("reader", "pull"), before, after, strict=True):
                label, rate = f"{what}, {n_cores} cores", 1e6 * millions / new
                costs = f"{old / millions:7.2f} {new / millions:7.2f} {new / old:6.2f}"
                print(f"{label:28} {costs}  {rate:.0f} (target {TARGET})")


def main() -> None:
    """Print the table."""
    options = argparse.ArgumentParser()
    options.add_argument("n", nargs="?", type=int, default=400_000)
    options.add_argument("--beside", type=Path)
    options.add_argument("--only", type=Path, help="print the CPU seconds of this file: for --beside")
    given = options.parse_args()
    if given.only:
        print(*local_cpu_s(given.only))
    elif given.beside:
        beside(given.n, given.beside.absolute())
    else:
        beside_others(given.n)


def beside_others(n_asked: int) -> None:
    """Print what other readers of the same file cost, too."""
    spark = spark_session(
        SimpleNamespace(**SPARK, conf={"spark.driver.extraJavaOptions": "-XX:+UseSerialGC"})
    )
    jvm = spark._jvm
    assert jvm is not None
    java = jvm.java.lang.ProcessHandle.current().pid()
    with tempfile.TemporaryDirectory() as name:
        plain, packed = made(Path(name), n_asked)
        n_records, size = sum(1 for _ in plain.open("rb")), plain.stat().st_size
        print(f"{n_records} traces of {size / n_records:.0f} bytes")
        query = rucio_traces.query(Site(salt="s"))
        fields = ",".join(f"`{field}` string" for field in rucio_traces._FIELDS)

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
                lambda: drained(rows_of(read_lines(spark, str(plain)), query).parsed),
                java,
            ),
            "Spark: reader and merge": (lambda: pulled(SparkEngine(spark)), java),
        }
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
