"""Compute what the models see, from the accesses of the region.

**Does:** `cachecast features` for the run's moment, from the state that the last cycle left; then the asset
`cachecast_features` has a new partition, and `place_and_push` begins.

**Runs:** Airflow starts it when `pull_accesses` has brought a moment's accesses.

**Safe to repeat:** yes, the same rows come again.

**When it fails:** no plan is made, the caches go on as plain LRU caches. A moment that lies before the newest
state is computed from the accesses, which takes longer. Mend the cause and clear the task.

**Owner:** the operators of the caches.
"""

from __future__ import annotations

from dags.moments import AS_OF
from dags.steps import ACCESSES, FEATURES, after, pipeline, spark_step

with pipeline("build_features", __doc__, schedule=after(ACCESSES)):
    spark_step("features", {"as-of": AS_OF}, outlets=[FEATURES])
