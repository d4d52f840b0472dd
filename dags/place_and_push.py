"""Decide what every cache should hold, and bring it there.

**Does:** scores the candidates with the champion, and asks the queues of `[airflow] queues` what their jobs
will read; for every configured cache, each on its own, plans, pushes and tells Rucio (where the cache has an
`rse`); then refreshes the placement service.

**Runs:** when `build_features` has a moment's features. Pushes share the pool `cachecast_wan`: its slots are
the caches that fetch over the WAN at a time; `[push] parallel` and `[plan]` bound each. A queue tells what is
in it now, so it is not asked for a moment that is past.

**Safe to repeat:** yes; a push takes up where it was ended and pushes nothing twice.

**When it fails:** the cache in question goes on as a plain LRU cache, the others are served. `predict` fails
while there is no champion: train and promote one. For a cache that is away: `cachecast doctor`, then clear
its `push`. A plan that has expired is not pushed any more; the next cycle has a new one. A queue that fails
keeps nothing: plans believe what it said before, until that is stale.

**Owner:** the operators of the caches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from airflow.sdk import task_group

from dags.moments import AS_OF, CURRENT
from dags.steps import CACHE, FEATURES, WAN, after, ended, listed, pipeline, spark_step, step
from jobs.settings.airflow import scheduling

if TYPE_CHECKING:
    from airflow.sdk import TaskGroup

with pipeline("place_and_push", __doc__, schedule=after(FEATURES)):
    predict = spark_step("predict", {"as-of": AS_OF})
    caches = step("caches", {"json": True}, output_processor=listed)
    known_work = ended("known_work")
    for name, asked in scheduling().airflow.queues.items():
        options = {"name": name, "as-of": AS_OF, **asked.model_dump(exclude_defaults=True)}
        step("queue", options, task_id=f"queue_{name}", given={"current": CURRENT}, retries=1) >> known_work

    @task_group(group_id="cache")
    def served(name: str, rse: str) -> None:
        """One cache's part; what fails at one cache keeps no other."""
        cache = {"cache": name}
        plan = step("plan", {**cache, "as-of": AS_OF}, map_index_template=CACHE)
        push = step("push", {**cache, "as-of": AS_OF}, map_index_template=CACHE, pool=WAN)
        told = step("rucio sync", cache, map_index_template=CACHE, given={"rse": rse})
        plan >> push >> told

    group = served.expand_kwargs(caches.output)
    [predict, known_work] >> group
    # Not behind the group: its pushes are the run's last tasks, so a failed one fails the run.
    place = step("place", {"as-of": AS_OF}, trigger_rule="all_done_min_one_success")
    cast("TaskGroup", group).children["cache.plan"] >> place
