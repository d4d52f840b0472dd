"""Runs and their moments, and the webhook: plain functions, without Airflow."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime as dt
import json
import socketserver
import threading
import time
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from dags import alarms, moments
from features.errors import ConfigError, InputError
from jobs.settings.airflow import scheduling

T = dt.datetime(2026, 3, 1, 4, 59, 59, tzinfo=dt.UTC)


@dataclasses.dataclass(frozen=True)
class Run:
    """What a run tells of itself."""

    partition_key: str | None = None
    run_after: dt.datetime = T
    dag_id: str = "place_and_push"
    run_id: str = "manual__1"


def test_a_run_is_about_what_was_asked_for_else_its_partition_else_the_cycle_begun() -> None:
    key = "2026-02-01T00:00:00Z"
    assert moments.as_of(Run(key), {"as_of": "2026-01-01"}) == "2026-01-01"
    assert moments.as_of(Run(key), {"as_of": ""}) == key
    assert moments.as_of(Run(), {}) == "2026-03-01T04:00:00Z"


def test_a_moment_is_current_until_the_next_cycle_ends() -> None:
    moment = "2026-03-01T04:00:00Z"
    assert moments.if_current(moment, T) == moment
    assert moments.if_current(moment, T + dt.timedelta(hours=1)) == moment
    assert not moments.if_current(moment, T + dt.timedelta(hours=1, seconds=1))
    assert moments.if_current(moment, T - dt.timedelta(days=1)) == moment


def test_moments_before_and_days() -> None:
    assert moments.day("2026-03-01T04:00:00Z") == "2026-03-01"
    assert moments.day("2026-03-01T04:00:00Z", 1) == "2026-02-28"
    assert moments.earlier("2026-03-01T04:00:00Z", 2) == "2026-02-27T04:00:00Z"
    assert moments.days("2026-02-27", "2026-03-01") == ["2026-02-27", "2026-02-28", "2026-03-01"]
    with pytest.raises(InputError, match="not a day"):
        moments.days("today", "2026-03-01")


@pytest.mark.parametrize(
    ("cycle_s", "cron"),
    [(900, "*/15 * * * *"), (3600, "0 * * * *"), (4 * 3600, "0 */4 * * *"), (86400, "0 0 * * *")],
)
def test_every_cycle_has_its_cron(cycle_s: int, cron: str) -> None:
    assert moments.cron(cycle_s) == cron


@pytest.mark.parametrize("cycle_s", [90 * 60, 2 * 86400, 45])
def test_a_cycle_without_a_cron_is_told(cycle_s: int) -> None:
    with pytest.raises(ConfigError, match=r"features\.cycle"):
        moments.cron(cycle_s)


def test_schedules_come_from_the_sites_settings(tmp_path: Any) -> None:
    (tmp_path / "base.toml").write_text('[airflow]\nretries = 7\n[features]\ncycle = "30m"\n')
    told = scheduling({"CACHECAST_CONF": str(tmp_path), "CACHECAST_AIRFLOW__TRAIN": "0 1 * * *"})
    assert (told.cycle_s, told.airflow.retries, told.airflow.train) == (1800, 7, "0 1 * * *")
    queues = '{ condor = { input = "/q.json" } }'
    (asked,) = scheduling({"CACHECAST_AIRFLOW__QUEUES": queues}).airflow.queues.values()
    assert (asked.input, asked.site) == ("/q.json", "")
    for wrong in ('{ "../condor" = { input = "/q.json" } }', "{ condor = { site = 'EDGE' } }"):
        with pytest.raises(ConfigError, match="queues"):
            scheduling({"CACHECAST_AIRFLOW__QUEUES": wrong})
    with pytest.raises(ConfigError, match="webhook must start with"):
        scheduling({"CACHECAST_AIRFLOW__WEBHOOK": "ftp://x"})


class Webhook:
    """A server that keeps what it is told, and answers `status`."""

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.status = 204

        webhook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                webhook.told.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
                self.send_response(webhook.status)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/secret-path"


@pytest.fixture
def webhook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Webhook]:
    made = Webhook()
    thread = threading.Thread(target=made.server.serve_forever, daemon=True)
    thread.start()
    monkeypatch.setenv("CACHECAST_AIRFLOW__WEBHOOK", made.url)
    yield made
    made.server.shutdown()
    made.server.server_close()
    thread.join()


@dataclasses.dataclass(frozen=True)
class Try:
    """What a task tells of itself."""

    task_id: str = "cache.push"
    map_index: int = 1
    try_number: int = 4
    log_url: str = "http://airflow/log"


CONTEXT = {
    "ti": Try(),
    "dag_run": Run("2026-03-01T04:00:00Z"),
    "params": {"password": "hush"},
    "exception": RuntimeError("hush"),
}


def test_a_failure_is_told_without_parameters_and_error_texts(webhook: Webhook) -> None:
    alarms.task_failed(CONTEXT)
    (told,) = webhook.told
    assert told == {
        "event": "task failed",
        "dag": "place_and_push",
        "task": "cache.push",
        "map_index": 1,
        "run": "manual__1",
        "as_of": "2026-03-01T04:00:00Z",
        "tries": 4,
        "log": "http://airflow/log",
        "runbook": "docs/troubleshoot.md#task-failed",
    }


def test_a_missed_deadline_is_told(webhook: Webhook) -> None:
    run = {"dag_id": "build_features", "dag_run_id": "r", "partition_key": None, "conf": {"x": "hush"}}
    asyncio.run(alarms.deadline_missed({"dag_run": run, "deadline": {"id": "1", "deadline_time": T}}))
    assert webhook.told == [
        {
            "event": "deadline missed",
            "dag": "build_features",
            "run": "r",
            "as_of": None,
            "deadline": str(T),
            "runbook": "docs/troubleshoot.md#deadline-missed",
        }
    ]


def test_a_webhook_that_refuses_fails_nothing_and_its_url_is_in_no_log(
    webhook: Webhook, caplog: pytest.LogCaptureFixture
) -> None:
    webhook.status = 500
    alarms.task_failed(CONTEXT)
    assert "cannot report to the webhook: task failed" in caplog.text
    assert "secret-path" not in caplog.text


@pytest.mark.parametrize(
    "answer", [b"junk\r\n\r\n", b"HTTP/1.1 302 \r\nLocation: URL\r\n\r\n", b"HTTP/1.1 200 OK\r\nX: "]
)
def test_a_webhook_that_answers_junk_a_redirect_or_for_ever_fails_nothing_in_bounded_time(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, answer: bytes
) -> None:
    monkeypatch.setattr(alarms, "_TIMEOUT_S", 1)
    asked: list[bytes] = []

    class Answer(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            asked.append(self.rfile.readline())
            self.wfile.write(
                answer.replace(b"URL", f"http://127.0.0.1:{server.server_address[1]}/in".encode())
            )
            while answer.startswith(b"HTTP/1.1 200") and not ended.wait(0.1):
                self.wfile.write(b"x")

    ended = threading.Event()
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("CACHECAST_AIRFLOW__WEBHOOK", f"http://127.0.0.1:{server.server_address[1]}/out")
        began_s = time.monotonic()
        alarms.task_failed(CONTEXT)
        assert time.monotonic() - began_s < 5
        ended.set()
        server.shutdown()
    assert asked == [b"POST /out HTTP/1.1\r\n"]
    assert "cannot report to the webhook: task failed" in caplog.text


def test_without_a_webhook_nobody_is_told(
    webhook: Webhook, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*asked: object, **options: object) -> None:
        pytest.fail(f"asks for {asked}")

    monkeypatch.delenv("CACHECAST_AIRFLOW__WEBHOOK")
    monkeypatch.setattr(urllib.request.OpenerDirector, "open", refuse)
    alarms.task_failed(CONTEXT)
    assert (webhook.told, caplog.records) == ([], [])
