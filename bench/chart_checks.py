"""What must hold of the objects that the Helm chart makes: by schemas, and by what schemas do not say."""

from __future__ import annotations

import re
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]

import kubernetes_validate  # noqa: E402
from helm_chart import (  # noqa: E402
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
        for manifest in [*objects, *executor(objects)]:
            try:
                used = kubernetes_validate.validate(manifest, version, strict=True)
                if used != version:
                    yield f"there are no schemas of {version}, those of {used} were used"
            except kubernetes_validate.ValidationError as error:
                where, name = ".".join(map(str, error.path)), manifest["metadata"].get("name")
                yield f"{version}: {manifest['kind']} {name}: {where}: {error.message[:200]}"
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
        keys = [volume["name"] for volume in pod.spec["volumes"] if "keytab" in str(volume.get("secret"))]
        if bool(keys) != (pod.component == "cache"):
            yield f"{pod.owner}: the key of a cache is elsewhere than beside it, or is missing"
        for container in pod.containers:
            mounted = bool({"secret", "private"} & {mount["name"] for mount in container["volumeMounts"]})
            if pod.component == "cache" and not mounted:
                yield f"{pod.owner}: container {container['name']} has no key"
            logs_in = any(variable["name"] == "XrdSecSSSKT" for variable in container.get("env", ()))
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
            resources = container.get("resources", {})
            requests, most = resources.get("requests", {}), resources.get("limits", {})
            if not {"cpu", "memory"} <= requests.keys() or "memory" not in most:
                yield f"{pod.owner}: container {container['name']} has no resources"
        for container in pod.spec["containers"] if pod.owner.startswith(("Deployment", "Stateful")) else ():
            if "livenessProbe" not in container:
                yield f"{pod.owner}: nobody sees that {container['name']} hangs"
            if container.get("ports") and "readinessProbe" not in container:
                yield f"{pod.owner}: nobody sees when {container['name']} is ready"
    budgets = of_kind(objects, "PodDisruptionBudget").values()
    for component in ("cache", "placement"):
        if not any(component == _component(budget["spec"]["selector"]) for budget in budgets):
            yield f"no disruption budget for {component}"
    stateful = of_kind(objects, "StatefulSet").values()
    caches = [each["spec"] for each in stateful if _component(each["spec"]["selector"]) == "cache"]
    if any(cache["updateStrategy"]["type"] != "OnDelete" for cache in caches):
        yield "an upgrade restarts all caches at once"
    if of_kind(objects, "Deployment")[f"{RELEASE}-collector"]["spec"]["strategy"]["type"] != "Recreate":
        yield "two collectors would write at a time"


def by_references(objects: list[Object]) -> Iterator[str]:
    """What is named and not there; secrets that are written down."""
    if secrets := of_kind(objects, "Secret"):
        yield f"secrets are in the chart: {', '.join(secrets)}"
    maps, claims = of_kind(objects, "ConfigMap"), set(of_kind(objects, "PersistentVolumeClaim"))
    own = {
        name: [claim["metadata"]["name"] for claim in stateful_set["spec"]["volumeClaimTemplates"]]
        for name, stateful_set in of_kind(objects, "StatefulSet").items()
    }
    claims |= {f"{claim}-{name}-0" for name, templates in own.items() for claim in templates}
    for pod in pods(objects):
        volumes = {volume["name"] for volume in pod.spec["volumes"]} | {*own.get(pod.owner.split()[1], ())}
        for what in [*_of_volumes(pod, maps, claims), *_of_containers(pod, maps, volumes)]:
            yield f"{pod.owner}: {what}"
        if pod.spec["serviceAccountName"] not in of_kind(objects, "ServiceAccount"):
            yield f"{pod.owner}: no ServiceAccount {pod.spec['serviceAccountName']}"
    for name, service in of_kind(objects, "Service").items():
        selected = [pod for pod in pods(objects) if service["spec"]["selector"].items() <= pod.labels.items()]
        ports = [
            port["name"] for pod in selected for each in pod.containers for port in each.get("ports", ())
        ]
        if [port["targetPort"] for port in service["spec"]["ports"]] != ports:
            yield f"Service {name} reaches no port"


def _of_volumes(pod: Pod, maps: dict[str, Object], claims: set[str]) -> Iterator[str]:
    for volume in pod.spec["volumes"]:
        if name := volume.get("configMap", {}).get("name"):
            if name not in maps:
                yield f"no ConfigMap {name}"
            elif {item["key"] for item in volume["configMap"].get("items", ())} - maps[name]["data"].keys():
                yield f"ConfigMap {name} lacks a key"
        claim = volume.get("persistentVolumeClaim", {}).get("claimName")
        if claim and claim not in claims:
            yield f"no claim {claim}"


def _of_containers(pod: Pod, maps: dict[str, Object], volumes: set[str]) -> Iterator[str]:
    for container in pod.containers:
        if missing := {mount["name"] for mount in container["volumeMounts"]} - volumes:
            yield f"no volume {', '.join(missing)}"
        for source in container.get("envFrom", ()):
            if source.get("configMapRef", {}).get("name", f"{RELEASE}-environment") not in maps:
                yield f"no ConfigMap {source['configMapRef']['name']}"


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
        admitted = [peer for rule in spec["ingress"] for peer in rule.get("from", ())]
        names = {peer.get("ipBlock", {}).get("cidr") or _component(peer["podSelector"]) for peer in admitted}
        if names != peers:
            yield f"NetworkPolicy {name} admits {sorted(names)}, and should {sorted(peers)}"
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
    containers = {each["name"]: each for pod in reversed(pods(objects)) for each in pod.containers}
    for unit, (name, differs) in maps.items():
        text = (UNITS / f"{unit}.service").read_text()
        (line,) = re.findall(r"^ExecStart=/opt/cachecast/bin/(.*)$", text, re.M)
        command = [differs.get(word, word) for word in shlex.split(line)]
        if containers[name]["command"][: len(command)] != command:
            yield f"{name} runs {containers[name]['command']}, {unit} {command}"
        secrets = set(re.findall(r"^EnvironmentFile=-/etc/cachecast/secrets/(\S+)$", text, re.M))
        if _secrets(containers[name]) != secrets:
            yield f"{name} gets the secrets {_secrets(containers[name])}, {unit} {secrets}"


def by_settings(objects: list[Object]) -> Iterator[str]:
    """What of the settings cachecast refuses."""
    maps = of_kind(objects, "ConfigMap")
    env = dict(maps[f"{RELEASE}-environment"]["data"])
    for pod in pods(objects):
        for container in pod.containers:
            env |= {var["name"]: var["value"] for var in container.get("env", ()) if "value" in var}
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
    if settings.airflow.pull.keys() != {"xcache_gstream", "rucio_files", "rucio_server"}:
        yield f"what is expected, {', '.join(settings.airflow.pull)}, is not what the cycle pulls"
    if settings.spark.conf["spark.executor.memory"] != "8g" or "cc-placement" not in settings.serve.hosts:
        yield "settings by variables are not those of the values"


def _component(selector: Object) -> str:
    return str(selector["matchLabels"].get("app.kubernetes.io/component"))


def _secrets(container: Object) -> set[str]:
    names = [source.get("secretRef", {}).get("name", "") for source in container.get("envFrom", ())]
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
    lines: list[str] = []
    try:
        for version in VERSIONS:
            helm("lint", "--strict", str(chart), *options(version))
            objects = rendered(chart, version)
        for check in CHECKS:
            lines += check(objects)
    except (Refused, LookupError, TypeError, ValueError) as error:
        lines.append(f"{type(error).__name__}: {str(error)[-300:]}")
    return lines
