"""Train the models anew on what is known by the end of the week.

**Does:** computes the labels that have matured and trains one model per horizon; runs, metrics and models
are in MLflow, the best of each horizon under the alias `candidate`.

**Safe to repeat:** yes; a second run adds runs to MLflow and moves the alias to equal models.

**When it fails:** the last model goes on being used. Look at the failed step's log, mend the cause, clear
the task.

**Owner:** the operators of the caches.
"""

from __future__ import annotations

import datetime as dt

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG
from airflow.timetables.interval import CronDataIntervalTimetable

with DAG(
    dag_id="cachecast_weekly",
    schedule=CronDataIntervalTimetable("@weekly", timezone="UTC"),
    start_date=dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
    catchup=False,
    max_active_runs=1,
    default_args={"owner": "operators", "retries": 1, "retry_delay": dt.timedelta(minutes=15)},
    doc_md=__doc__,
    tags=["cachecast"],
):
    BashOperator(
        task_id="train",
        bash_command="cachecast train --as-of {{ data_interval_end.strftime('%Y-%m-%dT%H:00:00Z') }}",
    )
