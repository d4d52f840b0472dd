"""Reports of failures and missed deadlines to `[airflow] webhook`, each as one JSON object.

The object names the DAG, the task, the run, its log and the section of the docs with the remedy. It contains
no parameter, error text or setting. If the webhook is unavailable, answers with a redirect, which is not
followed, or takes longer than 10 s, a warning is logged; nothing fails.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import logging
import threading
import urllib.request
from collections.abc import Mapping
from typing import Any

from jobs.settings.airflow import scheduling

TASK_FAILED, DEADLINE_MISSED = "task-failed", "deadline-missed"
"""Sections of docs/troubleshoot.md."""
_RUNBOOK = "docs/troubleshoot.md#"
_TIMEOUT_S = 10
_log = logging.getLogger(__name__)


def task_failed(context: Mapping[str, Any]) -> None:
    """Report a task that failed in its last attempt."""
    task, run = context["ti"], context["dag_run"]
    _report(
        {
            "event": "task failed",
            "dag": run.dag_id,
            "task": task.task_id,
            "map_index": task.map_index,
            "run": run.run_id,
            "as_of": run.partition_key,
            "tries": task.try_number,
            "log": getattr(task, "log_url", None),
            "runbook": _RUNBOOK + TASK_FAILED,
        }
    )


async def deadline_missed(context: Mapping[str, Any]) -> None:
    """Report a run that missed its deadline; called by Airflow's triggerer."""
    run, deadline = context["dag_run"], context["deadline"]
    event = {
        "event": "deadline missed",
        "dag": run["dag_id"],
        "run": run["dag_run_id"],
        "as_of": run.get("partition_key"),
        "deadline": str(deadline["deadline_time"]),
        "runbook": _RUNBOOK + DEADLINE_MISSED,
    }
    await asyncio.to_thread(_report, event)


def _report(event: Mapping[str, object]) -> None:
    webhook = scheduling().airflow.webhook.get_secret_value()
    if not webhook:
        return
    body = json.dumps(event).encode()
    request = urllib.request.Request(  # noqa: S310  settings allow http and https alone
        webhook, data=body, headers={"content-type": "application/json"}
    )
    # A thread, as a server that answers byte by byte is never silent for as long as a socket's timeout.
    sending = threading.Thread(target=_send, args=(request, event["event"]), daemon=True)
    sending.start()
    sending.join(_TIMEOUT_S)
    if sending.is_alive():
        _log.warning("cannot report to the webhook: %s (no answer in %d s)", event["event"], _TIMEOUT_S)


def _send(request: urllib.request.Request, event: object) -> None:
    try:
        with urllib.request.build_opener(_NoRedirects).open(request, timeout=_TIMEOUT_S):
            pass
    except (OSError, http.client.HTTPException) as error:  # its text may contain the URL, often a secret
        _log.warning("cannot report to the webhook: %s (%s)", event, type(error).__name__)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect is an error: it would lose the report, and may lead to an address inside the site."""

    def redirect_request(self, *_asked: object) -> None:
        """No request."""
