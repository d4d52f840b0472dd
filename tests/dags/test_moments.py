"""Runs and their moments, and the webhook: plain functions, without Airflow."""

import asyncio
import dataclasses
import datetime as dt
import socketserver
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import TaskDeferred
from webhook import Webhook

from dags import alarms, moments
from features.common.errors import ConfigError, InputError
from jobs.ground.settings.sections import scheduling

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
    with pytest.raises(InputError, match="the last day 2026-03-01 is before the first"):
        moments.days("2026-03-02", "2026-03-01")


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
    site = scheduling({"CACHECAST_CONF": str(tmp_path), "CACHECAST_AIRFLOW__TRAIN": "0 1 * * *"})
    assert (site.cycle_s, site.airflow.retries, site.airflow.train) == (1800, 7, "0 1 * * *")
    queues = '{ condor = { input = "/q.json" } }'
    (site_queue,) = scheduling({"CACHECAST_AIRFLOW__QUEUES": queues}).airflow.queues.values()
    assert (site_queue.input, site_queue.site) == ("/q.json", "")
    for wrong in ('{ "../condor" = { input = "/q.json" } }', "{ condor = { site = 'EDGE' } }"):
        with pytest.raises(ConfigError, match="queues"):
            scheduling({"CACHECAST_AIRFLOW__QUEUES": wrong})
    with pytest.raises(ConfigError, match=r"airflow\.webhook: must start with"):
        scheduling({"CACHECAST_AIRFLOW__WEBHOOK": "ftp://x"})


@pytest.mark.parametrize(
    ("key", "queued", "start"),
    [
        ("2026-03-01T04:00:00Z", "04:05:00", "04:00:00"),
        ("2026-03-01T04:00:00Z", "04:59:59", "04:00:00"),
        ("2026-03-01T04:00:00Z", "05:00:00", "05:00:00"),
        ("2026-03-01T04:00:00Z", "09:00:00", "09:00:00"),
        ("2026-03-01T04:00:00Z", "03:59:59", "03:59:59"),
        ("2090-01-01T00:00:00Z", "04:05:00", "04:05:00"),
        (None, "04:05:00", "04:05:00"),
        ("$(touch x)", "04:05:00", "04:05:00"),
        ("9999-03-01", "04:05:00", "04:05:00"),
    ],
)
def test_a_deadline_counts_from_the_decision_time_unless_that_is_long_ago(
    key: str | None, queued: str, start: str
) -> None:
    queued_at = dt.datetime.fromisoformat(f"2026-03-01T{queued}Z")
    counts_from = moments.start(key, queued_at, within_s=3600)
    assert counts_from == dt.datetime.fromisoformat(f"2026-03-01T{start}Z")


@pytest.mark.parametrize(
    ("at", "day", "hour"),
    [
        ("2026-03-01T04:00:00Z", "2026-03-01", "03"),
        ("2026-03-01T04:45:00Z", "2026-03-01", "03"),
        ("2026-03-01", "2026-02-28", "23"),
    ],
)
def test_a_wait_is_for_the_newest_hour_that_has_ended(at: str, day: str, hour: str) -> None:
    ended = moments.ended(at)
    assert (moments.day(ended), moments.hour(ended)) == (day, hour)


@pytest.fixture
def webhook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Webhook]:
    with Webhook() as server:
        monkeypatch.setenv("CACHECAST_AIRFLOW__WEBHOOK", server.url)
        yield server


@dataclasses.dataclass(frozen=True)
class Try:
    """What a task tells of itself."""

    task_id: str = "cache.push"
    map_index: int = 1
    try_number: int = 4
    log_url: str = "http://airflow/log"
    rendered_map_index: str = "xc1"


class Variables(dict[str, str]):
    """Stands in for Airflow's variables."""

    def get(self, key: str, default: Any = None) -> Any:
        return super().get(key, default)

    def set(self, key: str, value: str) -> None:
        self[key] = value

    def delete(self, key: str) -> None:
        del self[key]

    def keys(self, prefix: str = "") -> list[str]:  # type: ignore[override]
        return [key for key in self if key.startswith(prefix)]


@pytest.fixture(autouse=True)
def variables(monkeypatch: pytest.MonkeyPatch) -> Variables:
    held_variables = Variables()
    monkeypatch.setattr(alarms, "Variable", held_variables)
    return held_variables


CONTEXT = {
    "ti": Try(),
    "dag_run": Run("2026-03-01T04:00:00Z"),
    "params": {"password": "hush"},
    "exception": RuntimeError("hush"),
}


def test_a_failure_is_told_without_parameters_and_error_texts(webhook: Webhook) -> None:
    alarms.task_failed(CONTEXT)
    (message,) = webhook.messages
    assert message.pop("text").splitlines() == [
        "cachecast warning: place_and_push, cache.push, xc1: task failed",
        "decision time: 2026-03-01T04:00:00Z",
        "log: http://airflow/log",
        "runbook: docs/troubleshoot.md#task-failed",
    ]
    assert message == {
        **{"state": "firing", "event": "task failed", "severity": "warning", "about": "xc1"},
        **{"dag": "place_and_push", "task": "cache.push", "map_index": 1, "run": "manual__1"},
        **{"as_of": "2026-03-01T04:00:00Z", "tries": 4, "log": "http://airflow/log"},
        "runbook": "docs/troubleshoot.md#task-failed",
    }


def test_a_missed_deadline_is_told(webhook: Webhook) -> None:
    run = {"dag_id": "build_features", "dag_run_id": "r", "partition_key": None, "conf": {"x": "hush"}}
    asyncio.run(alarms.deadline_missed({"dag_run": run, "deadline": {"id": "1", "deadline_time": T}}))
    (message,) = webhook.messages
    assert message.pop("text").startswith("cachecast warning: build_features: deadline missed")
    assert message == {
        **{"state": "firing", "event": "deadline missed", "severity": "warning"},
        **{"dag": "build_features", "run": "r", "as_of": None, "deadline": str(T)},
        "runbook": "docs/troubleshoot.md#deadline-missed",
    }


def missed(key: str) -> dict[str, Any]:
    """What Airflow gives when a run of `place_and_push` misses its deadline."""
    run = {"dag_id": "place_and_push", "dag_run_id": "r", "partition_key": key}
    return {"dag_run": run, "deadline": {"id": "1", "deadline_time": T}}


def test_a_cause_is_told_once_and_when_it_is_good_again(webhook: Webhook, variables: Variables) -> None:
    later = CONTEXT | {"dag_run": Run("2026-03-01T05:00:00Z")}
    other = CONTEXT | {"ti": Try(rendered_map_index="xc2")}
    late = missed("2026-03-01T05:00:00Z")
    alarms.task_succeeded(CONTEXT)
    alarms.task_failed(CONTEXT)
    alarms.task_failed(later)
    alarms.task_failed(other)
    asyncio.run(alarms.deadline_missed(late))
    alarms.task_succeeded(later)
    alarms.task_succeeded(later)
    states = [(message["state"], message["about"]) for message in webhook.messages]
    assert states == [("firing", "xc1"), ("firing", "xc2"), ("good again", "xc1")]
    assert webhook.messages[2]["text"] == (
        "cachecast info: place_and_push, cache.push, xc1 is good again at 2026-03-01T05:00:00Z; "
        "it had failed since 2026-03-01T04:00:00Z"
    )
    alarms.task_succeeded(other)
    asyncio.run(alarms.deadline_missed(late))
    alarms.run_succeeded({"dag_run": Run()})
    assert [message["state"] for message in webhook.messages[3:]] == ["good again", "firing", "good again"]
    assert not variables


def arrived(why: str) -> None:
    """Two sources have arrived, one of them short for this reason."""

    class Listed(Try):
        def xcom_pull(self, task_ids: str) -> list[dict[str, str]]:
            return [{"source": "rucio_traces", "why": why}, {"source": "xcache_gstream", "why": ""}]

    alarms.arrived(CONTEXT | {"ti": Listed("arrivals", -1, rendered_map_index="")})


def test_a_missed_deadline_is_hidden_by_no_older_failure_and_no_source_that_fell_short(
    webhook: Webhook, variables: Variables
) -> None:
    arrived("3 reads in 1h, where 40 are usual")
    gone = Try(rendered_map_index="a cache of yesterday")
    alarms.task_failed(CONTEXT | {"ti": gone, "dag_run": Run("2026-02-28T04:00:00Z")})
    late = missed("2026-03-01T04:00:00Z")
    asyncio.run(alarms.deadline_missed(late))
    assert [message["event"] for message in webhook.messages][1:] == ["task failed", "deadline missed"]
    alarms.run_succeeded({"dag_run": Run()})
    alarms.task_failed(CONTEXT | {"ti": gone})
    asyncio.run(alarms.deadline_missed(late))
    assert len(webhook.messages) == 4


def test_a_source_that_fell_short_is_named_and_told_once(webhook: Webhook) -> None:
    for why in ("3 reads in 1h, where 40 are usual", "2 reads in 1h, where 40 are usual", ""):
        arrived(why)
    states = [(message["state"], message["about"]) for message in webhook.messages]
    assert states == [("firing", "rucio_traces"), ("good again", "rucio_traces")]
    assert "rucio_traces: 3 reads in 1h, where 40 are usual" in webhook.messages[0]["text"]
    assert webhook.messages[0]["runbook"] == "docs/troubleshoot.md#incomplete"


def test_a_message_that_was_not_taken_is_told_by_the_next_failure(webhook: Webhook) -> None:
    webhook.status = 500
    alarms.task_failed(CONTEXT)
    webhook.status = 204
    alarms.task_failed(CONTEXT)
    assert len(webhook.messages) == 2
    alarms.task_failed(CONTEXT)
    assert len(webhook.messages) == 2


def test_names_from_outside_neither_format_a_message_nor_call_anybody(webhook: Webhook) -> None:
    alarms.task_failed(CONTEXT | {"dag_run": Run("<!channel> *x* @here " + "9" * 500)})
    (message,) = webhook.messages
    line = message["text"].splitlines()[1]
    assert not set("<>*@!") & set(line)
    assert len(line) < 200


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
    requests: list[bytes] = []

    class Answer(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            requests.append(self.rfile.readline())
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
    assert requests == [b"POST /out HTTP/1.1\r\n"]
    assert "cannot report to the webhook: task failed" in caplog.text


def test_without_a_webhook_nobody_is_told(
    webhook: Webhook, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        pytest.fail(f"asks for {arguments}")

    monkeypatch.delenv("CACHECAST_AIRFLOW__WEBHOOK")
    monkeypatch.setattr(urllib.request.OpenerDirector, "open", refuse)
    alarms.task_failed(CONTEXT)
    assert (webhook.messages, caplog.records) == ([], [])


async def fired(path: str, until_s: float) -> bool:
    async for event in moments.PathTrigger(path, until_s).run():
        return bool(event.payload)
    raise AssertionError("it did not fire")


def test_a_wait_ends_when_the_path_is_there_or_its_time_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "broken").symlink_to("nowhere")
    now_s = time.time()
    assert asyncio.run(fired(f"{tmp_path}/here/", now_s))
    assert not asyncio.run(fired(f"{tmp_path}/broken", now_s))
    assert not asyncio.run(fired(f"{tmp_path}/away/_SUCCESS", now_s + 0.5))
    assert time.time() - now_s >= 0.5
    monkeypatch.chdir(tmp_path)
    assert asyncio.run(fired("here", now_s))


def test_a_wait_on_a_file_system_that_hangs_ends_in_time_and_holds_no_worker(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    answers = threading.Event()
    monkeypatch.setattr(moments, "is_there", lambda path: answers.wait(20))
    monkeypatch.setattr(moments, "LOOK_EVERY_S", 0.2)
    waited = moments.Arrived(task_id="wait_x", path="hdfs://nn/x", within_s=60)
    with pytest.raises(TaskDeferred):
        waited.execute({})
    assert not asyncio.run(fired("hdfs://nn/x", time.time() + 0.5))
    assert "hdfs://nn/x: its file system does not answer" in caplog.text
    answers.set()


@pytest.mark.parametrize("path", ["", "/x/{month}/y", "/x/{{ day }}"])
def test_a_wait_on_what_can_never_come_is_a_wrong_setting(path: str) -> None:
    env = {"CACHECAST_AIRFLOW__PULL": '{ rucio_traces = "/t/" }'}
    with pytest.raises(ConfigError, match="wait: that of rucio_traces must be a path"):
        scheduling(env | {"CACHECAST_AIRFLOW__WAIT": f'{{ rucio_traces = "{path}" }}'})
    with pytest.raises(ConfigError, match="wait: 'rucio_traces' is no source of pull"):
        scheduling({"CACHECAST_AIRFLOW__WAIT": '{ rucio_traces = "/x" }'})


@pytest.mark.parametrize("host", ["hooks..example.org", "a" * 64 + ".org"])
def test_a_webhook_of_no_possible_host_is_a_wrong_setting(host: str) -> None:
    with pytest.raises(ConfigError, match=r"airflow\.webhook: must be a URL") as error:
        scheduling({"CACHECAST_AIRFLOW__WEBHOOK": f"https://{host}/secret-path"})
    assert "secret-path" not in str(error.value)
