"""The DAGs, loaded by a real Airflow: they parse without a network, and run commands that exist."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from command_line import called, options, required

ROOT = Path(__file__).parents[2]
DAGS = {
    *("pull_accesses", "build_features", "train_models", "evaluate_and_promote", "place_and_push"),
    *("verify_outcomes", "capacity_report", "backfill"),
}
LONG = {"train_models", "evaluate_and_promote", "capacity_report", "backfill"}

LOAD = """
import json, os, sys
calls = []
sys.addaudithook(lambda name, _: name in ("socket.connect", "socket.getaddrinfo") and calls.append(name))
from airflow.dag_processing.dagbag import DagBag
def described(task):
    words = getattr(task, "application_args", None)
    command = getattr(task, "bash_command", None) or (words and ["cachecast", *words])
    return {
        "kind": type(task).__name__, "command": command, "after": sorted(task.upstream_task_ids),
        "env": {k: str(v) for k, v in (getattr(task, "env", None) or {}).items()},
        "retries": task.retries, "backoff": task.retry_exponential_backoff, "pool": task.pool,
        "alerts": bool(task.on_failure_callback),
        "rule": task.trigger_rule.value, "at_once": task.max_active_tis_per_dagrun,
        "cwd": getattr(task, "cwd", None), "priority": task.priority_weight,
        "timeout_s": task.execution_timeout.total_seconds(), "pod": task.executor_config,
    }
def load():
    bag = DagBag(sys.argv[1])
    dags = {
        name: {
            "doc": dag.doc_md or "", "description": dag.description,
            "tags": list(dag.tags), "params": dag.params.dump(),
            "deadline_s": [alert.interval.total_seconds() for alert in dag.deadline or []],
            "counts_from": [type(alert.reference).__name__ for alert in dag.deadline or []],
            "tasks": {t.task_id: described(t) for t in dag.tasks},
        }
        for name, dag in bag.dags.items()
    }
    found = {"errors": bag.import_errors, "dags": dags, "calls": calls}
    print("BAG" + json.dumps(found, default=str), flush=True)
for settings in json.load(sys.stdin):  # each as in a process of its own, which Airflow takes seconds to begin
    if (pid := os.fork()) == 0:
        os.environ.update(settings)
        load()
        os._exit(0)
    os.waitpid(pid, 0)
"""


PULL = '{ rucio_traces = "/data/traces/", rucio_server = "in-use" }'
QUEUES = '{ htcondor = { input = "/spool/queue.json", site = "EDGE" }, panda = { input = "https://x/q" } }'


POD = ROOT / "conf/deploy/kubernetes/spark-pod.yaml"
pytestmark = pytest.mark.service
CONNECTIONS = ("", "spark_site")
Bags = dict[str, dict[str, Any]]
WHOLE = {"CACHECAST_AIRFLOW__PULL": PULL, "CACHECAST_AIRFLOW__QUEUES": QUEUES}
SITES: dict[str, dict[str, str]] = {
    # Two sources to pull, two queues, a cycle of four hours, and somebody to tell.
    "whole": WHOLE
    | {"CACHECAST_FEATURES__CYCLE": "4h", "CACHECAST_AIRFLOW__WEBHOOK": "http://127.0.0.1:9/x"},
    "few": {"CACHECAST_AIRFLOW__PULL": '{ rucio_traces = "/data/traces/" }'},
    "wrong": {"CACHECAST_AIRFLOW__PULL": '{ rumours = "x" }'},
    "submitted": WHOLE | {"CACHECAST_AIRFLOW__SPARK": "spark_site"},
    **{
        f"pods {connection}": {
            "CACHECAST_AIRFLOW__PULL": PULL,
            "CACHECAST_AIRFLOW__SPARK_POD": str(POD),
            "CACHECAST_AIRFLOW__SPARK": connection,
        }
        for connection in CONNECTIONS
    },
}


@pytest.fixture(scope="module")
def bags(tmp_path_factory: pytest.TempPathFactory) -> Bags:
    """The DAGs of each of `SITES` as Airflow sees them, whose folders have modules of our names."""
    home = tmp_path_factory.mktemp("airflow")
    for theirs in ("plugins/models.py", "plugins/jobs/__init__.py", "config/models.py", "config/features.py"):
        (home / theirs).parent.mkdir(parents=True, exist_ok=True)
        (home / theirs).write_text("OWNER = 'the site'\n")
    env = os.environ | {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__UNIT_TEST_MODE": "False",
        "PYTHONWARNINGS": "ignore",
    }
    command, sites = [sys.executable, "-c", LOAD, str(ROOT / "dags")], json.dumps(list(SITES.values()))
    answer = subprocess.run(
        command, input=sites, capture_output=True, text=True, env=env, timeout=300, check=False
    )
    loaded = [json.loads(line[3:]) for line in answer.stdout.splitlines() if line.startswith("BAG")]
    assert len(loaded) == len(SITES), f"Airflow could not load the DAGs: {answer.stderr[-2000:]}"
    return dict(zip(SITES, loaded, strict=True))


@pytest.fixture
def bag(bags: Bags) -> dict[str, Any]:
    return bags["whole"]


def steps(bag: dict[str, Any]) -> list[tuple[dict[str, Any], list[str]]]:
    tasks = [task for dag in bag["dags"].values() for task in dag["tasks"].values()]
    lines = [task["command"] for task in tasks]
    split = [shlex.split(line.rpartition(";")[2]) if isinstance(line, str) else line for line in lines]
    return [(task, words) for task, words in zip(tasks, split, strict=True) if words]


def test_every_dag_loads_without_a_network_and_is_its_own_runbook(bag: dict[str, Any]) -> None:
    assert bag["errors"] == {}
    assert bag["calls"] == []
    assert set(bag["dags"]) == DAGS
    for name, dag in bag["dags"].items():
        assert set(dag["tags"]) == {"cachecast", "long" if name in LONG else "cycle"}
        assert dag["doc"].startswith(dag["description"]) and dag["description"].endswith(".")
        assert dag["deadline_s"][0] >= 3600
        for heading in ("Does", "Runs", "Safe to repeat", "When it fails", "Owner"):
            assert f"**{heading}:**" in dag["doc"]


def test_every_step_is_a_command_with_options_it_has(bag: dict[str, Any]) -> None:
    dag_ids = set()
    for task, words in steps(bag):
        name, option_names = called(words)
        assert required(name) <= option_names <= options(name)
        assert task["retries"] >= 1
        assert task["backoff"] > 1
        assert task["alerts"]
        dag_ids.add(name)
    assert dag_ids >= {
        *("pull", "features", "train", "evaluate", "promote", "predict", "plan", "push run", "rucio sync"),
        *("due", "arrivals", "place", "outcomes", "curve", "report", "caches", "queue", "rucio check"),
    }


def test_no_value_from_outside_is_part_of_a_command_which_runs_where_the_worker_does(
    bag: dict[str, Any],
) -> None:
    """Else `journal.db` and `reports` of the settings would be there for one task alone."""
    for task, _ in steps(bag):
        assert "{{" not in task["command"]
        assert task["kind"] != "BashOperator" or task["cwd"] == "."


def test_every_source_is_pulled_and_only_files_by_what_is_new(bag: dict[str, Any]) -> None:
    tasks = bag["dags"]["pull_accesses"]["tasks"]
    assert "--new-only" in tasks["pull_rucio_traces"]["command"]
    assert "--new-only" not in tasks["pull_rucio_server"]["command"]
    assert tasks["pull_rucio_traces"]["env"]["INPUT"] == "/data/traces/"


def test_rucio_is_asked_for_what_was_read_and_features_do_without_its_answer(bag: dict[str, Any]) -> None:
    tasks = bag["dags"]["pull_accesses"]["tasks"]
    assert tasks["pull_rucio_server"]["after"] == ["pull_rucio_traces"]
    assert tasks["pull_rucio_server"]["env"]["INPUT"] == "in-use"
    assert tasks["catalogue"]["after"] == ["pull_rucio_server"]
    assert tasks["catalogue"]["rule"] == "all_done"
    assert tasks["accesses"]["after"] == ["arrivals", "catalogue", "pull_rucio_traces"]
    assert tasks["arrivals"]["after"] == ["pull_rucio_traces"]
    assert tasks["accesses"]["rule"] == "all_success"


def test_a_cache_is_served_on_its_own_within_the_wans_pool(bag: dict[str, Any]) -> None:
    tasks = bag["dags"]["place_and_push"]["tasks"]
    assert tasks["cache.plan"]["after"] == ["caches", "known_work", "predict"]
    assert tasks["predict"]["after"] == tasks["caches"]["after"] == tasks["queue_panda"]["after"] == ["due"]
    assert "--if-current" in tasks["cache.push"]["command"]
    assert set(tasks["cache.push"]["after"]) - {"caches"} == {"cache.plan"}
    assert tasks["cache.push"]["pool"] == "cachecast_wan"
    assert set(tasks["cache.rucio_sync"]["after"]) - {"caches"} == {"cache.push"}
    # A failed push is the last task of its chain, so its run fails.
    assert "cache.push" not in tasks["place"]["after"]
    assert tasks["place"]["rule"] == "all_done_min_one_success"
    assert "--if-current" in tasks["place"]["command"]
    pools = json.loads((ROOT / "conf" / "deploy" / "pools.json").read_text())
    used = {task["pool"] for dag in bag["dags"].values() for task in dag["tasks"].values()}
    assert used <= {"default_pool", *pools}


def test_what_takes_hours_has_its_own_slot_and_yields_to_the_cycle(bag: dict[str, Any]) -> None:
    for name, dag in bag["dags"].items():
        for task in dag["tasks"].values():
            assert (task["pool"] == "cachecast_long") == (name in LONG)
            assert task["priority"] == (1 if name in LONG else 10)
            # One cycle of four hours for one cache, two for all of them, and `long_deadline`.
            one_cache = task["pool"] in ("cachecast_wan", "cachecast_plan")
            assert task["timeout_s"] == 3600 * (12 if name in LONG else 4 if one_cache else 8)
        assert dag["deadline_s"] == [3600 * (12 if name in LONG else 4)]
        assert dag["counts_from"] == ["DagRunQueuedAtDeadline" if name in LONG else "DecisionTime"]


def test_queues_are_asked_before_plans_which_do_without_their_answers(bag: dict[str, Any]) -> None:
    tasks = bag["dags"]["place_and_push"]["tasks"]
    assert tasks["known_work"]["after"] == ["queue_htcondor", "queue_panda"]
    assert tasks["known_work"]["rule"] == "all_done"
    env = tasks["queue_htcondor"]["env"]
    assert (env["NAME"], env["INPUT"], env["SITE"]) == ("htcondor", "/spool/queue.json", "EDGE")
    assert "--site" not in tasks["queue_panda"]["command"]
    # Of a moment that is past a queue knows nothing.
    assert tasks["queue_panda"]["command"].startswith('[ -n "$CURRENT" ] || exit 99;')
    assert "if_current" in env["CURRENT"]


def test_a_day_is_judged_and_an_rse_looked_after_for_caches_that_have_one(bag: dict[str, Any]) -> None:
    tasks = bag["dags"]["verify_outcomes"]["tasks"]
    assert tasks["day.worth"]["after"] == ["unjudged"]
    assert "--unjudged" in tasks["unjudged"]["command"]
    assert set(tasks["day.worth"]["env"]) == {"CACHE", "DAY"}
    assert tasks["rse.rucio_check"]["after"] == ["rses"]
    assert "--with-rse" in tasks["rses"]["command"]


def test_without_queues_and_servers_nobody_is_asked(bags: Bags) -> None:
    site = bags["few"]
    assert site["errors"] == {}
    assert site["dags"]["place_and_push"]["tasks"]["known_work"]["after"] == []
    tasks = site["dags"]["pull_accesses"]["tasks"]
    assert tasks["accesses"]["after"] == ["arrivals", "catalogue", "pull_rucio_traces"]
    assert tasks["catalogue"]["after"] == []


def test_a_backfill_takes_days_one_after_the_other(bag: dict[str, Any]) -> None:
    dag = bag["dags"]["backfill"]
    assert set(dag["params"]) == {"first", "last"}
    assert set(dag["tasks"]["day.predict"]["after"]) - {"days"} == {"day.due"}
    assert {"day.arrivals", "day.features"} <= set(dag["tasks"]["day.due"]["after"])
    assert "--past" in dag["tasks"]["day.due"]["command"]
    assert set(dag["tasks"]["verdict.worth"]["after"]) == {"unjudged"}
    assert dag["tasks"]["unjudged"]["after"] == ["pull_rucio_traces"]
    assert dag["tasks"]["day.features"]["at_once"] == 1
    # Records of long after the first day are no records of the future.
    assert "params.first" not in dag["tasks"]["pull_rucio_traces"]["env"]["DAY"]
    assert "pull_rucio_traces" in dag["tasks"]["day.features"]["after"]


def test_one_setting_submits_the_same_commands_to_a_cluster(bags: Bags) -> None:
    submitted = bags["submitted"]
    assert submitted["errors"] == {}
    kinds = {(words[1], task["kind"]) for task, words in steps(submitted)}
    spark = {"pull", "features", "train", "predict", "evaluate"}
    assert {name for name, kind in kinds if kind == "SparkSubmitOperator"} == spark
    plain = [called(words)[0] for _, words in steps(bags["whole"])]
    assert [called(words)[0] for _, words in steps(submitted)] == plain


@pytest.mark.parametrize("connection", CONNECTIONS)
def test_under_kubernetes_what_may_use_spark_has_a_larger_pod(bags: Bags, connection: str) -> None:
    site = bags[f"pods {connection}"]
    assert site["errors"] == {}
    tasks = {
        called(words)[0] if task["kind"] == "BashOperator" else words[1]: task["pod"]
        for task, words in steps(site)
    }
    spark = {"pull", "features", "train", "predict", "evaluate"}
    assert {name for name, pod in tasks.items() if pod} == spark
    assert tasks["train"] == {"pod_template_file": str(POD)}


def test_a_setting_that_cannot_be_is_told_in_the_ui(bags: Bags) -> None:
    site = bags["wrong"]
    assert site["dags"] == {}
    assert site["errors"] and all("'rumours'" in error for error in site["errors"].values())
