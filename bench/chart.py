"""Render the Helm chart with Helm itself, and check what it makes.

bench/chart.py            exit code 1 if something does not hold

Renders conf/deploy/helm by the values of conf/deploy/helm/ci, checks every object against the JSON schemas of
three versions of Kubernetes, then what schemas do not say: rights, who may evict, probes, resources,
references, who reaches whom, the units' command lines and secrets, and that the settings load. Then it does
the same with charts that it has broken, each of which has to be found.

Needs Helm (conf/deploy/helm.sh) and the environment that `make verify` makes: .venv/bin/python bench/chart.py
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]

from chart_checks import VERSIONS, faults  # noqa: E402
from helm_chart import CHART, Refused, rendered  # noqa: E402


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
    "templates/settings.yaml": (
        Break('    kind = "xcache"', '    kind = "ycache"', "settings: "),
        Break("{{- $_ := set $pulled $parts._0 $parts._1 }}", "", "not what the cycle pulls"),
    ),
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
        for old, new, expected in breaks:
            with tempfile.TemporaryDirectory() as folder:
                chart = Path(shutil.copytree(CHART, Path(folder) / "cachecast"))
                text = (chart / file).read_text()
                (chart / file).write_text(text.replace(old, new, 1))
                messages = faults(chart)
            if old not in text or not any(expected in message for message in messages):
                yield f"not found: {new!r} for {old!r} in {file}; but: {messages[:3]}"
    for value, named in REFUSED:
        try:
            rendered(CHART, VERSIONS[-1], value)
            yield f"{value} is accepted"
        except Refused as error:
            if named not in str(error):
                yield f"{value} is refused without naming it: {error}"


def main() -> int:
    messages = faults(CHART)
    objects = [] if messages else rendered(CHART, VERSIONS[-1])
    messages += undiscovered()
    for message in messages:
        print(message)
    n_broken = sum(map(len, BROKEN.values()))
    print(
        f"{len(objects)} objects by Kubernetes {', '.join(VERSIONS)}; {n_broken} broken charts and "
        f"{len(REFUSED)} values refused; {len(messages)} faults"
    )
    return 1 if messages else 0


if __name__ == "__main__":
    sys.exit(main())
