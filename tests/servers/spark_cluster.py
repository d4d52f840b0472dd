"""A real standalone Spark cluster on this machine: one master and two workers, each a process of its own."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

_PATIENCE_S = 90.0
_DEPLOY = "org.apache.spark.deploy"


class NoCluster(Exception):
    """The cluster cannot be started here; says why, with what its logs told last."""


@contextmanager
def running(folder: Path, *, workers: int = 2) -> Iterator[str]:
    """The master's URL (`spark://…`); every worker has one core and 1 GB. All ends with the block."""
    port, web_port = _free_ports(2)
    url = f"spark://127.0.0.1:{port}"
    master = ["master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", str(web_port)]
    worker = [
        "worker.Worker",
        "--host",
        "127.0.0.1",
        "--cores",
        "1",
        "--memory",
        "1g",
        "--webui-port",
        "0",
        url,
    ]
    processes = [_start(folder, "master", master)]
    try:
        _wait(folder, web_port, 0)
        processes += [_start(folder, f"worker-{i}", worker) for i in range(workers)]
        _wait(folder, web_port, workers)
        yield url
    finally:
        for process in reversed(processes):
            process.terminate()
        for process in processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _start(folder: Path, name: str, arguments: list[str]) -> subprocess.Popen[bytes]:
    home = Path(pyspark.__file__).parent
    environment = os.environ | {
        "SPARK_HOME": str(home),
        "SPARK_NO_DAEMONIZE": "1",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_WORKER_DIR": str(folder / name),
        "PYSPARK_PYTHON": sys.executable,
    }
    command = [str(home / "bin" / "spark-class"), f"{_DEPLOY}.{arguments[0]}", *arguments[1:]]
    with (folder / f"{name}.log").open("wb") as log:
        return subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=folder)


def _wait(folder: Path, web_port: int, workers: int) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{web_port}/json/", timeout=5) as answer:
                if json.load(answer)["aliveworkers"] >= workers:
                    return
        except (OSError, ValueError):
            pass  # not up yet, or not whole
        time.sleep(0.3)
    told = "\n".join(log.read_text(errors="replace")[-1500:] for log in sorted(folder.glob("*.log")))
    raise NoCluster(f"no master with {workers} workers within {_PATIENCE_S:.0f} s:\n{told}")


def _free_ports(n: int) -> list[int]:
    sockets = [socket.socket() for _ in range(n)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()
