"""Account what pushed files have earned.

**Does:** for every cache to which a plan was pushed `days` ago, joins its receipts with the cache's own
records since: bytes saved, spent and wasted, file by file, in the table `outcomes`.

**Runs:** when `pull_accesses` has brought a moment's accesses, about the plans of `days` before.

**Safe to repeat:** yes; later is better, as more reads are known.

**When it fails:** nothing is lost: the table lacks these plans until the task is cleared.

**Owner:** the operators of the caches.
"""

from __future__ import annotations

from airflow.sdk import Param, task_group

from dags.steps import ACCESSES, CACHE, after, listed, pipeline, step

PLANNED = "{{ earlier(as_of(dag_run, params), params.days) }}"
days = Param(2, type="integer", minimum=0, title="days", description="age of the plans that are accounted")

with pipeline("verify_outcomes", __doc__, schedule=after(ACCESSES), params={"days": days}):
    caches = step("caches", {"pushed-at": PLANNED, "json": True}, output_processor=listed)

    @task_group(group_id="cache")
    def accounted(name: str, rse: str) -> None:
        """One cache's part."""
        step("outcomes", {"cache": name, "as-of": PLANNED}, map_index_template=CACHE)

    accounted.expand_kwargs(caches.output)
