"""Run the chart's pods on this machine, as far as it can: bubblewrap in place of a container runtime.

bench/pods.py [COMPONENT ...]            exit code 1 if something does not hold

Renders the chart, and starts the collector, a real XCache with its steward, the placement service, MLflow and
jobs of the cycle from the rendered specifications: their mounts, accounts, variables, probes and commands,
with no capability and a read-only root, on a network of their own. Beside them run a real PostgreSQL, made by
the chart's script, and an S3 server. What must hold: probes pass; the steward sees what the server has open,
evicts by the server's command and its key, and cannot write to the cache's disk; without the key everybody
reads and nobody evicts; the collector has no secret; names that are not the services' are refused; jobs of
the cycle end well before there is a model. Caches are tried on two XRootD versions, if there are.

Not shown: images, Kubernetes itself, its network policies. Needs root, bubblewrap, an XRootD server, Helm
(conf/deploy/helm.sh) and the environment that `make verify` makes: .venv/bin/python bench/pods.py
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support"), str(ROOT / "tests" / "support" / "servers")]

import postgres_server  # noqa: E402
import s3_server  # noqa: E402
import xrootd_versions  # noqa: E402
from helm_chart import CHART, RELEASE, Object, pods, rendered  # noqa: E402
from pod_runner import Kubelet, answer  # noqa: E402

from features.common.errors import ServiceError  # noqa: E402
from jobs.local_site.local.xrootd import loopback  # noqa: E402
from prefetch.xcache.session import RemoteFile  # noqa: E402

MIB = 2**20
N_FILES, DISK_MIB = 60, 64
ADDRESS = "192.0.2.7"
"""Of this machine, as other machines would see it: clients that come by it are not the server's own pod."""
CACHE, PLACEMENT, MLFLOW = f"root://{ADDRESS}:1094", "http://127.0.0.1:8400", "http://127.0.0.1:5000"
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
        found = {one["name"]: one for one in self.pods[component].containers}
        return found[name or component]

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
        told = self.kubelet.told(container)
        check(code == 0, f"job {component} ends well" if code == 0 else f"job {component}: {code}: {told}")
        return told


def confined(site: Site, component: str, name: str | None = None) -> None:
    """A container has no right that its pod does not name."""
    name = name or component
    account = site.pods[component].spec["securityContext"]["runAsUser"]
    told = site.inside(component, name, "id -u; id -g; grep -E 'Cap(Eff|Bnd)|NoNewPrivs' /proc/self/status")
    words = ["CapEff:", "0" * 16, "CapBnd:", "0" * 16, "NoNewPrivs:", "1"]
    check(told.split() == [str(account), "10001", *words], f"{name}: runs as {account}, with no capability")
    told = site.inside(
        component, name, "touch /x /usr/x /etc/x /opt/x /var/x 2>&1; ls /tmp/x; touch /tmp/x && ls /tmp"
    )
    check(told.count("cannot touch") == 5 and "x" in told.splitlines(), f"{name}: a read-only root")


def collected(site: Site) -> None:
    """The collector runs, and has no secret."""
    site.ready("collector")
    confined(site, "collector")
    told = site.inside("collector", None, "env; cat /private/* /secret/* 2>&1; ls /var/lib")
    check("not-shown" not in told, "collector: no secret")
    check("cachecast-steward" not in told.splitlines(), "collector: no folder of stewards")


def cached(site: Site) -> None:
    """The server serves, and the steward beside it evicts what nobody has open."""
    site.ready("cache", "xcache")
    for name in ("xcache", "steward"):
        confined(site, "cache", name)
    names = [f"/store/f{at:03}.root" for at in range(N_FILES)]
    deadline = time.monotonic() + 900
    with RemoteFile(f"{CACHE}/{names[0]}", deadline) as opened:
        opened.read_all()
        site.ready("cache", "steward")
        for name in names[1:]:
            with RemoteFile(f"{CACHE}/{name}", deadline) as file:
                file.read_all()
            time.sleep(0.3)
        limit = 0.8 * DISK_MIB
        while len(held := site.held()) > limit and time.monotonic() < deadline:
            time.sleep(1)
        check(len(held) <= limit, f"steward: of {N_FILES} files {len(held)} are left")
        words = site.container("cache", "steward")
        while "evicted" not in (told := site.kubelet.told(words)) and time.monotonic() < deadline:
            time.sleep(1)  # it says so after its look
        check("evicted" in told and "purge" not in told, "steward: it evicted the others")
        check(names[0] in held, "steward: the open file, the oldest, is among them")
        check(opened.read_all() == MIB, "xcache: the open file is read")
    keyed(site)
    told = site.inside("cache", "steward", "touch /xcache/x 2>&1; rm /xcache/store/*.root 2>&1")
    check(told.count("Read-only file system") > 1, "steward: cannot write to the cache's disk")


def keyed(site: Site) -> None:
    """Without the key everybody reads and nobody evicts; the key is the server's and the steward's alone."""
    stat = "stat -c '%a %u' /private/sss.keytab 2>&1"
    account = site.pods["cache"].spec["securityContext"]["runAsUser"]
    for name in ("xcache", "steward"):
        check(site.inside("cache", name, stat).split() == ["400", str(account)], f"{name}: has the key alone")
    for component in ("push", "collector", "cycle"):
        told = site.inside(component, None, f"{stat}; ls /secret /private 2>&1; env | grep SSS")
        check("keytab" not in told.replace("'/private/sss.keytab'", ""), f"{component}: has no key")
    name = site.held()[-1]
    own = f"root://{RELEASE}-cache-xc1:1094"
    for where, key in ((CACHE, ""), (CACHE, "XrdSecSSSKT=/private/sss.keytab"), (own, "XrdSecSSSKT=/none")):
        words = f"{key} xrdfs {where} cat '/xrdpfc_command/remove_file/ {name}' 2>&1"
        told = site.inside("cache", "steward", words)
        refused = "permission denied" in told or "Auth failed" in told
        check(refused and name in site.held(), f"xcache: {where} with {key or 'no key'}: no eviction")
    told = site.inside("push", None, f"xrdfs {CACHE} cat {name} | wc -c; xrdfs {CACHE} rm {name} 2>&1")
    check(told.split()[0] == str(MIB) and "denied" in told, "xcache: a client without the key reads, no more")
    site.inside("cache", "steward", f"xrdfs {own} cat '/xrdpfc_command/remove_file/ {name}' 2>&1")
    deadline = time.monotonic() + 30
    while name in site.held() and time.monotonic() < deadline:
        time.sleep(0.2)
    check(name not in site.held(), "xcache: from its own pod, with the key: evicted")


def keytab(folder: Path) -> dict[str, str]:
    """A Secret's files: the key, as docs/kubernetes.md makes it."""
    command = ["xrdsssadmin", "-k", "cachecast", "-u", "pusher", "-g", "pushers", "add"]
    path = folder / "sss.keytab"
    subprocess.run([*command, path], input="y\n", text=True, check=True, stdout=subprocess.DEVNULL)
    return {"sss.keytab": path.read_text()}


def placed(site: Site) -> None:
    """The placement service answers by its own names, and has the caches' tokens."""
    site.ready("placement")
    confined(site, "placement")
    check(
        answer(f"{PLACEMENT}/health", f"{RELEASE}-placement") == 200,
        "placement: answers by its Service's name",
    )
    check(answer(f"{PLACEMENT}/health", "elsewhere.example") == 421, "placement: by no stranger's")
    told = site.inside("placement", None, "stat -c '%a %u' /private/xc1; cat /private/xc1").split()
    check(told[:2] == ["400", "10001"], "placement: a cache's token is its account's alone")
    check(site.inside("placement", None, "ls /private").split() == ["xc1"], "placement: has no key")


def tracked(site: Site) -> None:
    """MLflow answers by its Service's name, and to nobody without a login."""
    site.ready("mlflow")
    confined(site, "mlflow")
    search = f"{MLFLOW}/api/2.0/mlflow/registered-models/search"
    check(answer(search, f"{RELEASE}-mlflow:5000") == 401, "mlflow: asks for a login")
    check(answer(search, "elsewhere.example") == 403, "mlflow: answers by no stranger's name")


def watched(site: Site) -> None:
    """The status pod looks each minute; the journal is there then."""
    container = site.container("status")
    deadline = time.monotonic() + 180
    while "xc1" not in site.kubelet.told(container) and time.monotonic() < deadline:
        time.sleep(1)
    confined(site, "status")
    check("xc1" in site.kubelet.told(container), "status: it shows the cache")


def cycled(site: Site) -> None:
    """Jobs of a moment end well before there is a model, and say so; the collector finished its capture."""
    at_s = (int(time.time()) // 3600 + 1) * 3600 + 60
    told = site.job("cycle", at_s)
    check("no champion yet" in told, "job cycle: says that there is no champion")
    for component in ("push", "place", "outcomes"):
        site.job(component, at_s)


LOOKS = {"status": watched, "collector": collected, "cache": cached, "placement": placed, "mlflow": tracked}


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


def main() -> int:
    wanted = [word for word in sys.argv[1:] if not word.startswith("--")]
    if "--inside" in sys.argv:
        return inside(wanted or [*LOOKS, "cycle"])
    if os.geteuid() or not shutil.which("bwrap"):
        raise SystemExit("needs root, and bubblewrap: conf/deploy/system.sh containers")
    newest, *others = reversed(xrootd_versions.wanted())
    runs = {newest: wanted}
    if not wanted or "cache" in wanted:
        runs |= {
            other: ["status", "collector", "cache"] for other in others
        }  # the steward waits for these two
    for version, names in runs.items():
        # A process each: the XRootD client keeps its connection to an address.
        command = ["unshare", "--net", "--mount", sys.executable, __file__, "--inside", *names]
        environment = os.environ | {"CACHECAST_XROOTD_VERSIONS": version}
        if code := subprocess.run(command, env=environment, check=False).returncode:
            return code
    print("all pods hold what they promise")
    return 0


def inside(wanted: list[str]) -> int:
    """Run the pods of components, on the XRootD version that is wanted."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    subprocess.run(["ip", "address", "add", f"{ADDRESS}/32", "dev", "lo"], check=True)
    (version,) = xrootd_versions.wanted()
    print(f"XRootD {version}:", flush=True)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pods-")))
        folder.chmod(0o755)
        stack.enter_context(xrootd_versions.in_use(version))
        try:
            site = started(folder, stack)
            with contextlib.ExitStack() as running:
                for component, look in LOOKS.items():
                    if component in wanted:
                        running.enter_context(site.kubelet.running(site.pods[component]))
                        look(site)
            if "cycle" in wanted:
                cycled(site)
        except (Broken, ServiceError) as error:
            print(f"BROKEN: {error}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
