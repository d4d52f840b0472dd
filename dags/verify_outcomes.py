"""Account the outcomes of pushed files, judge each day against plain LRU, and check the caches' RSEs.

**Does:** for every cache to which a plan was pushed `days` ago, joins the receipts with the cache's own
records since then, and writes the bytes saved, spent and wasted per file into the table `outcomes`. Once per
day and cache, the whole day `days` ago is compared with a replay of its reads as plain LRU, into the table
`worth`. Then the RSEs of the caches are checked in Rucio for misuse.

**Runs:** when `pull_accesses` has pulled the accesses of a decision time, for the plans of `days` before. A
day is judged by the first run that finds it not judged yet, for caches whose own records are in `[airflow]
pull`.

**Safe to repeat:** yes; a later run knows more reads.

**When it fails:** nothing is lost: the tables lack these plans, or that day, until the task is cleared or the
next run judges it. `backfill` makes the verdicts that days lack, `cachecast outcomes --cache NAME --day DAY`
one by hand. `rucio_check` fails if an RSE is not safe; its log names the remedy.

**Owner:** the operators of the caches.
"""

from airflow.sdk import task_group

from dags.steps import ACCESSES, CACHE, OUTCOMES, RECEIPTS, after, days_param, listing, pipeline, step

PLANNED = "{{ earlier(as_of(dag_run, params), params.days) }}"
JUDGED = "{{ day(as_of(dag_run, params), [params.days, 1] | max) }}"
days = days_param(2, "age of the plans that are accounted", minimum=0)

with pipeline("verify_outcomes", __doc__, schedule=after(ACCESSES), params={"days": days}):
    caches = listing("caches", {"pushed-at": PLANNED})

    @task_group(group_id="cache")
    def accounted(name: str, rse: str, day: str) -> None:
        """The tasks of one cache."""
        options = {"cache": name, "as-of": PLANNED}
        step("outcomes", options, map_index_template=CACHE, inlets=[RECEIPTS], outlets=[OUTCOMES])

    unjudged = listing("caches", {"unjudged": JUDGED}, task_id="unjudged")

    @task_group(group_id="day")
    def judged(name: str, rse: str, day: str) -> None:
        """The day of one cache."""
        step("outcomes", {"cache": name, "day": day}, task_id="worth", map_index_template=CACHE)

    rses = listing("caches", {"with-rse": True}, task_id="rses")

    @task_group(group_id="rse")
    def looked_after(name: str, rse: str, day: str) -> None:
        """The RSE of one cache."""
        step("rucio check", {"cache": name}, map_index_template=CACHE)

    accounted.expand_kwargs(caches.output)
    judged.expand_kwargs(unjudged.output)
    looked_after.expand_kwargs(rses.output)
