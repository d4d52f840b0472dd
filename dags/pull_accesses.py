"""Pull what the caches' region has read since the last cycle.

**Does:** one task per source of `[airflow] pull` reads the records that are new since the last pull into the
tables `accesses` and `files`; then Rucio, where `rucio_server` is a source, is asked for the files of the
datasets in use. The asset `cachecast_accesses` has a new partition, named by the run's moment, and
`build_features` and `verify_outcomes` begin.

**Runs:** at the begin of every `[features] cycle`.

**Safe to repeat:** yes. What is already there is not read again, and duplicates drop.

**When it fails:** the features of this cycle wait. Read the log of the failed source: a path that is not
there, a lock that a dead pull left (`cachecast unlock`), a file system that is away. Mend it and clear the
task; the next cycle's run pulls what this one has not. Rucio's failure keeps nothing: the catalogue stays as
it was last told.

**Owner:** the operators of the caches.
"""

from __future__ import annotations

from airflow.providers.standard.operators.empty import EmptyOperator

from dags.moments import DAY, cron
from dags.steps import ACCESSES, at, ended, pipeline, spark_step
from jobs.settings.airflow import scheduling

told = scheduling()

with pipeline("pull_accesses", __doc__, schedule=at(cron(told.cycle_s))):
    accesses = EmptyOperator(task_id="accesses", outlets=[ACCESSES])
    catalogue = ended("catalogue")
    records = [
        spark_step(
            "pull",
            {"source": source, "input": path, "day": DAY, "new-only": True},
            task_id=f"pull_{source}",
        )
        for source, path in told.airflow.records.items()
    ]
    for source, asked in told.airflow.servers.items():
        answer = spark_step(
            "pull", {"source": source, "input": asked, "day": DAY}, task_id=f"pull_{source}", retries=1
        )
        records >> answer >> catalogue
    [*records, catalogue] >> accesses
