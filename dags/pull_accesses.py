"""Pull the accesses of the region since the last cycle.

**Does:** one task per source of `[airflow] pull` reads the records that are new since the last pull into the
tables `accesses` and `files`. `arrivals` compares what came with what is usual at this hour and weekday: a
source that fell short is named by the webhook, and plans of this decision time say so, or there are none
(`[arrivals] incomplete`). If `rucio_server` is a source, the files of the datasets in use are then pulled
from Rucio. The asset `cachecast_accesses` gets a partition named after the decision time of the run, which
starts `build_features` and `verify_outcomes`.

**Runs:** at the start of every `[features] cycle`. A source of `[airflow] wait` is pulled when its file or
folder is there, or `wait_for` later with what there is; the wait takes no slot.

**Safe to repeat:** yes. Records pulled before are not read again, and duplicates are dropped.

**When it fails:** the features of this cycle wait. The log of the failed source names the cause: a missing
path, a lock left by a dead pull (`cachecast unlock`), or a file system that is unavailable. Repair it and
clear the task; the run of the next cycle also pulls what this one missed. A failure of Rucio stops nothing:
the catalogue stays as it was.

**Owner:** the operators of the caches.
"""

from airflow.providers.standard.operators.empty import EmptyOperator

from dags import alarms
from dags.moments import AS_OF, DAY, LAST_DAY, LAST_HOUR, Arrived, cron
from dags.steps import ACCESSES, ended, listing, on_cron, pipeline, spark_step
from jobs.ground.settings.sections import scheduling
from jobs.ground.settings.sources import SERVER

settings = scheduling()

with pipeline("pull_accesses", __doc__, schedule=on_cron(cron(settings.cycle_s))):
    accesses = EmptyOperator(task_id="accesses", outlets=[ACCESSES])
    catalogue = ended("catalogue")
    records = [
        spark_step(
            "pull",
            {"source": source, "input": path, "day": DAY, "new-only": True},
            task_id=f"pull_{source}",
            trigger_rule="all_done",
        )
        for source, path in settings.airflow.records.items()
    ]
    for source, path in settings.airflow.wait.items():
        named = path.replace("{day}", LAST_DAY).replace("{hour}", LAST_HOUR)
        waited = Arrived(task_id=f"wait_{source}", path=named, within_s=settings.airflow.wait_for)
        waited >> records[list(settings.airflow.records).index(source)]
    if (request := settings.airflow.pull.get(SERVER)) is not None:
        pull = {"source": SERVER, "input": request, "day": DAY}
        records >> spark_step("pull", pull, task_id=f"pull_{SERVER}", retries=1) >> catalogue
    arrivals = listing("arrivals", {"as-of": AS_OF}, on_success_callback=alarms.arrived)
    records >> arrivals
    [*records, catalogue, arrivals] >> accesses
