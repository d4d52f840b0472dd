"""Account what pushed files have earned, judge each day against plain LRU, look after the caches' RSEs.

**Does:** for every cache to which a plan was pushed `days` ago, joins its receipts with the cache's own
records since: bytes saved, spent and wasted, file by file, in the table `outcomes`. Once a day and cache the
whole day `days` ago is judged: the cache's reads replayed as plain LRU, in the table `worth`. And Rucio is
asked whether the RSE of a cache is misused, or could be.

**Runs:** when `pull_accesses` has brought a moment's accesses, about the plans of `days` before. A day is
judged in the first run that finds it not judged yet, for caches whose own records `[airflow] pull` names.

**Safe to repeat:** yes; later is better, as more reads are known.

**When it fails:** nothing is lost: the tables lack these plans, or that day, until the task is cleared or the
next run judges it; `cachecast outcomes --cache NAME --day DAY` does it by hand. `rucio_check` fails where an
RSE is not safe: its log says what to do.

**Owner:** the operators of the caches.
"""

from __future__ import annotations

from airflow.sdk import Param, task_group

from dags.steps import ACCESSES, CACHE, after, listed, pipeline, step

PLANNED = "{{ earlier(as_of(dag_run, params), params.days) }}"
JUDGED = "{{ day(as_of(dag_run, params), [params.days, 1] | max) }}"
days = Param(2, type="integer", minimum=0, title="days", description="age of the plans that are accounted")

with pipeline("verify_outcomes", __doc__, schedule=after(ACCESSES), params={"days": days}):
    caches = step("caches", {"pushed-at": PLANNED, "json": True}, output_processor=listed)

    @task_group(group_id="cache")
    def accounted(name: str, rse: str) -> None:
        """One cache's part."""
        step("outcomes", {"cache": name, "as-of": PLANNED}, map_index_template=CACHE)

    unjudged = step("caches", {"unjudged": JUDGED, "json": True}, task_id="unjudged", output_processor=listed)

    @task_group(group_id="day")
    def judged(name: str, rse: str) -> None:
        """One cache's day."""
        step("outcomes", {"cache": name, "day": JUDGED}, task_id="worth", map_index_template=CACHE)

    rses = step("caches", {"with-rse": True, "json": True}, task_id="rses", output_processor=listed)

    @task_group(group_id="rse")
    def looked_after(name: str, rse: str) -> None:
        """One cache's RSE."""
        step("rucio check", {"cache": name}, map_index_template=CACHE)

    accounted.expand_kwargs(caches.output)
    judged.expand_kwargs(unjudged.output)
    looked_after.expand_kwargs(rses.output)
