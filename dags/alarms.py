"""Messages to `[airflow] webhook`: a task that gave up, a run that is late, and when each is good again.

A message is one JSON object. Its `text` is plain, and shown as it is by Slack, Mattermost and mail; the other
keys are for programs. It names the DAG, the task, the run, its log and the section of the docs with the
remedy, and contains no parameter, error text or setting. Each cause is sent once, until it is good again: an
Airflow Variable `cachecast_alarm.CAUSE` remembers its first and its last decision time. If the webhook is
unavailable, answers with a redirect, which is not followed, or takes longer than 10 s, a warning is logged,
nothing fails, and the next failure of that cause is sent instead.
"""

import http.client
import json
import logging
import re
import threading
import urllib.request
from collections.abc import Mapping
from typing import Any

from airflow.sdk import Variable
from asgiref.sync import sync_to_async

from features.common.errors import bounded
from jobs.ground.settings.sections import scheduling

TASK_FAILED, DEADLINE_MISSED, INCOMPLETE = "task-failed", "deadline-missed", "incomplete"
"""Sections of docs/troubleshoot.md."""
_RUNBOOK = "docs/troubleshoot.md#"
_TIMEOUT_S = 10
_KEY = "cachecast_alarm."
_CHARS = 120
_log = logging.getLogger(__name__)


def task_failed(context: Mapping[str, Any], *, severity: str = "warning") -> None:
    """Raise an alarm for a task that failed in its last attempt, unless the alarm is raised already."""
    event = _of_task(context) | {
        "event": "task failed",
        "severity": severity,
        "log": getattr(context["ti"], "log_url", None),
        "runbook": _RUNBOOK + TASK_FAILED,
    }
    _raise(_cause(event), event)


def task_succeeded(context: Mapping[str, Any]) -> None:
    event = _of_task(context)
    _clear(_cause(event), event)


def arrived(context: Mapping[str, Any]) -> None:
    """Raise an alarm for each source that the task says is incomplete; clear the others'."""
    ti = context["ti"]
    task_succeeded(context)
    for late in ti.xcom_pull(task_ids=ti.task_id) or ():
        event = _of_task(context) | {"about": str(late["source"])}
        if late["why"]:
            fault = {"event": _plain(late["why"]), "severity": "warning", "runbook": _RUNBOOK + INCOMPLETE}
            _raise(f"{INCOMPLETE}.{_plain(late['source'])}", event | fault)
        else:
            _clear(f"{INCOMPLETE}.{_plain(late['source'])}", event)


async def deadline_missed(context: Mapping[str, Any]) -> None:
    """Raise an alarm for a run that missed its deadline; called by Airflow's triggerer.

    Not if a task of the DAG failed at the same decision time: that is the cause.
    """
    run, deadline = context["dag_run"], context["deadline"]
    event = {
        "event": "deadline missed",
        "severity": "warning",
        "dag": run["dag_id"],
        "run": run["dag_run_id"],
        "as_of": run.get("partition_key"),
        "deadline": str(deadline["deadline_time"]),
        "runbook": _RUNBOOK + DEADLINE_MISSED,
    }
    await sync_to_async(_raise_unless_failing)(event)


def run_succeeded(context: Mapping[str, Any]) -> None:
    run = context["dag_run"]
    event = {"dag": run.dag_id, "run": run.run_id, "as_of": run.partition_key}
    _clear(_cause(event), event)


def _of_task(context: Mapping[str, Any]) -> dict[str, Any]:
    task, run = context["ti"], context["dag_run"]
    return {
        "dag": run.dag_id,
        "task": task.task_id,
        "map_index": task.map_index,
        "about": getattr(task, "rendered_map_index", None),
        "run": run.run_id,
        "as_of": run.partition_key,
        "tries": task.try_number,
    }


def _cause(event: Mapping[str, Any]) -> str:
    """What fails, whichever run finds it: a DAG, its task, and the cache or source that the task is about."""
    parts = (event["dag"], event.get("task") or "deadline", event.get("about"))
    return ".".join(_plain(part) for part in parts if part)


def _raise_unless_failing(event: dict[str, Any]) -> None:
    if not _webhook():
        return
    known = (Variable.get(key, default="") for key in Variable.keys(prefix=f"{_KEY}{event['dag']}."))
    if _moment(event) not in (str(value).partition("\n")[2] for value in known):
        _raise(_cause(event), event)


def _raise(cause: str, event: dict[str, Any]) -> None:
    if not _webhook():
        return
    known = Variable.get(_KEY + cause, default=None)
    if known is not None or _told({"state": "firing", **event}):
        since = _moment(event) if known is None else str(known).partition("\n")[0]
        Variable.set(_KEY + cause, f"{since}\n{_moment(event)}")


def _moment(event: Mapping[str, Any]) -> str:
    return str(event["as_of"] or event["run"])


def _clear(cause: str, event: dict[str, Any]) -> None:
    if not _webhook() or (since := Variable.get(_KEY + cause, default=None)) is None:
        return
    event_good = {"state": "good again", "event": "recovered", "severity": "info", **event}
    if _told(event_good | {"since": str(since).partition("\n")[0]}):
        Variable.delete(_KEY + cause)


def _text(event: Mapping[str, Any]) -> str:
    """Lines for people; what could format them or call somebody is left out."""
    what = [event["dag"], event.get("task"), event.get("about")]
    head = f"cachecast {event['severity']}: {', '.join(_plain(part) for part in what if part)}"
    if event["state"] == "good again":
        return (
            f"{head} is good again at {_plain(event['as_of'])}; it had failed since {_plain(event['since'])}"
        )
    lines = [f"{head}: {event['event']}", f"decision time: {_plain(event['as_of'])}"]
    lines += [f"{name}: {event[name]}" for name in ("deadline", "log", "runbook") if event.get(name)]
    return "\n".join(lines)


def _plain(value: object) -> str:
    return bounded(re.sub(r"[^\w .,:/+-]", "?", str(value)), _CHARS)


def _webhook() -> str:
    return scheduling().airflow.webhook.get_secret_value()


def _told(event: Mapping[str, Any]) -> bool:
    """Send an event; whether it was accepted."""
    body = json.dumps({"text": _text(event), **event}).encode()
    request = urllib.request.Request(  # noqa: S310  settings allow http and https alone
        _webhook(), data=body, headers={"content-type": "application/json"}
    )
    accepted = threading.Event()

    def send() -> None:
        try:
            with urllib.request.build_opener(_NoRedirects).open(request, timeout=_TIMEOUT_S):
                accepted.set()
        except (OSError, http.client.HTTPException) as error:  # its text may contain the URL, often a secret
            _log.warning("cannot report to the webhook: %s (%s)", event["event"], type(error).__name__)

    # A thread, as a server that answers byte by byte is never silent for as long as a socket's timeout.
    sending = threading.Thread(target=send, daemon=True)
    sending.start()
    sending.join(_TIMEOUT_S)
    if sending.is_alive():
        _log.warning("cannot report to the webhook: %s (no answer in %d s)", event["event"], _TIMEOUT_S)
    return accepted.is_set()


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect is an error: it would lose the report, and may lead to an address inside the site."""

    def redirect_request(self, *_asked: object) -> None:
        """No request."""
