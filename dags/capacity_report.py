"""Write the weekly pages: the hit ratio of a cache of any size, and the results of the service.

**Does:** runs `cachecast curve` (LRU at every capacity, over the days before) and `cachecast report`. The
pages go to the folder `[airflow] reports`, named after the run's day. The page of the curve begins with the
savings of doubling the configured caches, and the capacity for a byte hit ratio of 50 and 80 %.

**Runs:** weekly, by `[airflow] report`. Start it by hand with the parameters `capacity` (for example
`50TB,100TB`), `byte_hit_ratio` (for example `0.9`) and `days` for other questions.

**Safe to repeat:** yes; a page is replaced.

**When it fails:** only a page is missing. `cachecast report` fails before the first replay, evaluation or
training.

**Owner:** the operators of the caches, and those who plan their storage.
"""

from airflow.sdk import Param

from dags.moments import DAY, WHOLE_DAYS
from dags.steps import days_param, on_cron, pipeline, step
from jobs.ground.settings.sections import scheduling

settings = scheduling().airflow
params = {
    "days": days_param(28, "days of the curve, until the last whole one"),
    "capacity": Param(
        "",
        type="string",
        title="capacities",
        description="savings of doubling each, for example 50TB,100TB; empty: all configured caches together",
    ),
    "byte_hit_ratio": Param(
        "",
        type="string",
        title="byte hit ratios",
        description="capacity needed for each, for example 0.5,0.9; empty: 0.5,0.8",
    ),
}

with pipeline("capacity_report", __doc__, schedule=on_cron(settings.report), is_long=True, params=params):
    step(
        "curve",
        {
            **WHOLE_DAYS,
            "capacity": "{{ params.capacity }}",
            "byte-hit-ratio": "{{ params.byte_hit_ratio }}",
            "out": f"{settings.reports}/curve-{DAY}.html",
        },
    )
    step("report", {"out": f"{settings.reports}/report-{DAY}.html"})
