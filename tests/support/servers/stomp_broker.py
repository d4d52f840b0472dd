"""A real message broker on this machine: ActiveMQ with STOMP, from the jars of conf/deploy/rucio.sh."""

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from daemons import end, free_ports, listens, start, wait

from jobs.ground.spark import java
from jobs.local_site.local.hdfs import jars

_N_JARS = 10
_JAVA = ("-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.net.preferIPv4Stack=true")
_STORE = "javax.net.ssl.keyStore"
_SHELL = "org.apache.activemq.console.command.ShellCommand"


class KeepingBroker:
    """A broker at `port` that keeps what is published in `folder`, and can be killed and started again.

    `keystore`: a PKCS #12 file, locked by `tests`, of its certificate and its clients' authority, for TLS.
    """

    def __init__(self, folder: Path, keystore: Path | None = None) -> None:
        (self.port,) = free_ports(1)
        self._folder = folder
        store = f"{keystore} -D{_STORE}Password=tests".split() if keystore else []
        self._java = [f"-D{_STORE}={store[0]}", *store[1:]] if store else []
        self._java += [option.replace("keyStore", "trustStore") for option in self._java]
        self._scheme, self._query = ("stomp+ssl", "?needClientAuth=true") if keystore else ("stomp", "")
        self.start()

    def start(self) -> None:
        """Start it, and wait until it answers."""
        at = f"{self._scheme}://127.0.0.1:{self.port}{self._query}"
        self._process = _started(
            self._folder, at, f"persistent=true&dataDirectory={self._folder}/kept", self._java
        )
        wait(lambda: listens(self.port), self._folder, self._process)

    def kill(self) -> None:
        """End it at once, as a power failure does."""
        self._process.kill()
        self._process.wait()

    def end(self) -> None:
        """End it."""
        end(self._process)


@contextmanager
def running(folder: Path) -> Iterator[int]:
    """The port on loopback of a broker that keeps nothing and knows every login; it ends with the block."""
    (port,) = free_ports(1)
    broker = _started(folder, f"stomp://127.0.0.1:{port}", "persistent=false")
    try:
        wait(lambda: listens(port), folder, broker)
        yield port
    finally:
        end(broker)


def _started(folder: Path, at: str, how: str, java_words: Sequence[str] = ()) -> subprocess.Popen[bytes]:
    program, classes = java(), f"{jars('activemq', n=_N_JARS, script='rucio.sh')}/*"
    spell = f"broker:({at})?{how}&useJmx=false&useShutdownHook=true"
    return start(
        [program, *_JAVA, *java_words, "-cp", classes, _SHELL, "start", spell], folder / "broker.log"
    )
