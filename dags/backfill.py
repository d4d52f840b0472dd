"""Fill the tables for past days: all accesses at once, then the features day by day, in order.

**Does:** pulls what is new at every source of `[airflow] pull`, then computes the features of every cycle of
the days from `first` to `last`, one day after the other.

**Runs:** by hand only. There is no data interval and no partition: the days are its parameters.

**Safe to repeat:** yes, in any order: the features of a day depend on the accesses alone, not on features
computed before.

**When it fails:** the days after the failed one continue; clear the task of the failed day. The DAG shares
the pool `cachecast_spark` with the DAGs of the cycle: give the pool a second slot, or wait.

**Owner:** the operators of the caches.
"""

from __future__ import annotations

from airflow.sdk import task, task_group

from dags import moments
from dags.steps import day_param, pipeline, spark_step
from jobs.settings.airflow import scheduling

days = {"first": day_param("first day"), "last": day_param("last day")}

with pipeline("backfill", __doc__, schedule=None, is_long=True, params=days):
    listed = task(task_id="days")(moments.days)("{{ params.first }}", "{{ params.last }}")

    @task_group(group_id="day")
    def filled(day: str) -> None:
        """One day's part."""
        spark_step(
            "features",
            {"day": day},
            max_active_tis_per_dagrun=1,
            map_index_template="{{ task.env['DAY'] }}",
        )

    group = filled.expand(day=listed)
    for source, path in scheduling().airflow.records.items():
        pull = {"source": source, "input": path, "day": "{{ params.first }}", "new-only": True}
        spark_step("pull", pull, task_id=f"pull_{source}") >> group
