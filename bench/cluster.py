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
import json
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support" / "servers")]

import hdfs_server  # noqa: E402
from cluster_faults import faults  # noqa: E402
from cluster_site import (  # noqa: E402
    ALONE,
    DAYS,
    EXECUTOR_MB,
    SMALL_CLUSTER,
    STEPS,
    Cluster,
    Site,
    cluster,
    cluster_pids,
    compare,
    failures,
    site,
    written_traces,
)
from measured import cpu_by_pid  # noqa: E402

SAMPLE_S = 0.2
HEAD = """
| step | where | s | CPU s | command's | CPU / one process | MB shuffled | spilled | tasks | longest, s |
|---|---|---|---|---|---|---|---|---|---|"""

ATLAS_A_MONTH, ATLAS_CORES = 1e9, 200
TIMES_A_DAY = {"pull": 1 / DAYS, "a day's features, carried": 1, "train": 1 / 7, "predict": 6}
"""How often a site does what a step did with a month."""


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
    for failure in failures:
        print(f"FAIL {failure}")
    return bool(failures)


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


if __name__ == "__main__":
    sys.exit(main())
