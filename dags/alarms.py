"""Reports of failures and missed deadlines to `[airflow] webhook`, each as one JSON object.

The object names the DAG, the task, the run, its log and the section of the docs with the remedy. It contains
no parameter, error text or setting. If the webhook is unavailable, a warning is logged; nothing fails.
"""

from __future__ import annotations

import asyncio
import json
import logging
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
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S):  # noqa: S310
            pass
    except OSError as error:  # its text may contain the URL, whose path is often the secret
        _log.warning("cannot report to the webhook: %s (%s)", event["event"], type(error).__name__)
