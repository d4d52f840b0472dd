"""Each step of a month on a cluster broken in each way (bench/cluster.py --faults), and run again."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import daemons
from cluster_site import (
    ALONE,
    ROOT,
    SMALL_CLUSTER,
    STEPS,
    Cluster,
    Site,
    children,
    cluster,
    cluster_pids,
    compare,
    root_of,
    site,
    words_of,
    written_traces,
)
from measured import cpu_by_pid

from jobs.local_site.local.hdfs import is_up

EXECUTOR = "CoarseGrainedExecutorBackend"
SAMPLE_S, AT_WORK_CPU_S = 0.2, 2.0
HDFS_AWAY_S = 5.0

restarted: list[subprocess.Popen[bytes]] = []


def faults(folder: Path, root: str, n_accesses: int) -> None:
    """Break each step on two workers in each way, run it again if it fails, and compare all tables."""
    traces = written_traces(folder, root, n_accesses)
    alone = site(folder / "alone", f"{folder}/tables", ALONE, f"{folder}/raw/traces/*")
    for step in STEPS:
        alone.run(step)
    try:
        for number, fault in enumerate(FAULTS):
            at = folder / str(number), f"{root}/{number}"
            with cluster(*at, Cluster(SMALL_CLUSTER), traces) as on_cluster:
                for step in STEPS:
                    print(f"{fault} in {step}: {broken(on_cluster, step, FAULTS[fault])}", flush=True)
                compare(fault, on_cluster, alone)
    finally:
        for node in restarted:
            node.kill()


def broken(run: Site, step: str, strike: Callable[[subprocess.Popen[bytes]], None]) -> str:
    """Run a step, break it once its executors work, run it again if it fails; how it ended."""
    process = run.start(step)
    at_work = is_at_work(process)
    if at_work:
        strike(process)
    if code := process.wait():
        if step == "pull":
            unlock(run)
        run.run(step)
    end = f"ended with {code}; run again it ended well" if code else "went on"
    return end if at_work else "ended before its executors worked"


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
