"""The pods of the Helm chart on this machine, with the servers that they need."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support"), str(ROOT / "tests" / "support" / "servers")]

import postgres_server  # noqa: E402
import s3_server  # noqa: E402
from helm_chart import CHART, RELEASE, Object, pods, rendered  # noqa: E402
from pod_runner import Kubelet  # noqa: E402

from jobs.local_site.local.xrootd import loopback  # noqa: E402

MIB = 2**20
N_FILES, DISK_MIB = 60, 64
ADDRESS = "192.0.2.7"
"""Of this machine, as other machines would see it: clients that come by it are not the server's own pod."""
JOB_NAME = "metadata.labels['batch.kubernetes.io/job-name']"
SETTINGS = '[steward]\nlook = "2s"\npolicy = "lru"\n[sources]\ndemand = { "*" = "xcache_gstream" }\n'
CACHE_VALUES = {
    "capacity": f"{DISK_MIB}MiB",
    "watermarks": [0.5, 0.8],
    "keytab": "xc1-keytab",
    "rse": "",
    "config": "pfc.blocksize 128k\npfc.ram 1g\n",
}
VALUES = {
    "tables": {"root": f"s3a://{s3_server.BUCKET}/cc"},
    "placement": {"plainHttp": True, "tlsSecret": ""},
    "spark": {"enabled": False},
    "cycle": {"minutes": 60, "pull": []},
    "settings": SETTINGS,
}
SECRETS = {
    "serve": {"CACHECAST_SERVE__TOKEN": "not-shown-0123456789"},
    "mlflow-server": {
        "MLFLOW_AUTH_ADMIN_PASSWORD": "not-shown-0123456789",
        "MLFLOW_FLASK_SERVER_SECRET_KEY": "not-shown-of-flask",
    },
    "cache-tokens": {"xc1": "not-shown-of-xc1-0123456789"},
}


class Broken(Exception):
    """Something does not hold; says what."""


def check(holds: bool, what: str) -> None:
    """Raise Broken unless `holds`."""
    if not holds:
        raise Broken(what)
    print(f"  {what}: holds", flush=True)


class Site:
    """The chart's pods by component, and what runs them."""

    def __init__(self, kubelet: Kubelet, objects: list[Object]) -> None:
        self.kubelet = kubelet
        self.pods = {pod.component: pod for pod in reversed(pods(objects))}
        self.disk = kubelet.folder / "claims" / f"xcache-{RELEASE}-cache-xc1-0"

    def held(self) -> list[str]:
        """The files on the cache's disk."""
        return sorted(f"/{path.relative_to(self.disk)}" for path in self.disk.glob("store/*.root"))

    def container(self, component: str, name: str | None = None) -> Object:
        """A container of a pod, by default the one that is called like its component."""
        containers = {container["name"]: container for container in self.pods[component].containers}
        return containers[name or component]

    def ready(self, component: str, name: str | None = None) -> None:
        """Wait until the container's probes hold."""
        container = self.container(component, name)
        for kind in ("startupProbe", "readinessProbe", "livenessProbe"):
            if kind in container:
                self.kubelet.probed(self.pods[component], container, kind)
        check(True, f"{container['name']}: probes")

    def inside(self, component: str, name: str | None, words: str) -> str:
        """What a shell line says in a container like one that runs."""
        container = self.container(component, name)
        command = self.kubelet.command(self.pods[component], container, words=["sh", "-c", words])
        environment = self.kubelet.environment(container, {JOB_NAME: "none"})
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False).stdout

    def job(self, component: str, at_s: int) -> str:
        """Run a CronJob's pod of a moment to its end; what it wrote."""
        name = {JOB_NAME: f"{RELEASE}-{component}-{at_s // 60}"}
        container = self.container(component)
        with self.kubelet.running(self.pods[component], name) as started:
            code = started[component].wait(600)
        log = self.kubelet.log_end(container)
        check(code == 0, f"job {component} ends well" if code == 0 else f"job {component}: {code}: {log}")
        return log


def keytab(folder: Path) -> dict[str, str]:
    """A Secret's files: the key, as docs/kubernetes.md makes it."""
    command = ["xrdsssadmin", "-k", "cachecast", "-u", "pusher", "-g", "pushers", "add"]
    path = folder / "sss.keytab"
    subprocess.run([*command, path], input="y\n", text=True, check=True, stdout=subprocess.DEVNULL)
    return {"sss.keytab": path.read_text()}


def databases(server: postgres_server.PostgresServer) -> dict[str, dict[str, str]]:
    """The secrets of the databases that the chart's script makes."""
    words = {"JOURNAL_PASSWORD": "not-shown-j", "PLACEMENT_PASSWORD": "not-shown-p"}
    address = server.url.rpartition("@")[2].partition("/")[0]
    host, _, port = address.partition(":")
    login = {"PGHOST": host, "PGPORT": port, "PGDATABASE": "postgres"}
    for command in (
        ["psql", "--username=tester", "--command=CREATE ROLE postgres SUPERUSER LOGIN"],
        ["bash", "-e", str(CHART / "files" / "databases.sh")],
    ):
        subprocess.run(command, env=os.environ | login | words, check=True, stdout=subprocess.DEVNULL)
    other = ["psql", "--username=journal", "--dbname=placement", "--command=SELECT 1"]
    refused = subprocess.run(other, env=os.environ | login, capture_output=True, text=True, check=False)
    check("permission denied" in refused.stderr, "database: the journal's account does not reach placement's")
    url = "postgresql+psycopg://{0}:not-shown-{1}@" + address + "/{0}"
    return {
        f"{RELEASE}-journal": {"CACHECAST_PUSH__JOURNAL": url.format("journal", "j")},
        f"{RELEASE}-placement": {"CACHECAST_SERVE__DATABASE": url.format("placement", "p")},
    }


def started(folder: Path, stack: contextlib.ExitStack) -> Site:
    """The site with what its pods need, before any runs."""
    origin = stack.enter_context(loopback(folder / "lb"))
    for at in range(N_FILES):
        origin.add_file(f"/store/f{at:03}.root", b"x" * MIB)
    xc1 = CACHE_VALUES | {"origin": f"127.0.0.1:{origin.origin.port}"}
    values = folder / "values.json"
    values.write_text(json.dumps(VALUES | {"caches": {"xc1": xc1}}))
    objects = rendered(CHART, "1.37", f"--values={values}")
    for name in ("s3", "postgres", "site"):
        (folder / name).mkdir(mode=0o755)
    login = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "not-shown"}
    login["AWS_ENDPOINT_URL"] = stack.enter_context(s3_server.running(folder / "s3"))
    database = stack.enter_context(postgres_server.running(folder / "postgres"))
    secrets = {f"{RELEASE}-{name}": values for name, values in {**SECRETS, "tables": login}.items()}
    secrets["xc1-keytab"] = keytab(folder)
    program = Path(shutil.which("xrootd") or "xrootd").resolve()
    kubelet = Kubelet(
        folder / "site",
        objects,
        secrets | databases(database),
        accounts={10001: "cachecast", 10002: "cachecast-collect", 10940: "xrootd"},
        programs=None if program.is_relative_to("/usr/bin") else program.parents[1],
    )
    site = Site(kubelet, objects)
    site.disk.mkdir(parents=True)
    size = f"size={DISK_MIB}m,mode=2775,gid=10001"
    subprocess.run(["mount", "-t", "tmpfs", "-o", size, "none", site.disk], check=True)
    stack.callback(lambda: subprocess.run(["umount", "--lazy", site.disk], check=True))
    return site
