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
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support"), str(ROOT / "tests" / "support" / "servers")]

import xrootd_versions  # noqa: E402
from helm_chart import RELEASE  # noqa: E402
from pod_runner import answer  # noqa: E402
from pod_site import ADDRESS, DISK_MIB, MIB, N_FILES, Broken, Site, check, started  # noqa: E402

from features.common.errors import ServiceError  # noqa: E402
from prefetch.xcache.session import RemoteFile  # noqa: E402

CACHE, PLACEMENT, MLFLOW = f"root://{ADDRESS}:1094", "http://127.0.0.1:8400", "http://127.0.0.1:5000"


def confined(site: Site, component: str, name: str | None = None) -> None:
    """A container has no right that its pod does not name."""
    name = name or component
    account = site.pods[component].spec["securityContext"]["runAsUser"]
    output = site.inside(component, name, "id -u; id -g; grep -E 'Cap(Eff|Bnd)|NoNewPrivs' /proc/self/status")
    words = ["CapEff:", "0" * 16, "CapBnd:", "0" * 16, "NoNewPrivs:", "1"]
    check(output.split() == [str(account), "10001", *words], f"{name}: runs as {account}, with no capability")
    output = site.inside(
        component, name, "touch /x /usr/x /etc/x /opt/x /var/x 2>&1; ls /tmp/x; touch /tmp/x && ls /tmp"
    )
    check(output.count("cannot touch") == 5 and "x" in output.splitlines(), f"{name}: a read-only root")


def collected(site: Site) -> None:
    """The collector runs, and has no secret."""
    site.ready("collector")
    confined(site, "collector")
    output = site.inside("collector", None, "env; cat /private/* /secret/* 2>&1; ls /var/lib")
    check("not-shown" not in output, "collector: no secret")
    check("cachecast-steward" not in output.splitlines(), "collector: no folder of stewards")


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
        while "evicted" not in (output := site.kubelet.log_end(words)) and time.monotonic() < deadline:
            time.sleep(1)  # it says so after its look
        check("evicted" in output and "purge" not in output, "steward: it evicted the others")
        check(names[0] in held, "steward: the open file, the oldest, is among them")
        check(opened.read_all() == MIB, "xcache: the open file is read")
    keyed(site)
    output = site.inside("cache", "steward", "touch /xcache/x 2>&1; rm /xcache/store/*.root 2>&1")
    check(output.count("Read-only file system") > 1, "steward: cannot write to the cache's disk")


def keyed(site: Site) -> None:
    """Without the key everybody reads and nobody evicts; the key is the server's and the steward's alone."""
    stat = "stat -c '%a %u' /private/sss.keytab 2>&1"
    account = site.pods["cache"].spec["securityContext"]["runAsUser"]
    for name in ("xcache", "steward"):
        check(site.inside("cache", name, stat).split() == ["400", str(account)], f"{name}: has the key alone")
    for component in ("push", "collector", "cycle"):
        output = site.inside(component, None, f"{stat}; ls /secret /private 2>&1; env | grep SSS")
        check("keytab" not in output.replace("'/private/sss.keytab'", ""), f"{component}: has no key")
    name = site.held()[-1]
    own = f"root://{RELEASE}-cache-xc1:1094"
    for where, key in ((CACHE, ""), (CACHE, "XrdSecSSSKT=/private/sss.keytab"), (own, "XrdSecSSSKT=/none")):
        words = f"{key} xrdfs {where} cat '/xrdpfc_command/remove_file/ {name}' 2>&1"
        output = site.inside("cache", "steward", words)
        refused = "permission denied" in output or "Auth failed" in output
        check(refused and name in site.held(), f"xcache: {where} with {key or 'no key'}: no eviction")
    output = site.inside("push", None, f"xrdfs {CACHE} cat {name} | wc -c; xrdfs {CACHE} rm {name} 2>&1")
    check(
        output.split()[0] == str(MIB) and "denied" in output,
        "xcache: a client without the key reads, no more",
    )
    site.inside("cache", "steward", f"xrdfs {own} cat '/xrdpfc_command/remove_file/ {name}' 2>&1")
    deadline = time.monotonic() + 30
    while name in site.held() and time.monotonic() < deadline:
        time.sleep(0.2)
    check(name not in site.held(), "xcache: from its own pod, with the key: evicted")


def placed(site: Site) -> None:
    """The placement service answers by its own names, and has the caches' tokens."""
    site.ready("placement")
    confined(site, "placement")
    check(
        answer(f"{PLACEMENT}/health", f"{RELEASE}-placement") == 200,
        "placement: answers by its Service's name",
    )
    check(answer(f"{PLACEMENT}/health", "elsewhere.example") == 421, "placement: by no stranger's")
    output = site.inside("placement", None, "stat -c '%a %u' /private/xc1; cat /private/xc1").split()
    check(output[:2] == ["400", "10001"], "placement: a cache's token is its account's alone")
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
    while "xc1" not in site.kubelet.log_end(container) and time.monotonic() < deadline:
        time.sleep(1)
    confined(site, "status")
    check("xc1" in site.kubelet.log_end(container), "status: it shows the cache")


def cycled(site: Site) -> None:
    """Jobs of a moment end well before there is a model, and say so; the collector finished its capture."""
    at_s = (int(time.time()) // 3600 + 1) * 3600 + 60
    output = site.job("cycle", at_s)
    check("no champion yet" in output, "job cycle: says that there is no champion")
    for component in ("push", "place", "outcomes"):
        site.job(component, at_s)


LOOKS = {"status": watched, "collector": collected, "cache": cached, "placement": placed, "mlflow": tracked}


def main() -> int:
    components = [word for word in sys.argv[1:] if not word.startswith("--")]
    if "--inside" in sys.argv:
        return inside(components or [*LOOKS, "cycle"])
    if os.geteuid() or not shutil.which("bwrap"):
        raise SystemExit("needs root, and bubblewrap: conf/deploy/system.sh containers")
    newest, *others = reversed(xrootd_versions.tested())
    runs = {newest: components}
    if not components or "cache" in components:
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


def inside(components: list[str]) -> int:
    """Run the pods of components, on the one XRootD version that is asked for."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    subprocess.run(["ip", "address", "add", f"{ADDRESS}/32", "dev", "lo"], check=True)
    (version,) = xrootd_versions.tested()
    print(f"XRootD {version}:", flush=True)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pods-")))
        folder.chmod(0o755)
        stack.enter_context(xrootd_versions.in_use(version))
        try:
            site = started(folder, stack)
            with contextlib.ExitStack() as running:
                for component, look in LOOKS.items():
                    if component in components:
                        running.enter_context(site.kubelet.running(site.pods[component]))
                        look(site)
            if "cycle" in components:
                cycled(site)
        except (Broken, ServiceError) as error:
            print(f"BROKEN: {error}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
