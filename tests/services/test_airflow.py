"""A real Airflow, all four processes: a run by the REST API, a killed command, alerts, `dags test`.

The present decision time runs by the schedule from the pull, which waits for its records, without a champion,
then to the push into a real XCache beside a cache that hangs; verify_outcomes runs alone. `make verify` also
runs capacity_report; spark-submit and a whole day on HDFS are in bench/airflow_day.py.
"""

import datetime as dt
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from html import unescape
from pathlib import Path
from typing import Any

import pytest
import xcache_server
from airflow_rest import Airflow
from commands import awaited, held, killed
from daemons import needed
from planted_region import MLFLOW_WARNINGS
from unproven import promote
from waiting import eventually
from webhook import Webhook

from features.results import WORTH
from features.schema import ACCESSES, OUTCOMES, PLANS, RECEIPTS
from jobs.ground.settings.tree import Settings
from jobs.ground.store.tables import Tables
from jobs.local_site.local.process import Services
from jobs.local_site.local.services import airflow, airflow_env, prepare_airflow
from jobs.local_site.local.site import LocalSite, opened
from jobs.local_site.local.xrootd import Loopback

pytestmark = [pytest.mark.long, pytest.mark.service, *MLFLOW_WARNINGS]

ROOT, PROGRAMS = Path(__file__).parents[2], Path(sys.executable).parent
PUSHED = dt.datetime(2026, 3, 1, 4, tzinfo=dt.UTC)
KEY, PLANNED = "2026-03-03T04:00:00Z", "2026-03-01T04:00:00Z"
PATIENCE_S = 300
RETRIES = 2  # one for the command that is killed, one for what a busy machine may do to a task
XCACHE = """\
name = "cache"
kind = "xcache"
url = "{url}"
capacity = "2GB"
namespace = "{namespace}"
"""
SECRET = "hush-0123456789abcdef"


@pytest.fixture(scope="module")
def webhook() -> Iterator[Webhook]:
    with Webhook(SECRET) as server:
        yield server


@pytest.fixture(scope="module")
def xcache() -> Iterator[Loopback]:
    for running, _ in needed("a real XCache", xcache_server.running()):
        yield running


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, webhook: Webhook, xcache: Loopback) -> Iterator[LocalSite]:
    """Airflow up, with one cache to which a plan was pushed; all ends with the module."""
    started = opened(tmp_path_factory.mktemp("airflow") / "out", tables=None, xrootd=False)
    waited = f"{started.out}/written/{{day}}/{{hour}}"
    settings = {
        "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "3600",  # no DAG changes meanwhile
        "CACHECAST_AIRFLOW__RETRIES": f"{RETRIES}",
        "CACHECAST_AIRFLOW__RETRY_DELAY": "1s",
        "CACHECAST_AIRFLOW__DEADLINE": "1s",
        "CACHECAST_AIRFLOW__WEBHOOK": webhook.url,
        "CACHECAST_AIRFLOW__WAIT": f'{{ rucio_traces = "{waited}", rucio_files = "{waited}" }}',
        "CACHECAST_AIRFLOW__QUEUES": f'{{ site = {{ input = "{started.out}/queue.json" }} }}',
        "CACHECAST_FEATURES__CYCLE": "4h",
        "CACHECAST_FEATURES__HORIZONS": '["1d"]',
        "CACHECAST_PLAN__HORIZON": "1d",
        "CACHECAST_TRAINING__EVERY": "4h",
        "CACHECAST_TRAINING__SPAN": "2d",
        "CACHECAST_TRAINING__TREES": "20",
        "CACHECAST_TRAINING__LEARNERS": '["lightgbm"]',
        "CACHECAST_TRAINING__ORDER": "false",
        "CACHECAST_MLFLOW__URI": f"sqlite:///{started.out}/mlflow/mlflow.db",
        "CACHECAST_MLFLOW__ARTIFACTS": f"{started.out}/mlflow/artifacts",
        "CACHECAST_MLFLOW__SERVE": '["champion"]',
    }
    shutil.copy(ROOT / "tests/golden/pull/rucio_traces/input.jsonl", started.out / "traces" / "traces.jsonl")
    cache = XCACHE.format(url=xcache.cache_url, namespace=xcache.namespace)
    (started.conf / "caches" / "cache.toml").write_text(cache)
    pushed(Tables(str(started.out / "tables")))
    keeper = Services(started.run)
    with pytest.MonkeyPatch.context() as patch:
        for key, value in settings.items():
            patch.setenv(key, value)
        prepare_airflow(started)
        try:
            for service in airflow(started):
                keeper.start(service)
            yield started
        finally:
            keeper.stop()
    assert not keeper.stop()


def pushed(tables: Tables) -> None:
    """The receipt of one file fetched by a plan, and two reads of it from the cache since."""
    receipt = {
        "item_id": "1", "did": "t:a", "action": "prefetch", "state": "done", "attempts": 1, "bytes": 100,
        "seconds": 1.0, "error": None, "confirmed_by": "cinfo", "updated_at": PUSHED,
    }  # fmt: skip
    tables.replace_rows(RECEIPTS, [receipt], ("2026-03-01", PLANNED, "cache"))
    reads = []
    for hour in (1, 2):
        at = PUSHED + dt.timedelta(hours=hour)
        row = dict.fromkeys(ACCESSES.column_names) | {
            "did": "t:a", "scope": "t", "name": "a", "cache": "cache", "accessed_at": at, "known_at": at,
            "size_bytes": 100, "bytes_hit": 50, "bytes_missed": 0, "n_reads": 1, "source": "rucio_traces",
            "event_id": f"{hour}",
        }  # fmt: skip
        reads.append(row)
    tables.replace_rows(ACCESSES, reads, ("2026-03-01",))


@pytest.fixture(scope="module")
def api(site: LocalSite) -> Airflow:
    client = Airflow(f"http://127.0.0.1:{site.ports['airflow']}", site.secret("airflow-password"))
    client.until_known("verify_outcomes", within_s=PATIENCE_S)
    return client


def earned(site: LocalSite) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = Tables(str(site.out / "tables")).read_arrow(OUTCOMES).to_pylist()
    return rows


def logged(site: LocalSite, run: str) -> str:
    """The ends of the logs of a run's tasks, by file."""
    logs = (path for path in site.out.rglob("*.log") if f"run_id={run}" in str(path))
    return "\n".join(f"{path.relative_to(site.out)}\n{path.read_text()[-9000:]}" for path in sorted(logs))


def await_messages(webhook: Webhook, *alerts: tuple[str, str, str | None]) -> None:
    """Wait for the webhook to be told of each of `alerts`: state, event and task."""

    def told() -> set[tuple[str, str, str | None]]:
        return {(sent["state"], sent["event"], sent.get("task")) for sent in webhook.messages}

    assert eventually(lambda: set(alerts) <= told(), PATIENCE_S), webhook.messages


def test_a_task_that_gives_up_is_told(site: LocalSite, api: Airflow, webhook: Webhook) -> None:
    file = site.out / "made"
    run = api.trigger("verify_outcomes", partition_key=f"$(touch {file})")
    assert api.ended("verify_outcomes", run, within_s=PATIENCE_S) == "failed"
    assert not file.exists()
    await_messages(webhook, ("firing", "task failed", "caches"))
    (failed,) = [message for message in webhook.messages if message.get("task") == "caches"]
    assert (failed["dag"], failed["task"], failed["run"], failed["tries"]) == (
        "verify_outcomes",
        "caches",
        run,
        RETRIES + 1,
    )


def test_a_command_killed_on_the_way_is_tried_again_late_and_what_had_failed_is_good_again(
    site: LocalSite, api: Airflow, webhook: Webhook
) -> None:
    run = api.trigger("verify_outcomes", conf={"as_of": KEY})
    killed("cachecast outcomes --cache cache --as-of", within_s=PATIENCE_S)
    assert api.ended("verify_outcomes", run, within_s=PATIENCE_S) == "success", logged(site, run)
    tasks = api.tasks("verify_outcomes", run)
    assert tasks["cache.outcomes", 0]["try_number"] >= 2
    assert tasks["cache.outcomes", 0]["rendered_map_index"] == "cache"
    (row,) = earned(site)
    assert (row["as_of"], row["cache"], row["n_hits"]) == (PLANNED, "cache", 2)
    assert (row["bytes_saved"], row["bytes_spent"], row["bytes_wasted"]) == (100, 100, 0)
    assert tasks["day.worth", 0]["state"] == "success"
    assert tasks["rse.rucio_check", -1]["state"] == "skipped"
    (verdict,) = Tables(str(site.out / "tables")).read_arrow(WORTH).to_pylist()
    assert (verdict["day"], verdict["cache"], verdict["hit_bytes"]) == ("2026-03-01", "cache", 100)
    assert "its records reach back" in verdict["withheld"]
    # Of this run at the latest: the one before is not told to be late if its failure was known first.
    await_messages(webhook, ("good again", "recovered", "caches"), ("firing", "deadline missed", None))
    assert {message["dag"] for message in webhook.messages if message["event"] == "deadline missed"} >= {
        "verify_outcomes"
    }
    logs = [path for path in site.out.rglob("*.log") if path.is_file()]
    assert len(logs) > 5
    assert not [path for path in logs if SECRET in path.read_text(errors="replace")]


def command(site: LocalSite, program: str, *words: str, **settings: str) -> None:
    """Run a program of the environment at work in the site's folder."""
    env = os.environ | airflow_env(site) | settings
    line = [str(PROGRAMS / program), *words]
    done = subprocess.run(line, env=env, cwd=site.out, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


@pytest.mark.verify
def test_a_planner_is_answered_in_a_folder_named_by_the_settings(site: LocalSite) -> None:
    words = ["dags", "test", "capacity_report", "-c", json.dumps({"as_of": KEY})]
    command(site, "airflow", *words, CACHECAST_AIRFLOW__REPORTS="pages")
    curve = (site.out / "pages" / "curve-2026-03-03.html").read_text().replace("\u00a0", " ")
    assert "Doubling 2 GB lifts LRU's byte hit ratio from 50.0 % to 50.0 %" in unescape(curve)
    assert "For a byte hit ratio of 50.0 % LRU needs 100 B" in curve
    assert "<svg" in curve
    assert (site.out / "pages" / "report-2026-03-03.html").exists()


def first_run(api: Airflow, dag: str) -> str:
    """The run that the schedule has started."""
    runs = eventually(lambda: api.runs(dag), PATIENCE_S, 0.5)
    assert runs, f"no run of {dag}"
    run: str = runs[0]["dag_run_id"]
    return run


def until(api: Airflow, dag: str, run: str, task: str, state: str) -> None:
    def state_now() -> str:
        return str(api.tasks(dag, run)[task, -1]["state"])

    assert eventually(lambda: state_now() == state, PATIENCE_S, 0.5), f"{task} is {state_now()}, not {state}"


def deliver(site: LocalSite, xcache: Loopback, key: str) -> None:
    """The catalogue and the traces of three days arrive, and jobs queue."""
    at = dt.datetime.fromisoformat(key)
    first, raw = at - dt.timedelta(days=3), site.out / "raw"
    days = ["--days", "4", "--accesses", "1500", "--start", f"{first:%Y-%m-%d}"]
    command(site, "cachecast", "workload", "--scenario", "demo", *days, "--raw", "--out", str(raw))
    (raw / "files.jsonl").rename(site.out / "files" / "files.jsonl")
    queued = []
    for path in (raw / "traces").iterdir():
        traces = [json.loads(line) for line in path.read_text().splitlines()]
        known = [trace for trace in traces if trace["traceTimeentryUnix"] < at.timestamp()]
        (site.out / "traces" / path.name).write_text("\n".join(json.dumps(trace) for trace in known))
        queued += [trace["filename"] for trace in known[:2]]
    for line in (site.out / "files" / "files.jsonl").read_text().splitlines():
        file = json.loads(line)
        os.truncate(xcache.add_file(file["name"], b""), file["bytes"])
    jobs = [{"job_id": f"{n}", "file": name} for n, name in enumerate(queued)]
    (site.out / "queue.json").write_text(json.dumps(jobs))
    ended = at - dt.timedelta(seconds=1)
    (site.out / "written" / f"{ended:%Y-%m-%d}" / f"{ended:%H}").mkdir(parents=True)


def test_the_schedules_moment_runs_through_the_chain_which_pushes_nothing_without_a_model(
    site: LocalSite, api: Airflow, xcache: Loopback
) -> None:
    """The short form of bench/airflow_day.py; a model is trained while the run without one is skipped."""
    api.call("PATCH", "dags/verify_outcomes", is_paused=True)  # accesses would start it here
    api.until_known("place_and_push", "build_features", "pull_accesses", within_s=PATIENCE_S)
    pulled = first_run(api, "pull_accesses")
    until(api, "pull_accesses", pulled, "wait_rucio_traces", "deferred")
    key = api.call("GET", f"dags/pull_accesses/dagRuns/{pulled}")["partition_key"]
    deliver(site, xcache, key)
    assert api.ended("pull_accesses", pulled, within_s=PATIENCE_S) == "success", logged(site, pulled)
    api.call("PATCH", "dags/pull_accesses", is_paused=True)
    built = api.partition("build_features", key, within_s=PATIENCE_S)
    assert api.ended("build_features", built, within_s=PATIENCE_S) == "success", logged(site, built)
    api.call("PATCH", "dags/build_features", is_paused=True)
    with ThreadPoolExecutor() as trainings:
        training = trainings.submit(command, site, "cachecast", "cycle", "--as-of", key, "--train")
        run = api.partition("place_and_push", key, within_s=PATIENCE_S)
        assert api.ended("place_and_push", run, within_s=PATIENCE_S) == "success", logged(site, run)
    training.result()
    tasks = api.tasks("place_and_push", run)
    assert {task["state"] for (name, _), task in tasks.items() if name != "known_work"} == {"skipped"}
    assert " yet, so its caches run plain LRU" in logged(site, run)


def test_a_model_that_serves_is_pushed_and_a_cache_that_hangs_holds_up_no_other_now_and_next(
    site: LocalSite, api: Airflow
) -> None:
    """One never answers, and is not planned; the push of one stands still. After the test before."""
    promote(Settings.load(site.conf))
    key = api.runs("place_and_push")[-1]["partition_key"]
    for folder in ("slow", "origin", "empty"):
        (site.out / folder).mkdir(exist_ok=True)
    slow = f'name = "slow"\nkind = "directory"\nurl = "{site.out}/slow"\norigin = "{site.out}/origin"\n'
    (site.conf / "caches" / "slow.toml").write_text(f'{slow}capacity = "2GB"\n')
    with socket.create_server(("127.0.0.1", 0)) as mute:  # the kernel accepts for it
        cache = XCACHE.format(url=f"root://127.0.0.1:{mute.getsockname()[1]}", namespace=site.out / "empty")
        (site.conf / "caches" / "mute.toml").write_text(cache.replace('"cache"', '"mute"'))
        runs = [api.trigger("place_and_push", partition_key=key)]
        with held(awaited("cachecast push run --cache slow", within_s=PATIENCE_S)):
            hangs = {"cache": "success", "slow": "running"}
            pushed_by_cache(api, runs[0], hangs)
            until(api, "place_and_push", runs[0], "place", "success")
            tables = Tables(str(site.out / "tables"))
            receipts = tables.read_arrow(RECEIPTS, as_of=key, owner="cache").to_pylist()
            plan = tables.read_arrow(PLANS, as_of=key, owner="cache").to_pylist()
            assert {(row["state"], row["confirmed_by"]) for row in receipts} == {("done", "cinfo")}
            assert len(plan) == len(receipts)
            queued = [row["did"].partition(":")[2] for row in plan if row["reason"].startswith("queued")]
            assert queued, logged(site, runs[0])
            assert set(queued) <= {job["file"] for job in json.loads((site.out / "queue.json").read_text())}
            runs.append(api.trigger("place_and_push", partition_key=key))
            pushed_by_cache(api, runs[1], {"cache": "success"})
            until(api, "place_and_push", runs[1], "place", "success")
            pushed_by_cache(api, runs[0], hangs)
        assert api.ended("place_and_push", runs[0], within_s=PATIENCE_S) == "failed"
    of_run = api.tasks("place_and_push", runs[0]).values()
    assert {task["rendered_map_index"] for task in of_run if task["state"] == "failed"} == {"mute"}
    api.call("PATCH", "dags/place_and_push", is_paused=True)


def pushed_by_cache(api: Airflow, run: str, expected: dict[str, str]) -> None:
    """Wait until the pushes of a run are as `expected`, by cache; each has its name once it began."""

    def states() -> dict[str, str]:
        tasks = [task for (name, _), task in api.tasks("place_and_push", run).items() if name == "cache.push"]
        return {task["rendered_map_index"]: task["state"] for task in tasks}

    is_so = eventually(lambda: states().items() >= expected.items(), PATIENCE_S, 0.5)
    assert is_so, f"pushes of {run}: {states()}, not {expected}"
