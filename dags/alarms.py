"""Failures and missed deadlines, told to the webhook of `[airflow] webhook` as one JSON object.

The object names the DAG, the task, the run, its log and the section of the docs that says what to do, and
nothing else: no parameter, no error text, no setting. A webhook that cannot be told is a line in the log; it
fails nothing.
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
    """Tell that a task has used up its tries."""
    task, run = context["ti"], context["dag_run"]
    _tell(
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
    """Tell that a run was not done in time; Airflow's triggerer calls this."""
    run, deadline = context["dag_run"], context["deadline"]
    told = {
        "event": "deadline missed",
        "dag": run["dag_id"],
        "run": run["dag_run_id"],
        "as_of": run.get("partition_key"),
        "deadline": str(deadline["deadline_time"]),
        "runbook": _RUNBOOK + DEADLINE_MISSED,
    }
    await asyncio.to_thread(_tell, told)


def _tell(what: Mapping[str, object]) -> None:
    webhook = scheduling().airflow.webhook.get_secret_value()
    if not webhook:
        return
    body = json.dumps(what).encode()
    request = urllib.request.Request(  # noqa: S310  settings allow http and https alone
        webhook, data=body, headers={"content-type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S):  # noqa: S310
            pass
    except OSError as error:  # its text may hold the URL, whose path is often the secret
        _log.warning("the webhook was not told of %s: %s", what["event"], type(error).__name__)
