"""The building blocks of the DAGs: a task is one command, as an operator types it."""

from __future__ import annotations

import datetime as dt
import json
import sys
from collections.abc import Mapping
from functools import partial
from importlib import resources
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.bash import BashOperator
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, Asset, CronPartitionTimetable, Param, PartitionedAssetTimetable
from airflow.sdk.definitions.callback import AsyncCallback
from airflow.sdk.definitions.deadline import DeadlineAlert, DeadlineReference

from dags import alarms, moments
from dags.moments import DecisionTime
from features.common.units import duration_label
from jobs.ground.settings.sections import Scheduling, scheduling

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator


def _asset(name: str) -> Asset:
    return Asset(name=f"cachecast_{name}", uri=f"x-cachecast://{name}", group="cachecast")


ACCESSES, FEATURES, CANDIDATE = _asset("accesses"), _asset("features"), _asset("candidate")
"""Each starts the DAGs after it: what was read, the features computed from it, a trained model."""
CHAMPION, RECEIPTS, OUTCOMES = _asset("champion"), _asset("receipts"), _asset("outcomes")
"""What DAGs end with, for the graph alone: the model that serves, what was pushed, what it earned."""

WAN, PLANS, SPARK = "cachecast_wan", "cachecast_plan", "cachecast_spark"
LONG, LIGHT = "cachecast_long", "cachecast_light"
"""Pools of conf/deploy/pools.json: pushes, plans, and what may use Spark; what takes hours, and the rest."""
_MOST_TASKS = 256  # of a run: pools limit it, as Airflow's own 16 would let hung caches hold up the others
_CYCLE_FIRST, _AFTER_IT = 10, 1  # priorities, absolute: a free slot goes to the cycle
_TRIED_BY_HAND = ["dags", "test"]  # it fails at the end of a DAG with a deadline (apache/airflow issue 73428)
CACHE = "{{ task.env['CACHE'] }}"  # name in the UI of a task that is mapped over caches
_AS_OF = Param(
    "",
    type="string",
    pattern=r"^(\d{4}-\d{2}-\d{2}(T\d{2}:\d{2}:\d{2}Z)?)?$",
    title="decision time",
    description="for example 2026-03-01T04:00:00Z; empty: the partition key, which alone starts other DAGs",
)


def pipeline(
    dag_id: str,
    doc: str | None,
    *,
    schedule: Any,
    is_long: bool = False,
    n_runs: int = 1,
    params: Mapping[str, Param] = {},
) -> DAG:
    """A DAG; `doc` is its runbook.

    `is_long`: it takes hours, and must not hold up the cycle. `n_runs`: at the same time. A task that takes
    longer than its time is ended and tried again; missed deadlines are in the UI, and reported if there is a
    webhook.
    """
    schedule_settings = scheduling()
    airflow = schedule_settings.airflow
    severity = "info" if is_long else "warning"
    timeout_s = airflow.long_deadline if is_long else schedule_settings.timeout_s
    return DAG(
        dag_id=dag_id,
        description=(doc or "").partition("\n")[0],
        schedule=schedule,
        start_date=dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
        catchup=False,
        max_active_runs=n_runs,
        max_active_tasks=_MOST_TASKS,
        default_args={
            "owner": "operators",
            "retries": airflow.retries,
            "retry_delay": dt.timedelta(seconds=airflow.retry_delay),
            "retry_exponential_backoff": 2.0,
            "max_retry_delay": dt.timedelta(seconds=airflow.max_retry_delay),
            "on_failure_callback": partial(alarms.task_failed, severity=severity),
            "on_success_callback": alarms.task_succeeded,
            "pool": LONG if is_long else LIGHT,
            "priority_weight": _AFTER_IT if is_long else _CYCLE_FIRST,
            "weight_rule": "absolute",
            "execution_timeout": dt.timedelta(seconds=timeout_s),
        },
        on_success_callback=alarms.run_succeeded,
        params={**({} if schedule is None else {"as_of": _AS_OF}), **params},
        deadline=None if sys.argv[1:3] == _TRIED_BY_HAND else [_due(schedule_settings, is_long=is_long)],
        user_defined_macros={
            name: getattr(moments, name)
            for name in ("as_of", "day", "hour", "ended", "earlier", "if_current")
        },
        doc_md=doc,
        tags=["cachecast", "long" if is_long else "cycle"],
    )


def _due(settings: Scheduling, *, is_long: bool) -> DeadlineAlert:
    within_s = settings.airflow.long_deadline if is_long else settings.due_s
    return DeadlineAlert(
        reference=DeadlineReference.DAGRUN_QUEUED_AT if is_long else DecisionTime(within_s),
        interval=dt.timedelta(seconds=within_s),
        callback=AsyncCallback(alarms.deadline_missed),
        name=f"{duration_label(within_s)} {'from its start' if is_long else 'from the decision time'}",
    )


def on_cron(cron: str) -> CronPartitionTimetable:
    """Runs at every tick of a cron (UTC), each with that time as its partition."""
    return CronPartitionTimetable(cron, timezone="UTC", key_format=moments.KEY_FORMAT)


def after(asset: Asset) -> PartitionedAssetTimetable:
    """A run for every partition of `asset`, with the same partition."""
    return PartitionedAssetTimetable(assets=asset)


def step(
    command: str,
    options: Mapping[str, Any],
    *,
    task_id: str | None = None,
    needs: Mapping[str, Any] = {},
    **task: Any,
) -> BashOperator:
    """A task that runs `cachecast COMMAND`; an option with the value True is a flag.

    The task is skipped if a value of `needs` is empty. Values reach the command through its environment only,
    so that no text from outside becomes part of a shell command. The working directory is that of the worker:
    relative paths mean the same to all commands there.
    """
    values = {_variable(option): value for option, value in options.items() if value is not True}
    skips = [f'[ -n "${_variable(name)}" ] || exit 99;' for name in needs]
    words = [
        f"--{option}" if value is True else f'--{option} "${_variable(option)}"'
        for option, value in options.items()
    ]
    return BashOperator(
        task_id=task_id or command.replace(" ", "_"),
        bash_command=" ".join([*skips, "cachecast", command, *words]),
        env=values | {_variable(name): value for name, value in needs.items()},
        append_env=True,
        cwd=".",
        **task,
    )


def listing(command: str, options: Mapping[str, Any], **task: Any) -> BashOperator:
    """A step that answers with a list in JSON, over which other tasks are mapped."""
    return step(command, {**options, "json": True}, output_processor=json.loads, **task)


def of_cache(command: str, options: Mapping[str, Any], *, pool: str, **task: Any) -> BashOperator:
    """A step of one cache, named after it: in a slot of its own, and ended after one cycle, if it hangs."""
    within = dt.timedelta(seconds=scheduling().cycle_s)
    return step(command, options, map_index_template=CACHE, pool=pool, execution_timeout=within, **task)


def ended(task_id: str) -> EmptyOperator:
    """A task that runs when all tasks before it have ended, even if they failed."""
    return EmptyOperator(task_id=task_id, trigger_rule="all_done")


def spark_step(
    command: str, options: Mapping[str, Any], *, task_id: str | None = None, pool: str = SPARK, **task: Any
) -> BaseOperator:
    """A step that may use Spark: in its own process, or submitted to the connection `[airflow] spark`."""
    airflow = scheduling().airflow
    connection, task = airflow.spark, {"pool": pool, **task}
    if airflow.spark_pod:  # for Airflow's Kubernetes executor; others ignore it
        task = {"executor_config": {"pod_template_file": airflow.spark_pod}, **task}
    if not connection:
        return step(command, options, task_id=task_id, **task)
    # Installed only at sites that submit.
    from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator  # noqa: PLC0415

    words = [
        [f"--{option}"] if value is True else [f"--{option}", value] for option, value in options.items()
    ]
    return SparkSubmitOperator(
        task_id=task_id or command,
        application=str(resources.files("conf") / "deploy" / "submit.py"),
        application_args=[command, *(word for pair in words for word in pair)],
        name=f"cachecast-{task_id or command}",
        conn_id=connection,
        **task,
    )


def day_param(title: str) -> Param:
    """A required UTC day, with a calendar in the UI."""
    return Param(type="string", format="date", title=title, description="UTC, for example 2026-03-01")


def days_param(default: int, description: str, minimum: int = 1) -> Param:
    return Param(default, type="integer", minimum=minimum, title="days", description=description)


def _variable(option: str) -> str:
    return option.upper().replace("-", "_")
