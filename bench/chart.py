"""Render the Helm chart with Helm itself, and check what it makes.

bench/chart.py            exit code 1 if something does not hold

Renders conf/deploy/helm by the values of conf/deploy/helm/ci, checks every object against the JSON schemas of
three versions of Kubernetes, then what schemas do not say: rights, who may evict, probes, resources,
references, who reaches whom, the units' command lines and secrets, and that the settings load. Then it does
the same with charts that it has broken, each of which has to be found.

Needs Helm (conf/deploy/helm.sh) and the environment that `make verify` makes: .venv/bin/python bench/chart.py
"""

from __future__ import annotations

import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]

import kubernetes_validate  # noqa: E402
from helm_chart import (  # noqa: E402
    CHART,
    RELEASE,
    Object,
    Pod,
    Refused,
    executor,
    helm,
    of_kind,
    options,
    pods,
    rendered,
)

from features.common.errors import CachecastError  # noqa: E402
from jobs.ground.settings.tree import Settings  # noqa: E402

UNITS = ROOT / "conf" / "deploy" / "systemd"
VERSIONS = ("1.27", "1.32", "1.37")
"""The oldest that the chart admits, one between, and the newest whose schemas the package has."""


def by_schemas(objects: list[Object]) -> Iterator[str]:
    """What the schemas refuse; unknown fields too."""
    for version in VERSIONS:
        for one in [*objects, *executor(objects)]:
            try:
                used = kubernetes_validate.validate(one, version, strict=True)
                if used != version:
                    yield f"there are no schemas of {version}, those of {used} were used"
            except kubernetes_validate.ValidationError as error:
                where, name = ".".join(map(str, error.path)), one["metadata"].get("name")
                yield f"{version}: {one['kind']} {name}: {where}: {error.message[:200]}"
            except kubernetes_validate.SchemaNotFoundError as error:
                yield f"{version}: {error.message}"


def by_rights(objects: list[Object]) -> Iterator[str]:
    """Where a pod has more rights than the Pod Security Standard `restricted`, or a token."""
    for pod in pods(objects):
        of_pod, spec = pod.spec["securityContext"], pod.spec
        if not (of_pod["runAsNonRoot"] and of_pod["runAsUser"] > 0 and of_pod["runAsGroup"] == 10001):
            yield f"{pod.owner} runs as root, or in another group"
        if of_pod["seccompProfile"] != {"type": "RuntimeDefault"}:
            yield f"{pod.owner} has no seccomp profile"
        if {"hostNetwork", "hostPID", "hostIPC"} & spec.keys():
            yield f"{pod.owner} is in a namespace of its node"
        if any("hostPath" in volume for volume in spec.get("volumes", ())):
            yield f"{pod.owner} mounts a path of its node"
        if spec["automountServiceAccountToken"] != (spec["serviceAccountName"] == f"{RELEASE}-spark"):
            yield f"{pod.owner} has a token of Kubernetes' API that it does not need, or lacks it"
        if spec.get("shareProcessNamespace", False) != (pod.component == "cache"):
            yield f"{pod.owner}: processes are shared elsewhere than beside a cache"
        for container in pod.containers:
            expected = {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            if container.get("securityContext") != expected:
                yield f"{pod.owner}: container {container['name']} has more rights than it needs"


def by_evictions(objects: list[Object]) -> Iterator[str]:
    """Where a client without the key may evict, or a container has the key that does not need it."""
    maps = of_kind(objects, "ConfigMap")
    for pod in pods(objects):
        keys = [one["name"] for one in pod.spec["volumes"] if "keytab" in str(one.get("secret"))]
        if bool(keys) != (pod.component == "cache"):
            yield f"{pod.owner}: the key of a cache is elsewhere than beside it, or is missing"
        for container in pod.containers:
            mounted = bool({"secret", "private"} & {one["name"] for one in container["volumeMounts"]})
            if pod.component == "cache" and not mounted:
                yield f"{pod.owner}: container {container['name']} has no key"
            logs_in = any(one["name"] == "XrdSecSSSKT" for one in container.get("env", ()))
            if logs_in != (container["name"] == "steward"):
                yield f"{pod.owner}: container {container['name']} logs in by a key, or the steward does not"
        if pod.component == "cache":
            text = maps[pod.owner.split()[1]]["data"]
            yield from (
                f"{pod.owner}: {fault}" for fault in _open_to_all(pod.labels["cachecast/cache"], text)
            )


def _open_to_all(cache: str, files: dict[str, str]) -> Iterator[str]:
    lines = [line.split() for line in files[f"{cache}.cfg"].splitlines()]
    if ["ofs.authorize", "1"] not in lines or ["acc.authdb", "/etc/xrootd/authdb"] not in lines:
        yield "the server has no authorisation"
    protocols = {line[1] for line in lines if line[0] == "sec.protocol"}
    if protocols != {"sss"} or ["sec.protbind", "*", "none"] not in lines:
        yield f"clients without the key can name themselves: {', '.join(sorted(protocols))}"
    rights = [line.split(maxsplit=2) for line in files.get("authdb", "").splitlines()]
    of_all = [words[2] for words in rights if words[1] != "pusher"]
    if of_all != ["/xrdpfc_command -w / rl"]:
        yield f"clients without the key may do {of_all}"


def by_operation(objects: list[Object]) -> Iterator[str]:
    """Containers without resources or probes, and services without a way to be upgraded or disrupted."""
    for pod in pods(objects):
        for container in pod.containers if pod.component != "executor" else ():  # Spark sets their own
            given = container.get("resources", {})
            asked, most = given.get("requests", {}), given.get("limits", {})
            if not {"cpu", "memory"} <= asked.keys() or "memory" not in most:
                yield f"{pod.owner}: container {container['name']} has no resources"
        for container in pod.spec["containers"] if pod.owner.startswith(("Deployment", "Stateful")) else ():
            if "livenessProbe" not in container:
                yield f"{pod.owner}: nobody sees that {container['name']} hangs"
            if container.get("ports") and "readinessProbe" not in container:
                yield f"{pod.owner}: nobody sees when {container['name']} is ready"
    budgets = of_kind(objects, "PodDisruptionBudget").values()
    for component in ("cache", "placement"):
        if not any(component == _component(one["spec"]["selector"]) for one in budgets):
            yield f"no disruption budget for {component}"
    stateful = of_kind(objects, "StatefulSet").values()
    caches = [one["spec"] for one in stateful if _component(one["spec"]["selector"]) == "cache"]
    if any(one["updateStrategy"]["type"] != "OnDelete" for one in caches):
        yield "an upgrade restarts all caches at once"
    if of_kind(objects, "Deployment")[f"{RELEASE}-collector"]["spec"]["strategy"]["type"] != "Recreate":
        yield "two collectors would write at a time"


def by_references(objects: list[Object]) -> Iterator[str]:
    """What is named and not there; secrets that are written down."""
    if secrets := of_kind(objects, "Secret"):
        yield f"secrets are in the chart: {', '.join(secrets)}"
    maps, claims = of_kind(objects, "ConfigMap"), set(of_kind(objects, "PersistentVolumeClaim"))
    own = {
        name: [claim["metadata"]["name"] for claim in one["spec"]["volumeClaimTemplates"]]
        for name, one in of_kind(objects, "StatefulSet").items()
    }
    claims |= {f"{claim}-{name}-0" for name, found in own.items() for claim in found}
    for pod in pods(objects):
        volumes = {one["name"] for one in pod.spec["volumes"]} | {*own.get(pod.owner.split()[1], ())}
        for what in [*_of_volumes(pod, maps, claims), *_of_containers(pod, maps, volumes)]:
            yield f"{pod.owner}: {what}"
        if pod.spec["serviceAccountName"] not in of_kind(objects, "ServiceAccount"):
            yield f"{pod.owner}: no ServiceAccount {pod.spec['serviceAccountName']}"
    for name, service in of_kind(objects, "Service").items():
        selected = [pod for pod in pods(objects) if service["spec"]["selector"].items() <= pod.labels.items()]
        ports = [port["name"] for pod in selected for one in pod.containers for port in one.get("ports", ())]
        if [port["targetPort"] for port in service["spec"]["ports"]] != ports:
            yield f"Service {name} reaches no port"


def _of_volumes(pod: Pod, maps: dict[str, Object], claims: set[str]) -> Iterator[str]:
    for volume in pod.spec["volumes"]:
        if wanted := volume.get("configMap", {}).get("name"):
            if wanted not in maps:
                yield f"no ConfigMap {wanted}"
            elif {item["key"] for item in volume["configMap"].get("items", ())} - maps[wanted]["data"].keys():
                yield f"ConfigMap {wanted} lacks a key"
        claim = volume.get("persistentVolumeClaim", {}).get("claimName")
        if claim and claim not in claims:
            yield f"no claim {claim}"


def _of_containers(pod: Pod, maps: dict[str, Object], volumes: set[str]) -> Iterator[str]:
    for container in pod.containers:
        if missing := {mount["name"] for mount in container["volumeMounts"]} - volumes:
            yield f"no volume {', '.join(missing)}"
        for one in container.get("envFrom", ()):
            if one.get("configMapRef", {}).get("name", f"{RELEASE}-environment") not in maps:
                yield f"no ConfigMap {one['configMapRef']['name']}"


def by_network(objects: list[Object]) -> Iterator[str]:
    """Who reaches whom, where it is not who should."""
    policies = of_kind(objects, "NetworkPolicy")
    default = policies.get(f"{RELEASE}-default", {}).get("spec", {})
    if "ingress" in default or default.get("policyTypes") != ["Ingress"]:
        yield "pods are reached by all where no policy names them"
    if any(
        not (default["podSelector"]["matchLabels"].items() <= pod.labels.items()) for pod in pods(objects)
    ):
        yield "the default policy does not cover a pod"
    for name, policy in policies.items():
        if any(not rule.get("from") for rule in policy["spec"].get("ingress") or ()):
            yield f"NetworkPolicy {name} admits everybody"
    components = {pod.component for pod in pods(objects)}
    expected = {
        "collector": {"cache", "192.0.2.11/32"},
        "caches": {"push", "203.0.113.0/24"},
        "placement": {"cache", "198.51.100.0/24"},
        "database": _with_secret(objects, "journal") | _with_secret(objects, "placement"),
        "mlflow": _with_secret(objects, "mlflow"),
    }
    for name, peers in expected.items():
        spec = policies[f"{RELEASE}-{name}"]["spec"]
        admitted = [one for rule in spec["ingress"] for one in rule.get("from", ())]
        found = {one.get("ipBlock", {}).get("cidr") or _component(one["podSelector"]) for one in admitted}
        if found != peers:
            yield f"NetworkPolicy {name} admits {sorted(found)}, and should {sorted(peers)}"
        if _component(spec["podSelector"]) not in components:
            yield f"NetworkPolicy {name} covers no pod"
        if name in {"collector", "database", "mlflow"} and spec["policyTypes"] != ["Ingress", "Egress"]:
            yield f"{name} may call others"


def by_units(objects: list[Object]) -> Iterator[str]:
    """Command lines and secrets that are not those of the systemd units."""
    maps = {  # unit: container, and what differs in a pod
        "cachecast-collect": ("collector", {}),
        "cachecast-serve": ("placement", {}),
        "cachecast-mlflow": ("mlflow", {"127.0.0.1": "0.0.0.0"}),
        "cachecast-steward@": ("steward", {"%i": "xc1"}),
    }
    found = {one["name"]: one for pod in reversed(pods(objects)) for one in pod.containers}
    for unit, (name, differs) in maps.items():
        text = (UNITS / f"{unit}.service").read_text()
        (line,) = re.findall(r"^ExecStart=/opt/cachecast/bin/(.*)$", text, re.M)
        command = [differs.get(word, word) for word in shlex.split(line)]
        if found[name]["command"][: len(command)] != command:
            yield f"{name} runs {found[name]['command']}, {unit} {command}"
        given = set(re.findall(r"^EnvironmentFile=-/etc/cachecast/secrets/(\S+)$", text, re.M))
        if _secrets(found[name]) != given:
            yield f"{name} gets the secrets {_secrets(found[name])}, {unit} {given}"


def by_settings(objects: list[Object]) -> Iterator[str]:
    """What of the settings cachecast refuses."""
    maps = of_kind(objects, "ConfigMap")
    env = dict(maps[f"{RELEASE}-environment"]["data"])
    for pod in pods(objects):
        for container in pod.containers:
            env |= {one["name"]: one["value"] for one in container.get("env", ()) if "value" in one}
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "caches").mkdir()
        for name, text in maps[f"{RELEASE}-settings"]["data"].items():
            (Path(folder) / ("." if name == "base.toml" else "caches") / name).write_text(text)
        try:
            settings = Settings.load(Path(folder), env=env)
        except CachecastError as error:
            yield f"settings: {error}"
            return
    xc1 = settings.cache("xc1")
    if not (xc1.steward and xc1.touch_every == 12 * 3600 and settings.features.cycle == 4 * 3600):
        yield "the settings are not those of the values"
    if settings.spark.conf["spark.executor.memory"] != "8g" or "cc-placement" not in settings.serve.hosts:
        yield "settings by variables are not those of the values"


def _component(selector: Object) -> str:
    return str(selector["matchLabels"].get("app.kubernetes.io/component"))


def _secrets(container: Object) -> set[str]:
    names = [one.get("secretRef", {}).get("name", "") for one in container.get("envFrom", ())]
    return {name.removeprefix(f"{RELEASE}-") for name in names if name}


def _with_secret(objects: list[Object], secret: str) -> set[str]:
    """Components of the pods that get a secret."""
    return {
        pod.component
        for pod in pods(objects)
        if any(secret in _secrets(container) for container in pod.containers)
    }


CHECKS: tuple[Callable[[list[Object]], Iterator[str]], ...] = (
    by_schemas,
    by_rights,
    by_evictions,
    by_operation,
    by_references,
    by_network,
    by_units,
    by_settings,
)


def faults(chart: Path) -> list[str]:
    """All that is wrong with a chart."""
    found: list[str] = []
    try:
        for version in VERSIONS:
            helm("lint", "--strict", str(chart), *options(version))
            objects = rendered(chart, version)
        for check in CHECKS:
            found += check(objects)
    except (Refused, LookupError, TypeError, ValueError) as error:
        found.append(f"{type(error).__name__}: {str(error)[-300:]}")
    return found


class Break(NamedTuple):
    """A change to a file of the chart, and what has to be found then."""

    old: str
    new: str
    found: str


BROKEN = {
    "templates/collector.yaml": (
        Break("strategy:", "strategie:", "Additional properties"),
        Break("replicas: 1", "replicas: one", "is not of type 'integer'"),
        Break(
            '"cachecast.container" $it',
            '"cachecast.container" (merge (dict "secrets" (list "tables")) $it)',
            "gets the secrets",
        ),
        Break('--port, "9931"', '--port, "9930"', "collector runs"),
    ),
    "templates/cycle.yaml": (
        Break("batch/v1", "batch/v1beta1", "deprecated"),
        Break(
            "{{- $volumes := list $claim",
            '{{- $volumes := list (dict "name" "key" "secret" (dict "secretName" $cache.keytab)) $claim',
            "the key of a cache is elsewhere",
        ),
    ),
    "templates/_pods.tpl": (
        Break("runAsNonRoot: true", "runAsNonRoot: false", "runs as root"),
        Break("readOnlyRootFilesystem: true", "readOnlyRootFilesystem: false", "more rights"),
    ),
    "templates/caches.yaml": (
        Break("shareProcessNamespace: true", "shareProcessNamespace: false", "processes are shared"),
        Break("type: OnDelete", "type: RollingUpdate", "restarts all caches"),
        Break("livenessProbe: {tcpSocket", "x-livenessProbe: {tcpSocket", "that xcache hangs"),
        Break("- {name: server, configMap", "- {name: servers, configMap", "no volume server"),
        Break("    ofs.authorize 1\n", "", "no authorisation"),
        Break(
            "sec.protbind * none", "sec.protocol unix\n    sec.protbind * unix", "name themselves: sss, unix"
        ),
        Break("u * /xrdpfc_command -w / rl", "u * / rl", "may do ['/ rl']"),
        Break("env: [{name: XrdSecSSSKT", "env: [{name: XrdSecSSSKEY", "logs in by a key"),
    ),
    "templates/network.yaml": (
        Break('(list "cache") "others" .Values.collector.from', '(list) "others" (list)', "collector"),
        Break(
            "{{- if or .ours .others }}",
            '{{- $_ := set . "ours" list }}{{- $_ := set . "others" list }}{{- if true }}',
            "admits everybody",
        ),
        Break("policyTypes: [Ingress]\n{{- /* A d", "policyTypes: [Egress]\n{{- /* A d", "reached by all"),
    ),
    "templates/placement.yaml": (Break("targetPort: http", "targetPort: https", "reaches no port"),),
    "templates/settings.yaml": (Break('    kind = "xcache"', '    kind = "ycache"', "settings: "),),
    "templates/accounts.yaml": (Break("kind: Role\n", "kind: Secret\n", "secrets are in the chart"),),
    "values.yaml": (Break("  replicas: 2", "  replicas: 0", "replicas"),),
    "templates/mlflow.yaml": (Break("{{ $hosts }}", "{{ $host }}", "Refused"),),
}

REFUSED = (
    ("--set=image.repository=", "image.repository"),
    ("--set=tables.root=/srv/tables", "tables.root"),
    ("--set=caches=null", "caches"),
    ("--set=cycle.minutes=7", "cycle.minutes"),
    ("--set=cycle.planAfterMinutes=235", "cycle.planAfterMinutes"),
    ("--set=placement.tlsSecret=", "tlsSecret"),
    ("--set=caches.xc1.account=0", "account"),
    ("--set=caches.xc1.acount=7", "acount"),
    ("--set=cycle.pull[0]=a='; reboot'", "pull"),
    ("--set=collector.from[0].cidr=1.2.3.4/32", "from"),
    ("--set-json=caches.xc1.watermarks=[0.95,0.9]", "caches.xc1.watermarks"),
    ("--set=caches.xc1.capacity=1.2.3TB", "capacity"),
    ('--set-json=caches.xc1.site="EDGE\\n    pss.origin other"', "site"),
    ('--set-json=caches.xc1.origin="origin:1094\\n    ofs.authorize 0"', "origin"),
    ('--set-json=caches.xc1.image="xcache\\nx: y"', "image"),
    ('--set-json=metrics.image="exporter # "', "image"),
    ('--set-json=image.tag="1, command: [sh]"', "tag"),
    ('--set-json=mlflow.storageClass="{{ .Release }}"', "storageClass"),
    ("--set=placement.tlsSecret=a b", "tlsSecret"),
    ("--set=caches.xc1.keytab=", "caches.xc1.keytab"),
    ("--set=caches.xc1.keytab=true", "keytab"),
    ("--set=caches.xc1.openEvictions=true", "caches.xc1: openEvictions"),
    ("--set=caches.xc1.account=10002", "caches.xc1.account"),
    ("--set=caches.xc1.capacity=51TiB", "caches.xc1.capacity"),
    ("--set=steward=null", "steward"),
    ("--set=cycle.resources=null", "resources"),
)


def undiscovered() -> Iterator[str]:
    """Broken charts in which nothing is found, and values that are accepted."""
    for file, breaks in BROKEN.items():
        for old, new, found in breaks:
            with tempfile.TemporaryDirectory() as folder:
                chart = Path(shutil.copytree(CHART, Path(folder) / "cachecast"))
                text = (chart / file).read_text()
                (chart / file).write_text(text.replace(old, new, 1))
                told = faults(chart)
            if old not in text or not any(found in one for one in told):
                yield f"not found: {new!r} for {old!r} in {file}; but: {told[:3]}"
    for value, named in REFUSED:
        try:
            rendered(CHART, VERSIONS[-1], value)
            yield f"{value} is accepted"
        except Refused as error:
            if named not in str(error):
                yield f"{value} is refused without naming it: {error}"


def main() -> int:
    told = faults(CHART)
    objects = [] if told else rendered(CHART, VERSIONS[-1])
    told += undiscovered()
    for one in told:
        print(one)
    n_broken = sum(map(len, BROKEN.values()))
    print(
        f"{len(objects)} objects by Kubernetes {', '.join(VERSIONS)}; {n_broken} broken charts and "
        f"{len(REFUSED)} values refused; {len(told)} faults"
    )
    return 1 if told else 0


if __name__ == "__main__":
    sys.exit(main())
