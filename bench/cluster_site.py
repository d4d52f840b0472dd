"""The site whose month goes through clusters (bench/cluster.py): commands, clusters, traces and tables."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import spark_cluster
import yarn_server

from features.common.times import DAY_S, as_of_label, day_label
from features.schema import ACCESSES, PREDICTIONS, STATES, Table
from jobs.ground.settings.tree import Settings
from jobs.ground.store.filesystems import store_at
from jobs.ground.store.tables import Tables

ROOT = Path(__file__).resolve().parents[1]
START_S, DAYS = 1_772_323_200, 30
AS_OF = as_of_label(START_S + DAYS * DAY_S)
SETTINGS = {
    "CACHECAST_FEATURES__CYCLE": "4h",
    "CACHECAST_FEATURES__HORIZONS": '["12h"]',
    "CACHECAST_TRAINING__SPAN": "7d",
    "CACHECAST_TRAINING__EVERY": "4h",
    "CACHECAST_TRAINING__TREES": "20",
    "CACHECAST_TRAINING__LEARNERS": '["lightgbm"]',
    "CACHECAST_TRAINING__ORDER": "false",
    "CACHECAST_PLAN__HORIZON": "12h",
}
ALONE = {"CACHECAST_FEATURES__LOCAL_UP_TO": "1000000000", "CACHECAST_SOURCES__LOCAL_UP_TO": "1TB"}
STEPS = {
    "pull": ["pull", "--source", "rucio_traces", "--day", AS_OF[:10], "--input"],
    "a day's features, from nothing": ["features", "--day", day_label(START_S + (DAYS - 3) * DAY_S)],
    "a day's features, carried": ["features", "--day", day_label(START_S + (DAYS - 2) * DAY_S)],
    "features at one time": ["features", "--as-of", AS_OF],
    "train": ["train", "--as-of", AS_OF],
    "predict": ["predict", "--alias", "candidate", "--as-of", AS_OF],
}
"""The commands, pull without the pattern of its input."""
EXECUTOR_MB = 1024
SMALL_CLUSTER = 2
"""Workers, of the months of every size."""

failures: list[str] = []
"""Tables whose rows are not those of one process."""


class Site(NamedTuple):
    """Settings of a run in `folder`, the environment of its commands, and the pattern of what it pulls."""

    folder: Path
    environment: Mapping[str, str]
    traces: str

    def start(self, step: str) -> subprocess.Popen[bytes]:
        """Start the command of a step."""
        words = [*STEPS[step], self.traces] if step == "pull" else STEPS[step]
        command = [sys.executable, "-m", "jobs", *words, "--conf", str(self.folder), "--quiet"]
        with (self.folder / "steps.log").open("ab") as log:
            return subprocess.Popen(command, env=self.environment, cwd=ROOT, stdout=log, stderr=log)

    def run(self, step: str) -> None:
        """Run the command of a step; it must end well."""
        self.check(step, self.start(step).wait())

    def check(self, step: str, code: int) -> None:
        """End the bench if a step has ended badly."""
        if code:
            raise SystemExit(f"{step} ended with {code}: {(self.folder / 'steps.log').read_text()[-3000:]}")


class Cluster(NamedTuple):
    """Executors of one core each and a heap of `memory_mb`, on workers of a standalone master or on YARN."""

    workers: int
    memory_mb: int = EXECUTOR_MB
    is_yarn: bool = False

    def __str__(self) -> str:
        what = "executor" if self.is_yarn else "worker"
        return f"{self.workers} {what}{'s' if self.workers > 1 else ''}{' of YARN' if self.is_yarn else ''}"


def written_traces(folder: Path, root: str, n_accesses: int) -> str:
    """A month of traces, on HDFS; the pattern of their names."""
    raw = folder / "raw"
    words = ["--scenario", "mwt2", "--days", str(DAYS), "--accesses", str(n_accesses), "--raw", "--quiet"]
    command = [sys.executable, "-m", "jobs", "workload", *words, "--start", day_label(START_S)]
    subprocess.run([*command, "--out", str(raw)], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    store, n_bytes, n_records = store_at(f"{root}/traces"), 0, 0
    for path in sorted((raw / "traces").iterdir()):
        content = path.read_bytes()
        store.put_if_absent(path.name, content)
        n_bytes, n_records = n_bytes + len(content), n_records + content.count(b"\n")
    print(f"\n{n_records:,} traces of {DAYS} days, {n_bytes / 1e6:,.0f} MB")
    return f"{root}/traces/*"


def site(folder: Path, root: str, settings: Mapping[str, str], traces: str) -> Site:
    """A run with tables at `root` and models in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "base.toml").write_text(
        f'[tables]\nroot = "{root}"\n[mlflow]\nuri = "sqlite:///{folder}/mlflow.db"\n'
    )
    return Site(folder, {**os.environ, **SETTINGS, **settings}, traces)


@contextlib.contextmanager
def cluster(folder: Path, root: str, of: Cluster, traces: str) -> Iterator[Site]:
    """A cluster that runs in the block, and a run on it."""
    (folder / "log").mkdir(parents=True)
    conf = {
        "spark.executor.memory": f"{of.memory_mb}m",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": (folder / "log").as_uri(),
        "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.compress": "false",
    }
    settings = {"CACHECAST_SPARK__SHUFFLE_PARTITIONS": str(2 * of.workers)}
    if of.is_yarn:
        with yarn_server.running(
            folder, workers=of.workers, memory_mb=of.memory_mb, conf=conf
        ) as environment:
            yield site(folder, root, settings | environment, traces)
    else:
        with spark_cluster.running(folder, workers=of.workers, memory="2g") as url:
            spark = {"CACHECAST_SPARK__MASTER": url, "CACHECAST_SPARK__CONF": yarn_server.as_toml(conf)}
            yield site(folder, root, settings | spark, traces)


def compare(what: str, run: Site, alone: Site) -> None:
    """Note every table whose rows are not those of the run in one process."""
    spec = Settings.load(run.folder, env=run.environment).features.spec
    for table in (ACCESSES, spec.features_table, STATES, PREDICTIONS):
        here, there = (Tables(root_of(side)).snapshot(table) for side in (run, alone))
        if here.partitions.keys() != there.partitions.keys():
            failures.append(f"{what}: {table.name} has other partitions")
            continue
        n_rows = 0
        for key in there.partitions:
            rows = in_order(table, there.rows_of([key]))
            if not in_order(table, here.rows_of([key])).equals(rows):
                failures.append(f"{what}: {table.name}, {'/'.join(key)}: other rows")
            n_rows += rows.num_rows
        print(f"{what}: {table.name}, {n_rows:,} rows compared", flush=True)


def root_of(run: Site) -> str:
    """Where a run keeps its tables."""
    return Settings.load(run.folder, env=run.environment).tables.root


def in_order(table: Table, rows: pa.Table) -> pa.Table:
    """The rows by their key, without what names the run that made them."""
    own = [name for name in ("model_version", "model_digest") if name in rows.column_names]
    return rows.sort_by([(name, "ascending") for name in table.key]).drop_columns(own)


def cluster_pids() -> list[int]:
    """The masters and what runs executors, which this bench has started."""
    return [pid for pid in children() if re.search(r"\.spark\.deploy\.|\.yarn\.server\.", words_of(pid))]


def children() -> list[int]:
    """The processes that this bench has started."""
    listed = Path(f"/proc/self/task/{threading.main_thread().native_id}/children")
    return list(map(int, listed.read_text().split()))


def words_of(pid: int) -> str:
    """The command of a process, a NUL behind each word; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""
