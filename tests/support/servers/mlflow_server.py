"""A real MLflow tracking server on this machine: SQLite, artifacts served, one worker."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from daemons import answers, free_ports, start, up


@contextmanager
def running(folder: Path, *words: str, **env: str) -> Iterator[str]:
    """The URL of an empty server that keeps its data and log in `folder`; it ends with the block.

    `words`: further options; `env`: variables of its environment.
    """
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--workers", "1", "--backend-store-uri", f"sqlite:///{folder}/mlflow.db"]
    command += ["--serve-artifacts", "--artifacts-destination", (folder / "artifacts").as_uri()]
    quiet = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
    server = start([*command, *words], folder / "server.log", env=os.environ | quiet | env)
    url = f"http://127.0.0.1:{port}"
    with up(lambda: answers(f"{url}/health"), folder, server):
        yield url
