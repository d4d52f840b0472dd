"""Keep the caches of one region in step with what its jobs will read.

**Does:** pulls the new access records, computes features for the cycle's as_of, scores the candidates, and
for the cache named in the parameters plans and pushes; then accounts what earlier pushes earned.

**Safe to repeat:** every step; a second run changes nothing and pushes nothing twice.

**When it fails:** the cache goes on as a plain LRU cache. Look at the failed step's log, mend the cause,
clear the task. `cachecast doctor` shows what is reachable.

**Owner:** the operators of the caches.
"""

from __future__ import annotations

import datetime as dt

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG, Param
from airflow.timetables.interval import CronDataIntervalTimetable

AS_OF = "{{ data_interval_end.strftime('%Y-%m-%dT%H:00:00Z') }}"
DAY = "{{ data_interval_start.strftime('%Y-%m-%d') }}"

with DAG(
    dag_id="cachecast_daily",
    schedule=CronDataIntervalTimetable("@daily", timezone="UTC"),
    start_date=dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
    catchup=False,
    max_active_runs=1,
    default_args={"owner": "operators", "retries": 2, "retry_delay": dt.timedelta(minutes=5)},
    params={
        "traces": Param(
            "traces/traces.*", type="string", description="path or glob of the Rucio traces to pull"
        ),
        "cache": Param(
            "xc1", type="string", pattern="^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$", description="cache to serve"
        ),
    },
    doc_md=__doc__,
    tags=["cachecast"],
):

    def step(name: str, arguments: str, **env: str) -> BashOperator:
        """One command of the command line; values from outside reach it through its environment only."""
        return BashOperator(task_id=name, bash_command=f"cachecast {arguments}", env=env, append_env=True)

    pull = step(
        "pull",
        f'pull --source rucio_traces --input "$TRACES" --day {DAY}',
        TRACES="{{ params.traces }}",
    )
    features = step("features", f"features --as-of {AS_OF}")
    predict = step("predict", f"predict --as-of {AS_OF}")
    cache = {"CACHE": "{{ params.cache }}"}
    plan = step("plan", f'plan --cache "$CACHE" --as-of {AS_OF}', **cache)
    push = step("push", f'push --cache "$CACHE" --as-of {AS_OF}', **cache)
    outcomes = step("outcomes", f'outcomes --cache "$CACHE" --as-of {AS_OF}', **cache)

    pull >> features >> predict >> plan >> push >> outcomes
