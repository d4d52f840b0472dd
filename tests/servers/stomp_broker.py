"""A real message broker on this machine: ActiveMQ with STOMP, from the jars of conf/deploy/rucio.sh."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PATIENCE_S = 60.0
_N_JARS = 8
_JAVA = ("-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.net.preferIPv4Stack=true")
_SHELL = "org.apache.activemq.console.command.ShellCommand"


class NoBroker(Exception):
    """The broker cannot be started here; says why, with what its log told last."""


@contextmanager
def running(folder: Path) -> Iterator[int]:
    """The port on loopback of a broker that keeps nothing and knows every login; it ends with the block."""
    java, jars = shutil.which("java"), _jars()
    if java is None:
        raise NoBroker("there is no java: install it with conf/deploy/system.sh core")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    log = folder / "broker.log"
    spell = f"broker:(stomp://127.0.0.1:{port})?persistent=false&useJmx=false&useShutdownHook=true"
    with log.open("wb") as out:
        broker = subprocess.Popen(
            [java, *_JAVA, "-cp", f"{jars}/*", _SHELL, "start", spell],
            stdout=out,
            stderr=out,
            start_new_session=True,
            cwd=folder,
        )
    try:
        _wait(broker, port, log)
        yield port
    finally:
        broker.terminate()
        try:
            broker.wait(10)
        except subprocess.TimeoutExpired:
            broker.kill()
            broker.wait()


def _jars() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "cachecast" / "activemq"
    if len(list(folder.glob("*.jar"))) != _N_JARS:
        raise NoBroker(f"{folder} does not hold the {_N_JARS} jars: fetch them with conf/deploy/rucio.sh")
    return folder


def _wait(broker: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not _listens(port):
        if broker.poll() is not None or time.monotonic() > deadline:
            told = log.read_text(errors="replace").splitlines()[-20:]
            raise NoBroker("\n".join([f"it is not up ({broker.poll()})", *told]))
        time.sleep(0.1)


def _listens(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False
