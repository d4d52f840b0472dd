"""Replay the service over past days, and let the candidate serve if its plans have won.

**Does:** `cachecast evaluate` walks through the last days as the service would have, against LRU, the
counting baseline and the champion; `cachecast promote` makes the candidate the champion if the lower bound of
the WAN bytes saved a day is above 0, and says why not otherwise.

**Runs:** when `train_models` has a new candidate.

**Safe to repeat:** yes; the same days give the same decision.

**When it fails:** the champion goes on serving. A candidate that is refused is no failure:
`cachecast promote --why` tells, `cachecast promote --rollback` takes a promotion back.

**Owner:** the operators of the caches.
"""

from __future__ import annotations

from airflow.sdk import Param

from dags.steps import CANDIDATE, after, pipeline, spark_step, step
from jobs.settings.airflow import scheduling

days = Param(
    scheduling().test_days,
    type="integer",
    minimum=1,
    title="days",
    description="replayed, to the last whole one",
)

with pipeline(
    "evaluate_and_promote", __doc__, schedule=after(CANDIDATE), is_long=True, params={"days": days}
):
    evaluate = spark_step(
        "evaluate",
        {
            "from": "{{ day(as_of(dag_run, params), params.days) }}",
            "to": "{{ day(as_of(dag_run, params), 1) }}",
        },
    )
    evaluate >> step("promote", {})
