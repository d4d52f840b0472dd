"""A month through a standalone Spark cluster and HDFS: CPU seconds, bytes and growth, beside one process.

bench/cluster.py [--accesses N ...] [--workers N ...] [--executor-memory MB] [--yarn] [--faults]

    --accesses  sizes of a month of MWT2's shape (200 000 and 2 000 000; its own has 7.1 M)
    --workers   sizes of the cluster for the largest month (1, 2, 4), two for the others; a worker has one
                core and 2 GB
    --executor-memory  MB of each executor's heap (1024)
    --yarn      the largest month also on YARN, with two executors
    --faults    in each step also kill an executor, then the command, and restart HDFS; and run it again

Steps are the commands that a site runs: each in one process, with files and tables in a folder, and on each
cluster, with both on HDFS. All tables must have the rows of one process; exit code 1 if not. CPU seconds are
those of all processes but HDFS's, so that a machine with fewer cores than workers gives the same figures.
HDFS has one name node and one data node. Training, plans and commits run in the command's own process.

Last, on paper: what CPU seconds grow by with accesses; the accesses up to which one process is as fast as two
free cores of a cluster; and the hours that ATLAS's billion reads a month take each day. Work of executors is
divided by the cores, work of the command is not.

Needs the environment that `make verify` makes: .venv/bin/python bench/cluster.py
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support" / "servers")]

import daemons  # noqa: E402
import hdfs_server  # noqa: E402
import pyarrow as pa  # noqa: E402
import spark_cluster  # noqa: E402
import yarn_server  # noqa: E402
from measured import cpu_by_pid  # noqa: E402

from features.common.times import DAY_S, as_of_label, day_label  # noqa: E402
from features.schema import ACCESSES, PREDICTIONS, STATES, Table  # noqa: E402
from jobs.ground.settings.tree import Settings  # noqa: E402
from jobs.ground.store.filesystems import store_at  # noqa: E402
from jobs.ground.store.tables import Tables  # noqa: E402
from jobs.local_site.local.hdfs import is_up  # noqa: E402

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
EXECUTOR = "CoarseGrainedExecutorBackend"
EXECUTOR_MB = 1024
SAMPLE_S, AT_WORK_CPU_S = 0.2, 2.0
HEAD = """
| step | where | s | CPU s | command's | CPU / one process | MB shuffled | spilled | tasks | longest, s |
|---|---|---|---|---|---|---|---|---|---|"""

HDFS_AWAY_S = 5.0

ATLAS_A_MONTH, ATLAS_CORES = 1e9, 200
TIMES_A_DAY = {"pull": 1 / DAYS, "a day's features, carried": 1, "train": 1 / 7, "predict": 6}
"""How often a site does what a step did with a month."""
SMALL_CLUSTER = 2
"""Workers, of the months of every size."""

failures: list[str] = []
restarted: list[subprocess.Popen[bytes]] = []


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


class SparkCounts(NamedTuple):
    """What Spark's own log says of a step."""

    shuffled_bytes: int = 0
    spilled_bytes: int = 0
    tasks: int = 0
    longest_task_s: float = 0.0


class Cost(NamedTuple):
    """What a step took: seconds, CPU seconds of the command and below it, and of the cluster."""

    wall_s: float
    command_cpu_s: float
    cluster_cpu_s: float
    spark: SparkCounts

    @property
    def cpu_s(self) -> float:
        """Of all processes."""
        return self.command_cpu_s + self.cluster_cpu_s


def main() -> int:
    """Print the tables; 1 if rows differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--accesses", type=int, nargs="+", default=[200_000, 2_000_000])
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--executor-memory", type=int, default=EXECUTOR_MB)
    parser.add_argument("--yarn", action="store_true")
    parser.add_argument("--faults", action="store_true")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the daemons end with their blocks
    with tempfile.TemporaryDirectory(prefix="cachecast-cluster-") as name:
        folder = Path(name)
        (folder / "hdfs").mkdir()
        months: dict[int, Costs] = {}
        with hdfs_server.running(folder / "hdfs") as url:
            for n_accesses in options.accesses:
                is_largest = n_accesses == max(options.accesses)
                workers = options.workers if is_largest else [SMALL_CLUSTER]
                clusters = [Cluster(n, options.executor_memory) for n in workers]
                if options.yarn and is_largest:
                    clusters.append(Cluster(SMALL_CLUSTER, options.executor_memory, is_yarn=True))
                months[n_accesses] = month(
                    folder / str(n_accesses), f"{url}/{n_accesses}", n_accesses, clusters
                )
            if len(months) > 1 and SMALL_CLUSTER in options.workers:
                on_paper(months)
            if options.faults:
                faults(folder / "faults", f"{url}/faults", options.accesses[0])
            for node in restarted:
                node.kill()
    for failure in failures:
        print(f"FAIL {failure}")
    return bool(failures)


class Cluster(NamedTuple):
    """Executors of one core each and a heap of `memory_mb`, on workers of a standalone master or on YARN."""

    workers: int
    memory_mb: int = EXECUTOR_MB
    is_yarn: bool = False

    def __str__(self) -> str:
        what = "executor" if self.is_yarn else "worker"
        return f"{self.workers} {what}{'s' if self.workers > 1 else ''}{' of YARN' if self.is_yarn else ''}"


Costs = dict[int, dict[str, Cost]]
"""What each step took, by the number of workers; 0: in one process."""


def month(folder: Path, root: str, n_accesses: int, clusters: list[Cluster]) -> Costs:
    """Run all steps in one process and on each cluster; print and return what they took."""
    traces = written_traces(folder, root, n_accesses)
    alone = site(folder / "alone", f"{folder}/tables", ALONE, f"{folder}/raw/traces/*")
    costs: Costs = {0: {step: timed(alone, step) for step in STEPS}}
    print(HEAD)
    for step, cost in costs[0].items():
        print_row(step, "one process", cost, cost)
    for number, of in enumerate(clusters):
        with cluster(folder / f"cluster-{number}", f"{root}/{number}", of, traces) as on_cluster:
            taken = {}
            for step in STEPS:
                taken[step] = timed(on_cluster, step)
                print_row(step, str(of), taken[step], costs[0][step])
            compare(f"{n_accesses:,} accesses, {of}", on_cluster, alone)
            costs.setdefault(of.workers, taken)
    return costs


def on_paper(months: Mapping[int, Costs]) -> None:
    """Print how costs grow between the smallest and the largest month, and what follows from that."""
    least, most = min(months), max(months)
    print(f"\nCPU seconds with {most / least:.1f} times the accesses, and the number of accesses up to which")
    print(f"one process is as fast as {SMALL_CLUSTER} free cores of a cluster")
    print("\n| step | one process | cluster | up to |\n|---|---|---|---|")
    for step in STEPS:
        alone, small = ([months[n][of][step] for n in (least, most)] for of in (0, SMALL_CLUSTER))
        alone_s = [cost.cpu_s for cost in alone]
        small_s = [cost.command_cpu_s + cost.cluster_cpu_s / SMALL_CLUSTER for cost in small]
        ahead_s, gain_s = small_s[0] - alone_s[0], (alone_s[1] - alone_s[0]) - (small_s[1] - small_s[0])
        up_to = f"{least + ahead_s / gain_s * (most - least):,.0f}" if gain_s > 0 else "any number"
        grown = [f"{costs[1].cpu_s / costs[0].cpu_s:.1f}" for costs in (alone, small)]
        print(f"| {step} | {' | '.join(grown)} | {up_to} |")
    print(
        f"\n{ATLAS_A_MONTH:,.0f} reads a month on {ATLAS_CORES} cores, hours a day, by the growth on "
        f"{SMALL_CLUSTER} workers"
    )
    print("\n| step | executors, each core | command | of 24 h |\n|---|---|---|---|")
    for step, times_a_day in TIMES_A_DAY.items():
        # A training learns from as many rows as [training] max_rows says, however many accesses there are.
        times = 0 if step == "train" else (ATLAS_A_MONTH - most) / (most - least)
        first, last = (months[n][SMALL_CLUSTER][step] for n in (least, most))
        growth_s = (last.cluster_cpu_s - first.cluster_cpu_s, last.command_cpu_s - first.command_cpu_s)
        if times and min(growth_s) <= 0:
            print(f"| {step} | – | – | starting hides what it grows by |")
            continue
        core_s, command_s = last.cluster_cpu_s + times * growth_s[0], last.command_cpu_s + times * growth_s[1]
        core_h, command_h = times_a_day * core_s / ATLAS_CORES / 3600, times_a_day * command_s / 3600
        print(f"| {step} | {core_h:.2f} | {command_h:.2f} | {(core_h + command_h) / 24:.1%} |")


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


def timed(run: Site, step: str) -> Cost:
    """Run a step, and count what it took."""
    daemons = set(cpu_by_pid(cluster_pids()))
    before, began = cpu_by_pid(daemons), time.monotonic()
    command: dict[int, float] = {}
    others: dict[int, float] = {}
    process, ended = run.start(step), threading.Event()

    def sample() -> None:
        while not ended.wait(SAMPLE_S):
            command.update(cpu_by_pid([process.pid]))
            others.update(cpu_by_pid(daemons))

    sampler = threading.Thread(target=sample)
    sampler.start()
    try:
        code = process.wait()
    finally:
        ended.set()
        sampler.join()
    run.check(step, code)
    # An executor of the step before may end as this one begins.
    cluster_cpu_s = sum(cpu_s - before.get(pid, 0.0) for pid, cpu_s in others.items())
    return Cost(time.monotonic() - began, sum(command.values()), cluster_cpu_s, spark_counts(run.folder))


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


def spark_counts(folder: Path) -> SparkCounts:
    """What the logs in `folder` say of their tasks; they are removed."""
    counts = SparkCounts()
    for path in (folder / "log").glob("*"):
        for line in path.open():
            event: dict[str, Any] = json.loads(line)
            if event["Event"] == "SparkListenerTaskEnd" and (metrics := event.get("Task Metrics")):
                counts = SparkCounts(
                    counts.shuffled_bytes + metrics["Shuffle Write Metrics"]["Shuffle Bytes Written"],
                    counts.spilled_bytes + metrics["Disk Bytes Spilled"],
                    counts.tasks + 1,
                    max(counts.longest_task_s, metrics["Executor Run Time"] / 1e3),
                )
        path.unlink()
    return counts


def print_row(step: str, where: str, cost: Cost, alone: Cost) -> None:
    """Print what a step took, beside one process."""
    spark = cost.spark
    print(
        f"| {step} | {where} | {cost.wall_s:.0f} | {cost.cpu_s:.0f} | {cost.command_cpu_s:.0f} | "
        f"{cost.cpu_s / alone.cpu_s:.2f} | {spark.shuffled_bytes / 1e6:.0f} | "
        f"{spark.spilled_bytes / 1e6:.0f} | {spark.tasks} | {spark.longest_task_s:.1f} |",
        flush=True,
    )


def faults(folder: Path, root: str, n_accesses: int) -> None:
    """Break each step on two workers in each way, run it again if it fails, and compare all tables."""
    traces = written_traces(folder, root, n_accesses)
    alone = site(folder / "alone", f"{folder}/tables", ALONE, f"{folder}/raw/traces/*")
    for step in STEPS:
        alone.run(step)
    for number, (fault, strike) in enumerate(FAULTS.items()):
        with cluster(folder / str(number), f"{root}/{number}", Cluster(SMALL_CLUSTER), traces) as on_cluster:
            for step in STEPS:
                process = on_cluster.start(step)
                at_work = is_at_work(process)
                if at_work:
                    strike(process)
                code = process.wait()
                if code:
                    if step == "pull":
                        unlock(on_cluster)
                    on_cluster.run(step)
                end = "went on" if not code else f"ended with {code}; run again it ended well"
                print(
                    f"{fault} in {step}: {end if at_work else 'ended before its executors worked'}",
                    flush=True,
                )
            compare(fault, on_cluster, alone)


def is_at_work(process: subprocess.Popen[bytes]) -> bool:
    """Wait until executors compute for a command; False if it ends before."""
    before = sum(cpu_by_pid(executors()).values())
    while process.poll() is None:
        if sum(cpu_by_pid(executors()).values()) - before > AT_WORK_CPU_S:
            return True
        time.sleep(SAMPLE_S)
    return False


def executors() -> list[int]:
    """The executors of the clusters that this bench has started."""
    return [pid for pid in cpu_by_pid(cluster_pids()) if EXECUTOR in words_of(pid)]


def kill_executor(_process: subprocess.Popen[bytes]) -> None:
    """Kill one executor; its worker is asked for another."""
    os.kill(executors()[0], signal.SIGKILL)


def kill_command(process: subprocess.Popen[bytes]) -> None:
    """Kill the command, with its driver."""
    process.kill()


def restart_hdfs(_process: subprocess.Popen[bytes]) -> None:
    """Kill both nodes, and start them again after some seconds; return when they work."""
    pids = [pid for pid in children() if ".hdfs.server." in words_of(pid)]
    commands = [(words_of(pid).split("\0")[:-1], Path(f"/proc/{pid}/cwd").resolve()) for pid in pids]
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    time.sleep(HDFS_AWAY_S)
    for words, folder in commands:
        with (folder / "restarted.log").open("ab") as log:
            restarted.append(subprocess.Popen(words, stdout=log, stderr=log, cwd=folder))
    folder = Path(re.findall(r"-Dhadoop\.log\.dir=([^\0]+)", "\0".join(commands[0][0]))[0])
    settings = (folder / "hdfs-site.xml").read_text()
    http_port = int(re.findall(r"http-address</name><value>localhost:(\d+)", settings)[0])
    daemons.wait(lambda: is_up(http_port), folder, *restarted[-2:])


def unlock(run: Site) -> None:
    """Break the lock that a killed pull has left, as docs/hdfs.md says."""
    subprocess.run([sys.executable, "-m", "jobs", "unlock", "--tables", root_of(run)], cwd=ROOT, check=True)


FAULTS = {
    "an executor killed": kill_executor,
    "the command killed": kill_command,
    "HDFS restarted": restart_hdfs,
}


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


if __name__ == "__main__":
    sys.exit(main())
