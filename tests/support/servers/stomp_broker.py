"""A real message broker on this machine: ActiveMQ with STOMP, from the jars of conf/deploy/rucio.sh."""

from collections.abc import Iterator
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
    """A broker at `port` on loopback that keeps what is published in `folder` and knows every login.

    It can be killed and started again.

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
        how = f"persistent=true&dataDirectory={self._folder}/kept&useJmx=false&useShutdownHook=true"
        classes = f"{jars('activemq', n=_N_JARS, script='rucio.sh')}/*"
        words = [java(), *_JAVA, *self._java, "-cp", classes, _SHELL, "start", f"broker:({at})?{how}"]
        self._process = start(words, self._folder / "broker.log")
        try:
            wait(lambda: listens(self.port), self._folder, self._process)
        except BaseException:
            self.end()
            raise

    def kill(self) -> None:
        """End it at once, as a power failure does."""
        self._process.kill()
        self._process.wait()

    def end(self) -> None:
        """End it."""
        end(self._process)


@contextmanager
def running(folder: Path, keystore: Path | None = None) -> Iterator[KeepingBroker]:
    """A broker that ends with the block."""
    folder.mkdir(exist_ok=True)
    broker = KeepingBroker(folder, keystore)
    try:
        yield broker
    finally:
        broker.end()
