"""Fill the tables for past days: accesses, features, predictions and verdicts, as the cycle would have.

**Does:** pulls what is new at every source of `[airflow] pull`. Then, for every day from `first` to `last`,
it judges the arrivals of its decision times again, and computes their features, one day after the other.
Where the model that serves was trained before the day, it also makes the day's predictions. Models never
score days that they have learned from, so that task is skipped for earlier days; the log of `due` has the
reason. Days on which plans were pushed and that lack a verdict against LRU get it. Nothing is planned
or pushed.

**Runs:** by hand only. There is no data interval and no partition: the days are its parameters.

**Safe to repeat:** yes, in any order: the features of a day depend on the accesses alone, not on features
computed before.

**When it fails:** the days after the failed one continue; clear the task of the failed day. The cycle goes on
meanwhile: the DAG shares the pool `cachecast_long` with trainings and evaluations alone.

**Owner:** the operators of the caches.
"""

from airflow.sdk import task, task_group

from dags import moments
from dags.steps import CACHE, LONG, day_param, listing, pipeline, spark_step, step
from jobs.ground.settings.sections import scheduling

FIRST, LAST = "{{ params.first }}", "{{ params.last }}"
NAMED = "{{ task.env['DAY'] }}"
params = {"first": day_param("first day"), "last": day_param("last day")}

with pipeline("backfill", __doc__, schedule=None, is_long=True, params=params):
    listed_days = task(task_id="days")(moments.days)(FIRST, LAST)

    @task_group(group_id="day")
    def filled(day: str) -> None:
        """One day's part."""
        arrivals = step("arrivals", {"day": day}, map_index_template=NAMED)
        features = spark_step(
            "features", {"day": day}, pool=LONG, max_active_tis_per_dagrun=1, map_index_template=NAMED
        )
        due = step("due", {"as-of": day, "past": True})
        [arrivals, features] >> due
        due >> spark_step("predict", {"day": day}, pool=LONG, map_index_template=NAMED)

    unjudged = listing("caches", {"unjudged": FIRST, "unjudged-to": LAST}, task_id="unjudged")

    @task_group(group_id="verdict")
    def judged(name: str, rse: str, day: str) -> None:
        """One day of one cache."""
        step("outcomes", {"cache": name, "day": day}, task_id="worth", map_index_template=CACHE)

    group = filled.expand(day=listed_days)
    judged.expand_kwargs(unjudged.output)
    for source, path in scheduling().airflow.records.items():
        pull = {"source": source, "input": path, "day": moments.DAY, "new-only": True}
        pulled = spark_step("pull", pull, task_id=f"pull_{source}", pool=LONG)
        pulled >> [group, unjudged]
