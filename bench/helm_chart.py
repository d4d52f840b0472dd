"""The Helm chart, rendered by Helm itself."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import yaml

CHART = Path(__file__).resolve().parents[1] / "conf" / "deploy" / "helm"
RELEASE, NAMESPACE = "cc", "grid"
Object = dict[str, Any]


class Refused(Exception):
    """Helm did not render the chart; says why."""


class Pod(NamedTuple):
    """A pod that an object makes: `owner` is its kind and name."""

    owner: str
    labels: dict[str, str]
    spec: Object

    @property
    def component(self) -> str:
        """What it is of ours."""
        return self.labels["app.kubernetes.io/component"]

    @property
    def containers(self) -> list[Object]:
        """Those that start before, and those that run."""
        return [*self.spec.get("initContainers", []), *self.spec["containers"]]


def program() -> Path | None:
    """Helm, as conf/deploy/helm.sh builds it; None: it has not."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return max(cache.glob("cachecast/helm/*/helm"), default=None)


def helm(*words: str) -> str:
    """What Helm prints. Raises Refused."""
    if (at := program()) is None:
        raise SystemExit("there is no Helm: build it with conf/deploy/helm.sh")
    done = subprocess.run([at, *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Refused(done.stderr.strip() + done.stdout.strip())
    return done.stdout


def options(version: str) -> list[str]:
    """Helm's options: the values that the chart is tried with, for a version of Kubernetes."""
    values = [f"--values={path}" for path in sorted((CHART / "ci").glob("*.yaml"))]
    return [f"--namespace={NAMESPACE}", f"--kube-version={version}", *values]


def rendered(chart: Path, version: str, *words: str) -> list[Object]:
    """The objects that `chart` makes. Raises Refused."""
    text = helm("template", RELEASE, str(chart), *options(version), *words)
    return [manifest for manifest in yaml.safe_load_all(text) if manifest]


def of_kind(objects: list[Object], kind: str) -> dict[str, Object]:
    """The objects of a kind by name."""
    return {manifest["metadata"]["name"]: manifest for manifest in objects if manifest["kind"] == kind}


def executor(objects: list[Object]) -> list[Object]:
    """The pod that Spark makes executors from, if there is one."""
    maps = of_kind(objects, "ConfigMap")
    return [
        yaml.safe_load(entry["data"]["executor.yaml"]) for name, entry in maps.items() if "executor" in name
    ]


def pods(objects: list[Object]) -> list[Pod]:
    """All pods, with that of Spark's executors."""
    templates = [("Pod executor", template) for template in executor(objects)]
    for manifest in objects:
        spec = manifest.get("spec", {})
        if template := spec.get("jobTemplate", {}).get("spec", spec).get("template"):
            templates.append((f"{manifest['kind']} {manifest['metadata']['name']}", template))
    return [Pod(owner, template["metadata"]["labels"], template["spec"]) for owner, template in templates]
