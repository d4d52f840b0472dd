"""A real message broker on this machine: ActiveMQ with STOMP, from the jars of conf/deploy/rucio.sh."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from daemons import NoServer, end, free_ports, start, wait

_N_JARS = 8
_JAVA = ("-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.net.preferIPv4Stack=true")
_SHELL = "org.apache.activemq.console.command.ShellCommand"


@contextmanager
def running(folder: Path) -> Iterator[int]:
    """The port on loopback of a broker that keeps nothing and knows every login; it ends with the block."""
    java, jars = shutil.which("java"), _jars()
    if java is None:
        raise NoServer("there is no java: install it with conf/deploy/system.sh core")
    (port,) = free_ports(1)
    spell = f"broker:(stomp://127.0.0.1:{port})?persistent=false&useJmx=false&useShutdownHook=true"
    broker = start([java, *_JAVA, "-cp", f"{jars}/*", _SHELL, "start", spell], folder / "broker.log")
    try:
        wait(lambda: _listens(port), folder, broker)
        yield port
    finally:
        end(broker)


def _jars() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "cachecast" / "activemq"
    if len(list(folder.glob("*.jar"))) != _N_JARS:
        raise NoServer(f"{folder} does not hold the {_N_JARS} jars: fetch them with conf/deploy/rucio.sh")
    return folder


def _listens(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False
