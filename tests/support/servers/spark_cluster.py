"""A real standalone Spark cluster on this machine: one master and workers, each a process of its own."""

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
from daemons import end, free_ports, start, wait

_DEPLOY = "org.apache.spark.deploy"


@contextmanager
def running(folder: Path, *, workers: int = 2, memory: str = "1g") -> Iterator[str]:
    """The master's URL (`spark://…`); every worker has one core and `memory`. All ends with the block."""
    port, web_port = free_ports(2)
    url = f"spark://127.0.0.1:{port}"
    master = ["master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", str(web_port)]
    options = f"--host 127.0.0.1 --cores 1 --memory {memory} --webui-port 0"
    worker = ["worker.Worker", *options.split(), url]
    processes = [_start(folder, "master", master)]
    try:
        wait(lambda: _has(web_port, 0), folder, *processes)
        processes += [_start(folder, f"worker-{i}", worker) for i in range(workers)]
        wait(lambda: _has(web_port, workers), folder, *processes)
        yield url
    finally:
        end(*processes)


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
    return start(command, folder / f"{name}.log", env=environment)


def _has(web_port: int, workers: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{web_port}/json/", timeout=5) as answer:
            return bool(json.load(answer)["aliveworkers"] >= workers)
    except (OSError, ValueError):
        return False
