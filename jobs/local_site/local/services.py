"""The services of a local deployment in the order of their start, and how each shows that it works."""

import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib import resources
from pathlib import Path

from features.common.errors import InputError, ServiceError
from features.common.files import write
from features.common.progress import Advance
from jobs.ground.store.locks import exclusive
from jobs.local_site.local import hdfs
from jobs.local_site.local.process import Service, Services, ServiceState
from jobs.local_site.local.site import CACHE, LocalSite, deployment_at, opened
from jobs.local_site.local.xrootd import available, prepared
from jobs.operator.operate import asking, doctor

_LOCAL = "http://127.0.0.1"
_DAGS = Path(__file__).parents[3] / "dags"
_LOGIN = "airflow-passwords.json"
_LAST_LINES = 5
_AIRFLOW_PARTS = {"scheduler": "scheduler", "dag-processor": "dag_processor", "triggerer": "triggerer"}
"""Airflow's processes beside the API server, by command, and what its health calls them."""
_FIGURES_S = 300.0


def services(site: LocalSite, *, xrootd: bool) -> Iterator[Service]:
    """Every service; one needs at most those before it."""
    if site.hdfs.exists():
        yield from _hdfs(site)
    yield mlflow(site)
    program, env = [sys.executable, "-m", "jobs"], {"CACHECAST_CONF": str(site.conf)}
    placement, collector, state = site.ports["placement"], site.ports["collector"], site.out / "steward"
    at = f"{_LOCAL}:{placement}"
    yield Service("placement", [*program, "serve"], at, answers(placement, "/health"), env, page=at)
    words = ["collect", "--port", str(collector), "--out", str(site.out / "gstream"), "--roll-every", "5m"]
    at = f"UDP 127.0.0.1:{collector}"
    yield Service("collector", [*program, *words], at, takes_datagrams(collector), env)
    if xrootd:
        ports = (site.ports["origin"], site.ports["cache"])
        servers = prepared(site.out / "xrootd", ports=ports, gstream_port=collector, reports_opens=True)
        for name, daemon in (("origin", servers.origin), ("cache", servers.cache)):
            words, at = daemon.words(with_parent=False), f"root://127.0.0.1:{daemon.port}"
            yield Service(name, words, at, daemon.answers)
    words, is_healthy = [*program, "steward", "--cache", CACHE], writes(state / CACHE / f"{CACHE}.json")
    env = {**env, "CACHECAST_STEWARD__STATE": str(state)}
    yield Service("steward", words, f"cache {CACHE}", is_healthy, env)
    yield from airflow(site)


def mlflow(site: LocalSite) -> Service:
    """A tracking server on SQLite, that hands artifacts through."""
    port, folder = site.ports["mlflow"], site.out / "mlflow"
    listens = ["--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    stores = ["--backend-store-uri", f"sqlite:///{folder}/mlflow.db"]
    artifacts = ["--serve-artifacts", "--artifacts-destination", (folder / "artifacts").as_uri()]
    return Service(
        "mlflow",
        [sys.executable, "-m", "mlflow", "server", *listens, *stores, *artifacts],
        f"{_LOCAL}:{port}",
        answers(port, "/health"),
        # Without its job runner it takes a quarter of the memory.
        {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"},
        page=f"{_LOCAL}:{port}",
    )


def not_by_proxy() -> str:
    """`no_proxy` of the environment, with this machine: a site's proxy would look for services on its own."""
    stated = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
    if stated.strip() == "*":  # no host by a proxy; among others it means nothing
        return stated
    return ",".join(dict.fromkeys([*filter(None, stated.split(",")), "127.0.0.1", "localhost"]))


def airflow_env(site: LocalSite) -> dict[str, str]:
    """The environment of every Airflow process, and of an `airflow` command by hand."""
    port = site.ports["airflow"]
    programs = Path(sys.executable).parent
    return {
        "PATH": f"{programs}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "no_proxy": not_by_proxy(),
        "CACHECAST_CONF": str(site.conf),
        "AIRFLOW_HOME": str(site.out / "airflow"),
        "AIRFLOW__CORE__DAGS_FOLDER": str(_DAGS),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
        "AIRFLOW__CORE__PARALLELISM": "4",
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{_LOCAL}:{port}/execution/",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": "admin:admin",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(site.secret_file(_LOGIN)),
        "AIRFLOW__API__HOST": "127.0.0.1",
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__API__BASE_URL": f"{_LOCAL}:{port}",
        "AIRFLOW__API__WORKERS": "1",
        "AIRFLOW__API_AUTH__JWT_SECRET": site.secret("airflow-jwt"),
        "AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT": str(site.ports["airflow_worker_logs"]),
        "AIRFLOW__LOGGING__TRIGGER_LOG_SERVER_PORT": str(site.ports["airflow_triggerer_logs"]),
        "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
        "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "30",
    }


def airflow(site: LocalSite) -> Iterator[Service]:
    """Airflow's four processes, on the database that `prepare_airflow` made."""
    port, env = site.ports["airflow"], airflow_env(site)
    web = f"{_LOCAL}:{port}"
    is_up = answers(port, "/api/v2/monitor/health")
    program = [sys.executable, "-m", "airflow"]
    yield Service("airflow-api", [*program, "api-server"], web, is_up, env, page=web)
    for command, part in _AIRFLOW_PARTS.items():
        yield Service(f"airflow-{command}", [*program, command], web, airflow_part(port, part), env)


def prepare_airflow(site: LocalSite) -> None:
    """Make what Airflow starts from, if it is not there: database, pools, and its user's password.

    `airflow/env.sh` is for `airflow` commands by hand. Raises ServiceError.
    """
    login, by_hand = site.secret_file(_LOGIN), site.out / "airflow" / "env.sh"
    write(login, json.dumps({"admin": site.secret("airflow-password")}), mode=0o600)
    exports = [f"export {key}={shlex.quote(value)}\n" for key, value in airflow_env(site).items()]
    write(by_hand, "".join(exports), mode=0o600)
    database = site.out / "airflow" / "airflow.db"
    if database.exists():
        return
    pools = resources.files("conf") / "deploy" / "pools.json"
    env = os.environ | airflow_env(site)
    try:
        for words in (["db", "migrate"], ["pools", "import", str(pools)]):
            command = [sys.executable, "-m", "airflow", *words]
            done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
            if done.returncode:
                errors = " ".join(done.stderr.splitlines()[-_LAST_LINES:])
                raise ServiceError(f"airflow {' '.join(words)} failed: {errors}")
    except BaseException:
        database.unlink(missing_ok=True)  # else the next start would take it for whole
        raise


def _hdfs(site: LocalSite) -> Iterator[Service]:
    rpc_port, http_port = site.ports["hdfs"], site.ports["hdfs_web"]
    words = hdfs.prepared(site.hdfs, rpc_port=rpc_port, http_port=http_port)
    at, page = f"hdfs://localhost:{rpc_port}", f"http://localhost:{http_port}"
    is_up = answers(http_port, "/jmx?qry=none")
    yield Service("hdfs-namenode", [*words, hdfs.NAME_NODE], at, is_up, page=page)
    yield Service("hdfs-datanode", [*words, hdfs.DATA_NODE], at, lambda: hdfs.is_up(http_port))


def answers(port: int, path: str) -> Callable[[], bool]:
    """A check that an HTTP server on the port answers 200 at `path`."""
    return lambda: isinstance(asking.fetched(f"{_LOCAL}:{port}{path}"), bytes)


def airflow_part(port: int, part: str) -> Callable[[], bool]:
    """A check that Airflow's API server reports `part` (scheduler, triggerer, dag_processor) as healthy."""
    return lambda: not doctor.sick_parts(asking.health(f"{_LOCAL}:{port}/api/v2/monitor/health"), [part])


def takes_datagrams(port: int) -> Callable[[], bool]:
    """A check that a process listens on the UDP port, by the kernel's table: a probe could take the port."""
    return lambda: any(
        int(line.split()[1].rpartition(":")[2], 16) == port
        for table in (Path("/proc/net/udp"), Path("/proc/net/udp6"))
        if table.exists()
        for line in table.read_text().splitlines()[1:]
    )


def writes(file: Path) -> Callable[[], bool]:
    """A check that a service has written its figures to `file` in the last five minutes."""

    def look() -> bool:
        try:
            return time.time() - file.stat().st_mtime < _FIGURES_S
        except OSError:
            return False

    return look


def up(out: Path, *, tables: str | None, hdfs: bool, on_progress: Advance) -> list[ServiceState]:
    """Start what is not running, in order; each is healthy before the next.

    `tables` and `hdfs` say where the tables are, the first time: elsewhere, or on an HDFS of its own.
    Raises InputError, ServiceError, and ConflictError if another one is at work.
    """
    if hdfs and tables is not None:
        raise InputError("the tables are either at --tables or on the deployment's own --hdfs; give one")
    xrootd = available() is None
    site = opened(out, tables=tables, xrootd=xrootd, hdfs=hdfs)
    os.environ["no_proxy"] = not_by_proxy()  # for what is started, and for asking whether it answers
    with exclusive(site.run / ".lock", "up"):
        on_progress(0, 1, "databases")
        prepare_airflow(site)
        keeper, states = Services(site.run), []
        to_start = list(services(site, xrootd=xrootd))
        for n_done, service in enumerate(to_start):
            on_progress(n_done, len(to_start), service.name)
            states.append(keeper.start(service))
        return states


def down(out: Path) -> dict[str, object]:
    """End what `up` has started in `out`, and nothing else; files stay. `processes`: how many ended."""
    site = deployment_at(out)
    return {"out": str(site.out), "processes": len(Services(site.run).stop())}
