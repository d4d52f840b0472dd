"""Write the week's pages: what a cache of any size would have done, and how the service did.

**Does:** `cachecast curve` (LRU at every capacity, over the days before) and `cachecast report` into the
folder `[airflow] reports`, named by the run's day. The curve's page begins with answers: what doubling the
configured caches would save, and how large a cache must be for a byte hit ratio of 50 and 80 %.

**Runs:** weekly, by `[airflow] report`; by hand for a question of your own: with the parameters `capacity`
(as `50TB,100TB`), `byte_hit_ratio` (as `0.9`) and `days`.

**Safe to repeat:** yes; a page is replaced.

**When it fails:** a page is missing, nothing else. `cachecast report` has nothing to show before the first
replay, evaluation or training.

**Owner:** the operators of the caches, and who plans their storage.
"""

from __future__ import annotations

from airflow.sdk import Param

from dags.moments import DAY
from dags.steps import at, pipeline, step
from jobs.settings.airflow import scheduling

told = scheduling().airflow
asked = {
    "days": Param(
        28, type="integer", minimum=1, title="days", description="that count, to the last whole one"
    ),
    "capacity": Param(
        "",
        type="string",
        title="capacities",
        description="what doubling each would save, as 50TB,100TB; empty: all configured caches together",
    ),
    "byte_hit_ratio": Param(
        "",
        type="string",
        title="byte hit ratios",
        description="how large a cache must be for each, as 0.5,0.9; empty: 0.5,0.8",
    ),
}

with pipeline("capacity_report", __doc__, schedule=at(told.report), is_long=True, params=asked):
    step(
        "curve",
        {
            "from": "{{ day(as_of(dag_run, params), params.days) }}",
            "to": "{{ day(as_of(dag_run, params), 1) }}",
            "capacity": "{{ params.capacity }}",
            "byte-hit-ratio": "{{ params.byte_hit_ratio }}",
            "out": f"{told.reports}/curve-{DAY}.html",
        },
    )
    step("report", {"out": f"{told.reports}/report-{DAY}.html"})
