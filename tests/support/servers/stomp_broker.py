"""A real message broker on this machine: ActiveMQ with STOMP, from the jars of conf/deploy/rucio.sh."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from daemons import NoServer, end, free_ports, start, wait

from features.common.errors import ServiceError
from jobs.local.hdfs import jars
from jobs.spark.java import java

_N_JARS = 8
_JAVA = ("-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.net.preferIPv4Stack=true")
_SHELL = "org.apache.activemq.console.command.ShellCommand"


@contextmanager
def running(folder: Path) -> Iterator[int]:
    """The port on loopback of a broker that keeps nothing and knows every login; it ends with the block."""
    try:
        program, classes = java(), f"{jars('activemq', n=_N_JARS, script='rucio.sh')}/*"
    except ServiceError as error:
        raise NoServer(str(error)) from None
    (port,) = free_ports(1)
    spell = f"broker:(stomp://127.0.0.1:{port})?persistent=false&useJmx=false&useShutdownHook=true"
    broker = start([program, *_JAVA, "-cp", classes, _SHELL, "start", spell], folder / "broker.log")
    try:
        wait(lambda: _listens(port), folder, broker)
        yield port
    finally:
        end(broker)


def _listens(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False
