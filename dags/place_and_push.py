"""Plan the content of every cache, and push the plans.

**Does:** scores the candidates with the champion, and reads from the queues of `[airflow] queues` which files
their jobs will read. For every configured cache on its own it plans, pushes, and reports to Rucio if the
cache has an `rse`. Then it refreshes the placement service.

**Runs:** when `build_features` has computed the features of a decision time. `due` skips a decision time that
was overtaken by the features of a later one, so that after an outage only the newest is pushed; `place` and a
push that waited or is tried again, are skipped for the same reason. It also skips everything while no model
may serve: before the first champion the log of `due` says so, and caches run as plain LRU caches. A cache
that hangs holds up no other: its plan and its push have slots of their own in the pools `cachecast_plan` and
`cachecast_wan`, are ended after one cycle, and the next run begins meanwhile; a folder that does not answer
for a minute fails its plan. `[push] parallel` and `[plan]` limit what each cache fetches. A queue reports its
present content, so it is not read for a decision time that is two cycles ago.

**Safe to repeat:** yes; a push resumes and pushes nothing twice.

**When it fails:** the cache concerned continues as a plain LRU cache; the others are served. With candidates
in `[mlflow] serve`, `push` fails after it carried out what needs no model. If a cache is unavailable, run
`cachecast doctor`, then clear its `push`. An expired plan is no longer pushed; the next cycle makes a new
one. A failed queue stops nothing: plans use its last report until that is stale.

**Owner:** the operators of the caches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from airflow.sdk import task_group

from dags.moments import AS_OF, CURRENT
from dags.steps import (
    CACHE,
    CHAMPION,
    FEATURES,
    PLANS,
    RECEIPTS,
    WAN,
    after,
    ended,
    listing,
    of_cache,
    pipeline,
    spark_step,
    step,
)
from jobs.ground.settings.sections import scheduling

if TYPE_CHECKING:
    from airflow.sdk import TaskGroup

settings = scheduling()

# Of two runs the first has a cache that hangs, or that is tried again.
with pipeline("place_and_push", __doc__, schedule=after(FEATURES), n_runs=2):
    due = step("due", {"as-of": AS_OF})
    predict = spark_step("predict", {"as-of": AS_OF}, inlets=[CHAMPION])
    caches = listing("caches", {})
    due >> [predict, caches]
    known_work = ended("known_work")
    for name, queue in settings.airflow.queues.items():
        options = {"name": name, "as-of": AS_OF, **queue.model_dump(exclude_defaults=True)}
        queue_step = step("queue", options, task_id=f"queue_{name}", needs={"current": CURRENT}, retries=1)
        due >> queue_step >> known_work

    @task_group(group_id="cache")
    def served(name: str, rse: str, day: str) -> None:
        """The tasks of one cache; the failure of one cache stops no other."""
        cache = {"cache": name}
        plan = of_cache("plan", {**cache, "as-of": AS_OF}, pool=PLANS)
        options = {**cache, "as-of": AS_OF, "if-current": True}
        push = of_cache("push run", options, task_id="push", pool=WAN, outlets=[RECEIPTS])
        sync = step("rucio sync", cache, map_index_template=CACHE, needs={"rse": rse})
        plan >> push >> sync

    group = served.expand_kwargs(caches.output)
    [predict, known_work] >> group
    # After the plans: it waits for no cache that hangs, and a failed push, as a last task, fails the run.
    place = step("place", {"as-of": AS_OF, "if-current": True}, trigger_rule="all_done_min_one_success")
    cast("TaskGroup", group).children["cache.plan"] >> place
