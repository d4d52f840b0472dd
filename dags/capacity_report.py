"""Write the week's pages: what a cache of any size would have done, and how the service did.

**Does:** `cachecast curve` (LRU at every capacity, over the days before) and `cachecast report` into the
folder `[airflow] reports`, named by the run's day.

**Runs:** weekly, by `[airflow] report`.

**Safe to repeat:** yes; a page is replaced.

**When it fails:** a page is missing, nothing else. `cachecast report` has nothing to show before the first
replay, evaluation or training.

**Owner:** the operators of the caches, and who plans their storage.
"""

from __future__ import annotations

from airflow.sdk import Param

from dags.moments import DAY
from dags.steps import at, pipeline, step
from jobs.airflow_settings import scheduling

told = scheduling().airflow
days = Param(28, type="integer", minimum=1, title="days", description="that count, to the last whole one")

with pipeline("capacity_report", __doc__, schedule=at(told.report), is_long=True, params={"days": days}):
    step(
        "curve",
        {
            "from": "{{ day(as_of(dag_run, params), params.days) }}",
            "to": "{{ day(as_of(dag_run, params), 1) }}",
            "out": f"{told.reports}/curve-{DAY}.html",
        },
    )
    step("report", {"out": f"{told.reports}/report-{DAY}.html"})
