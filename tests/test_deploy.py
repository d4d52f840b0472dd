"""What conf/deploy holds, by promtool and systemd-analyze, and by what we really have."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from command_line import called, options, required

from jobs.ground.settings.tree import Settings
from jobs.loop.ingest import bus
from jobs.operator.operate.alarms import CacheStatus, Status
from jobs.operator.operate.prometheus import of_status
from jobs.operator.operate.remedies import REMEDIES
from prefetch.xcache.receiver import COUNTS

DEPLOY = Path(__file__).parents[1] / "conf" / "deploy"
ROOT = DEPLOY.parents[1]
PLACEMENT = ROOT / "prefetch" / "placement" / "front.py"


def program(name: str) -> str:
    """A program's path; a test without it fails."""
    path = shutil.which(name)
    if path is None:
        pytest.fail(f"there is no {name}: install it with conf/deploy/system.sh prometheus")
    return path


@pytest.mark.parametrize(
    "words", ["check rules alerts.yml", "test rules alerts.test.yml", "check config prometheus.yml"]
)
def test_promtool_accepts_the_rules_and_their_tests(words: str) -> None:
    command = [program("promtool"), *words.split()]
    done = subprocess.run(command, cwd=DEPLOY / "prometheus", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def known_figures() -> set[str]:
    """The names of all figures that we leave or serve."""
    at = "2026-03-01"
    cache = CacheStatus("c", 1, at, 1, 1, 1.0, 1, 1, at, {"pin": 1}, at, {"done": 1}, 0)
    status = Status(at, "r", "m/1", at, False, "m/1", at, 1, (), (cache,), ())
    jobs = {f"cachecast_job_{name}" for name in ("ended_seconds", "duration_seconds", "failed")}
    collect = {f"cachecast_collect_{name}" for name in (*COUNTS, "seen_seconds")}
    collect |= {f"cachecast_collect_bus_{name}" for name in (*bus.COUNTS, "seen_seconds")}
    text = PLACEMENT.read_text()
    served = set(re.findall(r'"(cachecast_placement_\w+)"', text)) | {
        f"cachecast_placement_{name}" for name in re.findall(r'^ +\("(\w+)", "', text, re.M)
    }
    served |= {f"{name}_total" for name in served}
    return {name for name, *_ in of_status(status)} | {"cachecast_alarm"} | jobs | collect | served


def test_rules_and_dashboard_ask_for_figures_that_there_are() -> None:
    dashboard = json.loads((DEPLOY / "grafana" / "cachecast.json").read_text())
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    expressions += re.findall(r"expr: (.*)", (DEPLOY / "prometheus" / "alerts.yml").read_text())
    names = set(re.findall(r"\bcachecast_\w+", " ".join(expressions)))
    assert len(names) > 15
    assert names <= known_figures()
    assert len({panel["title"] for panel in dashboard["panels"]}) > 10


TROUBLE = (ROOT / "docs" / "troubleshoot.md").read_text()
SECTIONS = dict(re.findall(r"^### (\S+)\n(.*?)(?=^### |\Z)", TROUBLE, re.M | re.S))


def test_every_alert_names_a_section_and_every_section_is_an_alarm() -> None:
    from dags import alarms  # noqa: PLC0415  it loads Airflow, which other processes need not

    rules = (DEPLOY / "prometheus" / "alerts.yml").read_text()
    runbooks = re.findall(r"^ +runbook: docs/troubleshoot\.md#(\S+)$", rules, re.M)
    assert len(runbooks) == rules.count("- alert:")
    of_status = re.findall(r'alarm\("([a-z-]+)"', (ROOT / "jobs/operator/operate/alarms.py").read_text())
    of_airflow = {alarms.TASK_FAILED, alarms.DEADLINE_MISSED, alarms.INCOMPLETE}
    of_plan = {"implausible-inflow", "outside-federation"}
    assert {*runbooks, *of_status, *of_plan, "prediction-late", "plan-late", *of_airflow} == SECTIONS.keys()


@pytest.mark.parametrize("alarm", SECTIONS)
def test_a_section_says_what_it_means_where_to_look_and_what_to_do(alarm: str) -> None:
    parts = re.findall(r"^\*\*(\w+)\.\*\*", SECTIONS[alarm], re.M)
    assert parts == [part for part in ("Means", "Look", "Do") if part in parts] and parts[0] == "Means"
    assert len(parts) == 3 or alarm in REMEDIES  # which the table has
    assert TROUBLE.count(f"(#{alarm})") >= 1


def test_the_commands_of_the_sections_are_commands() -> None:
    blocks = "".join(re.findall(r"^```\n(.*?)^```", TROUBLE, re.M | re.S))
    lines = [shlex.split(line, comments=True) for line in blocks.splitlines()]
    quoted = re.findall(r"`(cachecast [^`…]+)`", TROUBLE)
    ours = [words for words in (*lines, *map(shlex.split, quoted)) if words and words[0] == "cachecast"]
    assert len(ours) > 15
    for words in ours:
        name, option_names = called(words)
        assert required(name) <= option_names <= options(name) or not option_names, words


UNITS = sorted((DEPLOY / "systemd").glob("*.*"))


def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    """`systemd-analyze verify` wants the programs: they are `true` here, and looked at below."""
    for unit in (path for path in UNITS if path.suffix != ".sample"):
        text = re.sub(r"/opt/cachecast/bin/\w+", program("true"), unit.read_text())
        (tmp_path / unit.name).write_text(text)
    for template in tmp_path.glob("*@.service"):
        template.rename(tmp_path / template.name.replace("@", "@scheduler"))
    units = sorted(map(str, tmp_path.iterdir()))
    done = subprocess.run(
        [program("systemd-analyze"), "verify", *units], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


HARDENING = {
    *("UMask=0027", "NoNewPrivileges=yes", "CapabilityBoundingSet=", "RestrictSUIDSGID=yes"),
    *("ProtectSystem=strict", "ProtectHome=yes", "PrivateTmp=yes", "PrivateDevices=yes"),
    *("ProtectKernelTunables=yes", "ProtectKernelModules=yes", "ProtectKernelLogs=yes"),
    *("ProtectControlGroups=yes", "ProtectClock=yes", "ProtectHostname=yes", "LockPersonality=yes"),
    *("RestrictNamespaces=yes", "RestrictRealtime=yes", "SystemCallArchitectures=native"),
    "RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX",
}
SERVICES = [path for path in UNITS if path.suffix == ".service"]


@pytest.mark.parametrize("unit", SERVICES, ids=lambda path: path.name)
def test_every_service_runs_with_the_same_few_rights(unit: Path) -> None:
    lines = set(unit.read_text().splitlines())
    assert HARDENING - lines == set()
    account = "cachecast-collect" if unit.name == "cachecast-collect.service" else "cachecast"
    assert f"User={account}" in lines
    # The steward looks which files the cache's server has open, which a namespace of users hides.
    assert ("PrivateUsers=yes" in lines) == ("steward" not in unit.name)


@pytest.mark.parametrize("unit", SERVICES, ids=lambda path: path.name)
def test_systemd_finds_no_unit_exposed(unit: Path, tmp_path: Path) -> None:
    """By `systemd-analyze security`; a service without any of it has 9.6 of 10."""
    shutil.copy(unit, tmp_path / unit.name.replace("@", "@x"))
    words = ["security", "--offline=true", "--threshold=35", str(tmp_path / unit.name.replace("@", "@x"))]
    done = subprocess.run(
        [program("systemd-analyze"), *words], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stdout[-300:] + done.stderr


SECRETS = DEPLOY / "systemd" / "secrets"


def secrets_of(unit: Path) -> set[str]:
    """The files of secrets that a unit reads."""
    return set(re.findall(r"^EnvironmentFile=-/etc/cachecast/secrets/(\S+)$", unit.read_text(), re.M))


def test_a_unit_reads_the_secrets_that_the_page_says_and_no_others() -> None:
    page = (ROOT / "docs" / "secure.md").read_text()
    rows = re.findall(r"^\| `(cachecast-[a-z@]+)` \| (.*?) \|", page, re.M)
    stated = {f"{name}.service": set(re.findall(r"`([a-z-]+)`", files)) for name, files in rows}
    assert stated == {unit.name: secrets_of(unit) for unit in SERVICES}
    assert stated["cachecast-collect.service"] == set()
    assert set().union(*stated.values()) == {path.name for path in SECRETS.iterdir()}
    for unit in SERVICES:
        files = re.findall(r"^EnvironmentFile=(.*)$", unit.read_text(), re.M)
        assert len(files) == 1 + len(secrets_of(unit))


def test_the_shared_environment_holds_no_secret_and_each_secret_is_in_one_file() -> None:
    texts = "\n".join(path.read_text() for path in SECRETS.iterdir())
    names = re.findall(r"^(?:# )?([A-Z0-9_]+)=", texts, re.M)
    assert len(names) == len(set(names)) >= 12
    shared = (DEPLOY / "systemd" / "environment.sample").read_text()
    assert not [name for name in names if name in shared]
    assert not re.search(r"TOKEN|PASSWORD|SECRET|SALT|WEBHOOK|://.*@", shared)


def test_a_steward_of_another_account_takes_no_folder_of_another_service() -> None:
    folders = {unit.name: re.findall(r"^StateDirectory=(.*)$", unit.read_text(), re.M) for unit in SERVICES}
    assert folders["cachecast-steward@.service"] == ["cachecast-steward/%i"]
    # Where no other service has made it, the steward starts without its folder.
    assert "WorkingDirectory=-/var/lib/" in (DEPLOY / "systemd" / "cachecast-steward@.service").read_text()
    others = [folder for name, of_unit in folders.items() if "steward" not in name for folder in of_unit]
    assert set(others) == {"cachecast", "cachecast-captures"}
    shared = (DEPLOY / "systemd" / "environment.sample").read_text()
    (state,) = re.findall(r"^CACHECAST_STEWARD__STATE=(.*)$", shared, re.M)
    settings = Settings.load(env={"CACHECAST_STEWARD__STATE": state})
    assert settings.steward.figures("xc1").parent == Path("/var/lib/cachecast-steward/xc1")


def test_the_units_that_strangers_reach_are_bounded() -> None:
    texts = [(DEPLOY / "systemd" / f"cachecast-{name}.service").read_text() for name in ("serve", "collect")]
    serve, collect = (dict(re.findall(r"^([^=\n]+)=(.*)$", text, re.M)) for text in texts)
    assert int(serve["LimitNOFILE"]) > 2 * Settings.load(env={}).serve.connections
    assert (serve["MemoryMax"], serve["OOMPolicy"]) == ("2G", "continue")
    assert (collect["IPAddressDeny"], collect["IPAddressAllow"]) == ("any", "localhost")
    # A full folder of captures must not be that of the tables and the journal.
    assert collect["StateDirectory"] != serve["StateDirectory"]
    assert f"--out /var/lib/{collect['StateDirectory']}" in collect["ExecStart"]


def test_the_files_of_secrets_are_roots_alone_wherever_their_mode_is_stated() -> None:
    """systemd reads them as root before it becomes the user: nobody else need read them."""
    deploy = (ROOT / "docs/deploy.md").read_text()
    installs = re.findall(r"^install -m (\d+) -o root -g root secrets/", deploy, re.M)
    stated = re.findall(r"/etc/cachecast/secrets`[^|]*mode (\d+)", (ROOT / "docs/secure.md").read_text())
    assert [*installs, *stated] == ["0600"] * 2


def test_units_run_commands_with_options_they_have() -> None:
    lines = [
        shlex.split(line)
        for unit in UNITS
        for line in re.findall(r"^ExecStart=/opt/cachecast/bin/cachecast (.*)$", unit.read_text(), re.M)
    ]
    assert sorted(words[0] for words in lines) == ["collect", "scan", "serve", "status", "steward"]
    for words in lines:
        name, option_names = called(["cachecast", *words])
        assert required(name) <= option_names <= options(name)


def test_the_environments_settings_are_settings() -> None:
    files = [DEPLOY / "systemd" / "environment.sample", *SECRETS.iterdir()]
    text = "".join(path.read_text() for path in files)
    env = dict(re.findall(r"^(?:# )?(CACHECAST_\w+__\w+)=(\S+)$", text, re.M))
    values = {key: "0123456789abcdef" if value == "…" else value for key, value in env.items()}
    values |= {key: "https://x" for key in values if key.endswith("WEBHOOK")}
    assert len(values) == 10
    assert Settings.load(env=values).metrics.folder == values["CACHECAST_METRICS__FOLDER"]
    (server,) = re.findall(r"mlflow server .*--host (\S+) --port (\d+)", "".join(map(Path.read_text, UNITS)))
    assert values["CACHECAST_MLFLOW__URI"] == "http://{}:{}".format(*server)


def test_the_container_copies_what_is_there_and_every_room() -> None:
    text = (DEPLOY / "Containerfile").read_text()
    copied = [word for line in re.findall(r"^COPY (?!--)(.*) \S+$", text, re.M) for word in line.split()]
    assert all((ROOT / name).exists() for name in copied)
    rooms = {"cachecast", "features", "replay", "models", "prefetch", "jobs", "dags"}
    assert set(copied) >= rooms | {"conf", "setup.py"}
    assert (ROOT / re.findall(r"--constraint (\S+)", text)[0]).exists()
    # pip puts it beside Python.
    linter = Path(sys.executable).parent / "hadolint"
    done = subprocess.run([linter, DEPLOY / "Containerfile"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize(
    ("listing", "xc1_ends", "judged", "ends"),
    [
        ("""echo '[{"name": "xc1"}, {"name": "xc2"}]'""", 1, ["xc1", "xc2"], 1),
        ("""echo '[{"name": "xc1"}, {"name": "xc2"}]'""", 99, ["xc1", "xc2"], 0),
        ("exit 1", 0, [], 1),
    ],
    ids=["a cache fails", "a cache is not due", "no list"],
)
def test_verdicts_that_could_not_be_made_fail_the_job_of_the_chart_and_stop_no_others(
    tmp_path: Path, listing: str, xc1_ends: int, judged: list[str], ends: int
) -> None:
    ours = tmp_path / "cachecast"
    case = f"case $* in caches*) {listing} ;; *xc1*) exit {xc1_ends} ;; esac"
    ours.write_text(f'#!/bin/sh\necho "$*" >> {tmp_path}/ran\n{case}\n')
    ours.chmod(0o755)
    files = (DEPLOY / "helm" / "files" / f"{name}.sh" for name in ("moment", "outcomes"))
    script = "".join(file.read_text() for file in files)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "JOB_NAME": "cc-outcomes-29540000", "CYCLE_S": "3600"}
    done = subprocess.run(["sh", "-c", script], env=env, capture_output=True, check=False)
    assert done.returncode == ends
    commands = [f"outcomes --cache {name} --day 2026-02-27" for name in judged]
    assert (tmp_path / "ran").read_text().splitlines() == ["caches --unjudged 2026-02-27 --json", *commands]


def test_jobs_of_the_chart_that_ask_mlflow_have_its_login_and_are_admitted() -> None:
    templates = "".join(path.read_text() for path in (DEPLOY / "helm" / "templates").glob("*.yaml"))
    jobs = re.findall(r'"component" "(\w+)" (?:"needed" \(.*?\) )?"secrets" \(list "mlflow"', templates)
    (admitted,) = re.findall(r'"component" "mlflow" "ours" \(list (.*?)\)', templates)
    assert set(jobs) == {"cycle", "train", "outcomes"} <= set(re.findall(r"\w+", admitted))


def pod(name: str) -> dict[str, Any]:
    specification: dict[str, Any] = yaml.safe_load((DEPLOY / "kubernetes" / name).read_text())
    return specification


def test_the_environment_of_kubernetes_is_of_settings_and_of_the_container() -> None:
    text = (DEPLOY / "kubernetes" / "airflow.env").read_text()
    env = dict(line.split("=", 1) for line in text.splitlines() if not line.startswith("#"))
    pods = Path(env["AIRFLOW__KUBERNETES_EXECUTOR__POD_TEMPLATE_FILE"]).parent
    ours = {key: value for key, value in env.items() if key.startswith("CACHECAST_") and "__" in key}
    assert Settings.load(env=ours).airflow.spark_pod == str(pods / "spark-pod.yaml")
    python = re.findall(r"Debian's Python is (\S+);", (DEPLOY / "Containerfile").read_text())
    assert env["AIRFLOW__CORE__DAGS_FOLDER"] == f"/opt/cachecast/lib/python{python[0]}/site-packages/dags"
    image = env["AIRFLOW__KUBERNETES_EXECUTOR__WORKER_CONTAINER_REPOSITORY"]
    image += ":" + env["AIRFLOW__KUBERNETES_EXECUTOR__WORKER_CONTAINER_TAG"]
    assert pod("pod.yaml")["spec"]["containers"][0]["image"] == image
