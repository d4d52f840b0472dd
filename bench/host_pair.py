"""A controller and a real XCache on two hosts: network namespaces with a link between them; needs root.

bench/two_hosts.py starts it, in the environment that `make verify` makes.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import pwd
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from airflow_rest import Airflow
from daemons import NoServer, end, start, wait
from postgres_server import PostgresServer
from steward_site import MIB
from waiting import eventually

from features.common.times import day_label
from jobs.local_site.local.services import airflow, prepare_airflow
from jobs.local_site.local.site import opened
from jobs.local_site.local.xrootd import prepared
from prefetch.steward.figures import StewardFigures, read
from prefetch.xcache.events import FileClose
from prefetch.xcache.gstream import CaptureReader

ROOT = Path(__file__).resolve().parents[1]
CONTROLLER, HOST = "cc-controller", "cc-host"
ADDRESS = {CONTROLLER: "10.77.0.1", HOST: "10.77.0.2"}
POSTGRES, S3, ORIGIN, CACHE, REPORTS = 5499, 5498, 5497, 5496, 5495
CYCLE_S = 10
SITE = f"""\
[features]
cycle = "{CYCLE_S}s"
horizons = ["1h"]
candidates = "1h"
active_datasets = "1h"
history = "1h"
[plan]
horizon = "1h"
control_share = 0.0
cycle = "1d"
prefetch_share = 1.0
rules = [{{{{ action = "pin", names = ["*kept*"] }}}}, {{{{ action = "never", names = ["*stale*"] }}}}]
[push]
journal = "postgresql+psycopg://tester@{ADDRESS[CONTROLLER]}:{POSTGRES}/postgres"
timeout = "10s"
retry_after = "0s"
[tables]
root = "s3a://tables/region"
[steward]
state = "{{folder}}/steward"
look = "2s"
policy = "lru"
[sources]
demand = {{{{ "*" = "xcache_gstream" }}}}
[caches.cache]
name = "cache"
kind = "xcache"
url = "root://{ADDRESS[HOST]}:{CACHE}"
{{seen_by}}
capacity = "{20 * MIB}B"
watermarks = [0.7, 1.0]
evict_guard = "0s"
steward = true
"""
AIRFLOW = """
[mlflow]
uri = "sqlite:///{out}/mlflow/mlflow.db"
artifacts = "{out}/mlflow/artifacts"
[training]
spool = "{out}/trainings"
[serve]
database = "{out}/placement.db"
[airflow]
pull = {{ rucio_traces = "{out}/traces/", rucio_files = "{out}/files/" }}
retries = 1
retry_delay = "5s"
"""
COMMAND = [
    sys.executable,
    "-c",
    "import sys; sys.modules['pyspark'] = None; from jobs.cli.main import main; main()",
]
"""Without Spark, which a cache's host does not have, and for which the store here has no jars."""
HOLDING = """
import sys, time
from prefetch.xcache.session import RemoteFile
with RemoteFile(sys.argv[1], time.monotonic() + 3600) as remote:
    remote.read_all()
    print(flush=True)
    sys.stdin.read()
    remote.read_all()
"""
ROWS = """
import json, sys
from features import results, schema
from jobs.ground.store.tables import Tables
table = getattr(schema, sys.argv[1], None) or getattr(results, sys.argv[1])
print(json.dumps(Tables("s3a://tables/region").read_arrow(table).to_pylist(), default=str))
"""


class Broken(Exception):
    """A promise that does not hold; says which."""


def check(holds: bool, what: str) -> None:
    """Raise Broken unless `holds`."""
    if not holds:
        raise Broken(what)


class Hosts:
    """Both hosts, and what runs on them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.n_fillers = 0
        for side in (CONTROLLER, HOST):
            (folder / side).mkdir(mode=0o755)
        namespace, captures = folder / HOST / "lb" / "ns", folder / HOST / "captures"
        namespaces = {HOST: f'namespace = "{namespace}"\ngstream = "{captures}"', CONTROLLER: ""}
        for side, seen_by in namespaces.items():
            (folder / side / "site.toml").write_text(SITE.format(folder=folder / side, seen_by=seen_by))
        with (folder / CONTROLLER / "site.toml").open("a") as out:
            out.write(AIRFLOW.format(out=folder / CONTROLLER / "airflow"))
        self.namespace, self.captures = namespace, captures

    def words(self, side: str, *words: str) -> list[str]:
        """The command `words` on the host `side`, which has nothing of the other one's folder."""
        (other,) = {CONTROLLER, HOST} - {side}
        hide = 'mount -t tmpfs none "$0" && exec "$@"'
        return ["ip", "netns", "exec", side, "sh", "-c", hide, str(self.folder / other), *words]

    def start(
        self, side: str, name: str, *words: str, ready: Callable[[], bool], env: Mapping[str, str] = {}
    ) -> None:
        """Start a service of `side`, and wait until it is ready."""
        log = self.folder / f"{name}.log"
        self.running[name] = process = start(self.words(side, *words), log, env={**environment(), **env})
        wait(ready, self.folder, process)

    def kill(self, *names: str) -> None:
        """Kill -9 services with all that they started."""
        for name in names:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.running[name].pid, signal.SIGKILL)
            self.running.pop(name).wait()

    def run(self, side: str, *words: str, fails: str = "", python: str = "", within_s: float = 300) -> Any:
        """What a command of `side` answers as JSON; `fails`: a part of the error that it must end with."""
        conf = ["--conf", str(self.folder / side / "site.toml"), "--json"]
        command = [sys.executable, "-c", python, *words] if python else [*COMMAND, *words, *conf]
        done = subprocess.run(
            self.words(side, *command),
            env=environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=within_s,
        )
        if fails:
            check(done.returncode == 1 and fails in done.stderr, f"{words[0]}: {done.stderr[-300:]}")
            check("Traceback" not in done.stderr, f"{words[0]}: {done.stderr[-300:]}")
            return None
        check(done.returncode == 0, f"{words[0]}: {done.stderr[-600:]}")
        return json.loads(done.stdout)

    def rows(self, table: str) -> list[dict[str, Any]]:
        """The rows of a table, read by the controller."""
        return list(self.run(CONTROLLER, table, python=ROWS))

    def read(self, *names: str) -> None:
        """Read files through the cache as jobs on its host do."""
        for name in names:
            url = f"root://{ADDRESS[HOST]}:{CACHE}/{name}"
            done = subprocess.run(
                self.words(HOST, "xrdcp", "-s", "-f", url, "/dev/null"), check=False, timeout=120
            )
            check(done.returncode == 0, f"{name} cannot be read")

    def fill(self, n_files: int) -> None:
        """Read so many files that nobody read before."""
        names = [f"/store/mc/Run3/A/AOD/v1-v1/1/filler{self.n_fillers + n:03}.root" for n in range(n_files)]
        self.n_fillers += n_files
        for name in names:
            self.add(name)
        self.read(*names)

    def add(self, name: str) -> None:
        """Write a file at the origin."""
        path = self.folder / HOST / "lb" / "origin" / name[1:]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(MIB))

    @contextlib.contextmanager
    def reading(self, name: str) -> Iterator[None]:
        """A job has a file open while the block runs, and reads it again at the end."""
        url = f"root://{ADDRESS[HOST]}:{CACHE}/{name}"
        words = self.words(HOST, sys.executable, "-c", HOLDING, url)
        with subprocess.Popen(
            words, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        ) as job:
            assert job.stdin is not None and job.stdout is not None
            check(bool(job.stdout.readline()), "the job cannot open its file")
            yield
            job.stdin.close()
            check(job.wait(60) == 0, "the job lost its file")

    def held(self) -> set[str]:
        """Names of files on the cache's disk, by the disk."""
        return {f"/{path.relative_to(self.namespace)}" for path in self.namespace.rglob("*.root")}

    def fetched(self) -> Mapping[str, int]:
        """How often the server reported that it fetched each file."""
        n_reads: dict[str, int] = {}
        for path in sorted(self.captures.glob("gstream-*")):
            for event in CaptureReader(path).events():
                if isinstance(event, FileClose) and event.remotes:
                    n_reads[event.lfn] = n_reads.get(event.lfn, 0) + 1
        return n_reads

    @property
    def figures(self) -> StewardFigures:
        """What the steward reported last, on its host."""
        path, published = self.folder / HOST / "steward" / "cache" / "cache.json", list[StewardFigures]()

        def has_begun() -> bool:
            published.extend(entry for entry in [read(path)] if entry is not None and entry.high_bytes)
            return bool(published)

        check(eventually(has_begun), "the steward reports nothing")
        return published[0]

    def link(self, state: str) -> None:
        """`up`, or `down`: what is sent is lost, without an error."""
        ip("-n", CONTROLLER, "link", "set", "cc0", state)

    def database(self) -> None:
        """Start PostgreSQL, with what it has."""
        data = self.folder / CONTROLLER / "pg" / "data"
        binary = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))[-1]
        if not data.exists():
            data.parent.mkdir()
            os.chown(data.parent, pwd.getpwnam("postgres").pw_uid, -1)
            PostgresServer(binary.parent, data.parent, POSTGRES, waits_for_disk=True).make()
            with (data / "pg_hba.conf").open("a") as rules:
                rules.write("host all all 10.77.0.0/24 trust\n")
        as_user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
        words = ["-D", str(data), "-p", str(POSTGRES), "-k", str(data.parent), "-c", "listen_addresses=*"]
        ready = partial(self.says, "postgres", "ready to accept")
        self.start(CONTROLLER, "postgres", *as_user, str(binary), *words, ready=ready)

    def store(self) -> None:
        """Start the store, which has nothing yet."""
        words = [sys.executable, "-m", "moto.server", "-H", "0.0.0.0", "-p", str(S3)]
        self.start(CONTROLLER, "store", *words, ready=partial(self.says, "store", "Running on"))
        self.run(CONTROLLER, "bucket", python="import s3fs; print(s3fs.S3FileSystem().mkdir('tables') or 1)")

    def servers(self) -> None:
        """Start origin and cache, in a process that ends with them."""
        ready = self.folder / HOST / "ready"
        ready.unlink(missing_ok=True)
        me = [sys.executable, str(Path(__file__).resolve()), str(self.folder / HOST)]
        self.start(HOST, "servers", *me, ready=ready.exists)

    def cache(self) -> None:
        """Start the collector, the cache and the steward; a server drops what nobody hears at its start."""
        conf = ["--conf", str(self.folder / HOST / "site.toml")]
        words = ["collect", "--port", str(REPORTS), "--out", str(self.captures), "--roll-every", "3s", *conf]
        self.start(HOST, "collect", *COMMAND, *words, ready=partial(self.says, "collect", "listening"))
        self.servers()
        self.steward()

    def airflow(self) -> Airflow:
        """Start Airflow's four processes on the controller, by its settings; their API."""
        site = opened(self.folder / CONTROLLER / "airflow", tables=None, xrootd=False)
        program = self.folder / CONTROLLER / "bin" / "cachecast"
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\nexec {shlex.join(COMMAND)} "$@"\n')
        program.chmod(0o755)
        prepare_airflow(site)
        with inside(CONTROLLER):
            for service in airflow(site):
                path = f"{program.parent}{os.pathsep}{service.env['PATH']}"
                conf = str(self.folder / CONTROLLER / "site.toml")
                env = {**service.env, "PATH": path, "CACHECAST_CONF": conf}
                self.start(CONTROLLER, service.name, *service.words, ready=service.is_healthy, env=env)
            return Airflow(f"http://127.0.0.1:{site.ports['airflow']}", site.secret("airflow-password"))

    def steward(self) -> None:
        """Start the steward; it has begun when this returns."""
        conf = ["--conf", str(self.folder / HOST / "site.toml")]
        words = ["steward", "--cache", "cache", *conf]
        self.start(HOST, "steward", *COMMAND, *words, ready=partial(self.says, "steward", "began"))

    def says(self, name: str, what: str) -> bool:
        """Whether a service's log has this."""
        return what in (self.folder / f"{name}.log").read_text(errors="replace")

    def prefill(self, dataset: str, n_files: int) -> list[str]:
        """Files of a new dataset in the catalogue and at the origin."""
        names = [f"/store/mc/Run3/{dataset}/AOD/v1-v1/0/{n}.root" for n in range(n_files)]
        self.catalogue(f"s:{dataset}", names)
        return names

    def catalogue(self, dataset: str, names: list[str]) -> None:
        """Put files at the origin, and let the controller pull them as a catalogue lists them."""
        listing = self.folder / CONTROLLER / "files.jsonl"
        scope, _, title = dataset.partition(":")
        with listing.open("w") as out:
            for name in names:
                self.add(name)
                row = {
                    "parent_scope": scope,
                    "parent_name": title,
                    "scope": "cms",
                    "name": name,
                    "bytes": MIB,
                }
                out.write(json.dumps(row | {"created_at": "2026-01-01", "rses": ["DISK"]}) + "\n")
        today = day_label(int(time.time()))
        self.run(CONTROLLER, "pull", "--source", "rucio_files", "--input", str(listing), "--day", today)


def environment() -> dict[str, str]:
    """Variables of every process: the keys of the store, and where it is."""
    keys = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_DEFAULT_REGION": "us-east-1"}
    url = {
        "AWS_ENDPOINT_URL": f"http://{ADDRESS[CONTROLLER]}:{S3}",
        "PYTHONPATH": f"{ROOT}:{ROOT}/tests/support/servers",
    }
    return os.environ | keys | url


@contextlib.contextmanager
def inside(side: str) -> Iterator[None]:
    """What this thread asks meanwhile, it asks on the network of `side`."""
    enter = ctypes.CDLL(None, use_errno=True).setns
    with Path("/proc/thread-self/ns/net").open() as ours, Path("/run/netns", side).open() as theirs:
        assert enter(theirs.fileno(), 0) == 0, os.strerror(ctypes.get_errno())
        try:
            yield
        finally:
            assert enter(ours.fileno(), 0) == 0, os.strerror(ctypes.get_errno())


def ip(*words: str) -> None:
    """Run `ip`."""
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise NoServer(f"ip {' '.join(words)}: {done.stderr.strip()}")


@contextlib.contextmanager
def linked() -> Iterator[None]:
    """The two namespaces and the link between them."""
    try:
        for side in ADDRESS:
            ip("netns", "add", side)
        ip("link", "add", "cc0", "netns", CONTROLLER, "type", "veth", "peer", "name", "cc1", "netns", HOST)
        for side, device in ((CONTROLLER, "cc0"), (HOST, "cc1")):
            ip("-n", side, "addr", "add", f"{ADDRESS[side]}/24", "dev", device)
            for interface in (device, "lo"):
                ip("-n", side, "link", "set", interface, "up")
        yield
    finally:
        for side in ADDRESS:
            subprocess.run(["ip", "netns", "del", side], capture_output=True, check=False)


def serve(folder: Path) -> None:
    """Be an origin and a cache until killed."""
    allowed = "".join(f"xrd.allow host {address}\n" for address in ADDRESS.values())
    servers = prepared(
        folder / "lb",
        ports=(ORIGIN, CACHE),
        files_limit=(4 * MIB, 8 * MIB, 20 * MIB),
        gstream_port=REPORTS,
        reports_opens=True,
        more=f"pfc.trace info\n{allowed}",
    )
    servers.origin.start()
    servers.cache.start()
    (folder / "ready").touch()
    signal.pause()


@contextlib.contextmanager
def running() -> Iterator[Hosts]:
    """Both hosts with their servers, a journal, the collector and the steward."""
    with tempfile.TemporaryDirectory(prefix="th-") as folder, linked():
        Path(folder).chmod(0o755)
        hosts = Hosts(Path(folder))
        try:
            hosts.store()
            hosts.database()
            hosts.run(CONTROLLER, "push", "resume", "--cache", "cache")
            hosts.cache()
            yield hosts
        finally:
            end(*hosts.running.values())


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
