"""A real Airflow, all four processes: a run by the REST API, a killed command, alerts, `dags test`.

One moment runs through the chain before there is a champion; verify_outcomes and capacity_report run alone,
and build_features once by spark-submit. Whole days are in bench/airflow_day.py.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from html import unescape
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from airflow_rest import Airflow

from features.results import WORTH
from features.schema import ACCESSES, OUTCOMES, RECEIPTS
from jobs.local.process import Services, seen
from jobs.local.services import airflow, airflow_env, prepare_airflow
from jobs.local.site import LocalSite, opened
from jobs.settings.tree import Settings
from jobs.store.tables import Tables

pytestmark = pytest.mark.service

ROOT = Path(__file__).parents[2]
PUSHED = dt.datetime(2026, 3, 1, 4, tzinfo=dt.UTC)
KEY, PLANNED = "2026-03-03T04:00:00Z", "2026-03-01T04:00:00Z"
PATIENCE_S = 300
RETRIES = 2  # one for the command that is killed, one for what a busy machine may do to a task
XCACHE = 'name = "cache"\nkind = "xcache"\nurl = "root://127.0.0.1:1"\ncapacity = "2GB"\n'
SECRET = "hush-0123456789abcdef"


@pytest.fixture(scope="module")
def told() -> Iterator[tuple[str, list[Any]]]:
    """A webhook's URL, and what it is told."""
    found: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            found.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/{SECRET}", found
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, told: tuple[str, list[Any]]) -> Iterator[LocalSite]:
    """Airflow up, with one cache to which a plan was pushed; all ends with the module."""
    made = opened(tmp_path_factory.mktemp("airflow") / "out", tables=None, xrootd=False)
    settings = {
        "PYTHONPATH": str(ROOT),
        "CACHECAST_AIRFLOW__RETRIES": f"{RETRIES}",
        "CACHECAST_AIRFLOW__RETRY_DELAY": "1s",
        "CACHECAST_AIRFLOW__DEADLINE": "1s",
        "CACHECAST_AIRFLOW__WEBHOOK": told[0],
        "CACHECAST_AIRFLOW__PULL": f'{{ rucio_traces = "{made.out}/traces/" }}',
        "CACHECAST_AIRFLOW__WAIT": f'{{ rucio_traces = "{made.out}/written/{{day}}" }}',
    }
    shutil.copy(ROOT / "tests/golden/pull/rucio_traces/input.jsonl", made.out / "traces" / "traces.jsonl")
    (made.conf / "caches" / "cache.toml").write_text(XCACHE)
    pushed(Tables(str(made.out / "tables")))
    keeper = Services(made.run)
    with pytest.MonkeyPatch.context() as patch:
        for key, value in settings.items():
            patch.setenv(key, value)
        prepare_airflow(made)
        try:
            for service in airflow(made):
                keeper.start(service)
            yield made
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
    found: list[dict[str, Any]] = Tables(str(site.out / "tables")).read_arrow(OUTCOMES).to_pylist()
    return found


def commands_like(words: str) -> list[int]:
    """Processes of Python whose command line holds `words`."""
    found = []
    for pid in seen():
        with contextlib.suppress(OSError):
            line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if words in line and "python" in line.split(" ")[0]:
                found.append(pid)
    return found


def killed(words: str) -> int:
    """Kill the first process whose command line holds `words`, as soon as there is one."""
    deadline = time.monotonic() + PATIENCE_S
    while not (found := commands_like(words)):
        assert time.monotonic() < deadline, f"no process of {words!r}"
        time.sleep(0.02)
    os.kill(found[0], signal.SIGKILL)
    return found[0]


def logged(site: LocalSite, run: str) -> str:
    """The ends of the logs of a run's tasks, by file."""
    found = (path for path in site.out.rglob("*.log") if f"run_id={run}" in str(path))
    return "\n".join(f"{path.relative_to(site.out)}\n{path.read_text()[-9000:]}" for path in sorted(found))


def test_a_command_killed_on_the_way_is_tried_again_and_ends_right(site: LocalSite, api: Airflow) -> None:
    run = api.trigger("verify_outcomes", partition_key=KEY)
    killed("cachecast outcomes --cache cache --as-of")
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


def test_a_run_that_is_late_and_a_task_that_gives_up_are_told_without_a_secret(
    site: LocalSite, api: Airflow, told: tuple[str, list[Any]]
) -> None:
    made = site.out / "made"
    run = api.trigger("verify_outcomes", partition_key=f"$(touch {made})")
    assert api.ended("verify_outcomes", run, within_s=PATIENCE_S) == "failed"
    assert not made.exists()
    deadline = time.monotonic() + PATIENCE_S
    wanted = {("task failed", "caches"), ("deadline missed", None)}
    while not wanted <= {(one["event"], one.get("task")) for one in told[1]}:
        assert time.monotonic() < deadline, told[1]
        time.sleep(0.5)
    (failed,) = [one for one in told[1] if one.get("task") == "caches"]
    assert (failed["dag"], failed["task"], failed["run"], failed["tries"]) == (
        "verify_outcomes",
        "caches",
        run,
        RETRIES + 1,
    )
    assert {one["dag"] for one in told[1] if one["event"] == "deadline missed"} >= {"verify_outcomes"}
    good = api.trigger("verify_outcomes", partition_key=KEY)
    assert api.ended("verify_outcomes", good, within_s=PATIENCE_S) == "success", logged(site, good)
    while not [one for one in told[1] if one["state"] == "good again" and one.get("task") == "caches"]:
        assert time.monotonic() < deadline, told[1]
        time.sleep(0.5)
    logs = [path for path in site.out.rglob("*.log") if path.is_file()]
    assert len(logs) > 5
    assert not [path for path in logs if SECRET in path.read_text(errors="replace")]


def dags_test(site: LocalSite, dag: str, **settings: str) -> str:
    """What `airflow dags test` of a DAG at KEY tells, at work in the site's folder."""
    env = airflow_env(site) | {"PYTHONPATH": str(ROOT)} | settings
    words = [sys.executable, "-m", "airflow", "dags", "test", dag, "-c", json.dumps({"as_of": KEY})]
    done = subprocess.run(
        words, env=os.environ | env, cwd=site.out, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def test_dags_test_runs_the_same_for_a_moment_asked_for(site: LocalSite) -> None:
    Tables(str(site.out / "tables")).replace_rows(OUTCOMES, [], ("2026-03-01", PLANNED, "cache"))
    dags_test(site, "verify_outcomes")
    assert [row["n_hits"] for row in earned(site)] == [2]


def test_a_planner_is_answered_in_a_folder_named_by_the_settings(site: LocalSite) -> None:
    dags_test(site, "capacity_report", CACHECAST_AIRFLOW__REPORTS="pages")
    curve = (site.out / "pages" / "curve-2026-03-03.html").read_text().replace("\u00a0", " ")
    assert "Doubling 2 GB lifts LRU's byte hit ratio from 50.0 % to 50.0 %" in unescape(curve)
    assert "For a byte hit ratio of 50.0 % LRU needs 100 B" in curve
    assert "<svg" in curve
    assert (site.out / "pages" / "report-2026-03-03.html").exists()


def test_a_spark_step_is_submitted_by_a_connection(site: LocalSite) -> None:
    connection = json.dumps({"conn_type": "spark", "host": "local[1]"})
    submit = {"CACHECAST_AIRFLOW__SPARK": "spark_site", "AIRFLOW_CONN_SPARK_SITE": connection}
    assert dags_test(site, "build_features", **submit).count("Spark-Submit cmd") == 1
    table = Settings.load().features.spec.features_table
    (row,) = Tables(str(site.out / "tables")).read_arrow(table, columns=["did", "as_of"]).to_pylist()
    assert (row["did"], row["as_of"]) == ("t:a", KEY)


def test_one_moment_runs_through_the_chain_and_is_skipped_before_the_first_champion(
    site: LocalSite, api: Airflow
) -> None:
    (site.out / "written" / f"{dt.datetime.now(dt.UTC):%Y-%m-%d}").mkdir(parents=True)  # the present cycle's
    api.until_known("pull_accesses", "build_features", "place_and_push", within_s=PATIENCE_S)
    pulled = api.trigger("pull_accesses", partition_key=KEY)
    deadline = time.monotonic() + PATIENCE_S
    while api.tasks("pull_accesses", pulled)["wait_rucio_traces", -1]["state"] != "deferred":
        assert time.monotonic() < deadline, "it does not wait"
        time.sleep(0.5)
    (site.out / "written" / KEY[:10]).mkdir(parents=True)
    assert api.ended("pull_accesses", pulled, within_s=PATIENCE_S) == "success", logged(site, pulled)
    for dag in ("build_features", "place_and_push"):
        run = api.partition(dag, KEY, within_s=PATIENCE_S)
        assert api.ended(dag, run, within_s=PATIENCE_S) == "success", logged(site, run)
    tasks = api.tasks("place_and_push", run)
    assert {task["state"] for (name, _), task in tasks.items() if name != "known_work"} == {"skipped"}
    assert " yet, so its caches run plain LRU" in logged(site, run)
    for dag in ("pull_accesses", "build_features", "place_and_push"):
        api.call("PATCH", f"dags/{dag}", is_paused=True)
