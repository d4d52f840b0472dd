"""A real Rucio on this machine, from conf/deploy/rucio.sh: its REST server on SQLite, its cache consumer."""

import dataclasses
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen
from typing import Any

from daemons import NoServer, answers, free_ports, start, up
from rucio.client import Client

from features.common.files import user_cache
from prefetch.rucio.session import RucioAccess

_ALEMBIC = """\
[alembic]
sqlalchemy.url = {database}
script_location = rucio.db.sqla:migrate_repo
[loggers]
keys = root
[handlers]
keys = console
[formatters]
keys = plain
[logger_root]
level = WARN
handlers = console
[handler_console]
class = StreamHandler
args = (sys.stderr,)
formatter = plain
[formatter_plain]
"""
_CONFIG = """\
[common]
logdir = {folder}
loglevel = {loglevel}
[database]
default = {database}
[alembic]
cfg = {folder}/alembic.ini
[bootstrap]
userpass_identity = ddmlab
userpass_pwd = secret
userpass_email = ddmlab@example.org
[api]
endpoints_add = traces
[policy]
permission = generic
schema = generic
lfn2pfn_algorithm_default = hash
[monitor]
enable_metrics = False
[trace]
tracedir = {folder}
brokers = 127.0.0.1
port = 1
username = rucio
password = rucio
topic = /topic/rucio.tracer
[messaging-cache]
brokers = 127.0.0.1
port = {broker_port}
use_ssl = False
username = rucio
password = rucio
destination = /topic/rucio.fax
[cache]
url = 127.0.0.1:1
"""


@dataclasses.dataclass(frozen=True)
class RucioServer:
    """A running server: account root, identity ddmlab, password secret."""

    url: str
    folder: Path

    def admin(self) -> Any:
        """A client that may do all."""

        class Admin(Client):  # type: ignore[misc]
            TOKEN_PATH_PREFIX = f"{self.folder}/tokens-"

        creds = {"username": "ddmlab", "password": "secret"}
        hosts = {"rucio_host": self.url, "auth_host": self.url}
        return Admin(**hosts, account="root", auth_type="userpass", creds=creds, timeout=30)


def access(url: str, folder: Path, **other: Any) -> RucioAccess:
    """A login at `url` as account root, whose tokens are kept in `folder`; `other`: further fields."""
    login = {"auth_type": "userpass", "username": "ddmlab", "password": "secret", "account": "root"}
    return RucioAccess(url=url, tokens=folder / "tokens", **{"timeout_s": 30, **login, **other})


@contextmanager
def running(folder: Path) -> Iterator[RucioServer]:
    """An empty Rucio that keeps its database and logs in `folder`; it ends with the block."""
    (port,) = free_ports(1)
    config = _configure(folder, "server", loglevel="ERROR", broker_port=1)
    script = Path(__file__).with_name("rucio_wsgi.py")
    server = _start([_bin("python"), str(script), str(port)], config, folder / "server.log")
    url = f"http://127.0.0.1:{port}"
    with up(lambda: answers(f"{url}/ping"), folder, server):
        yield RucioServer(url, folder)


@contextmanager
def consuming(server: RucioServer, broker_port: int) -> Iterator[None]:
    """Rucio's cache consumer, writing to the server's database what comes to /topic/rucio.fax."""
    config = _configure(server.folder, "consumer", loglevel="INFO", broker_port=broker_port)
    log = server.folder / "consumer.log"
    consumer = _start([_bin("python"), _bin("rucio-cache-consumer")], config, log)
    with up(lambda: "connecting to" in log.read_text(), server.folder, consumer):
        yield


def _bin(name: str) -> str:
    environment = user_cache("rucio-server")
    if not (environment / ".installed").exists():
        raise NoServer(f"there is no Rucio server in {environment}: make it with conf/deploy/rucio.sh")
    return str(environment / "bin" / name)


def _configure(folder: Path, name: str, *, loglevel: str, broker_port: int) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    words = {"folder": folder, "database": f"sqlite:///{folder}/rucio.db"}
    (folder / "alembic.ini").write_text(_ALEMBIC.format(**words))
    config = folder / f"{name}.cfg"
    config.write_text(_CONFIG.format(**words, loglevel=loglevel, broker_port=broker_port))
    return config


def _start(command: list[str], config: Path, log: Path) -> Popen[bytes]:
    env = {"PATH": os.environ["PATH"], "RUCIO_CONFIG": str(config), "RUCIO_HOME": str(config.parent)}
    return start(command, log, env=env)
