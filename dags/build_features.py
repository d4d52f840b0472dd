"""Compute the features of a cycle from the accesses of the region.

**Does:** runs `cachecast features` for the decision time of the run, from the state of the last cycle. The
asset `cachecast_features` then has a new partition, which starts `place_and_push`.

**Runs:** by Airflow, when `pull_accesses` has pulled the accesses of a decision time.

**Safe to repeat:** yes; it writes the same rows again.

**When it fails:** no plan is made, and the caches continue as plain LRU caches. Repair the cause and clear
the task. For a decision time before the newest state, features are computed from all accesses, which takes
longer.

**Owner:** the operators of the caches.
"""

from dags.moments import AS_OF
from dags.steps import ACCESSES, FEATURES, after, pipeline, spark_step

with pipeline("build_features", __doc__, schedule=after(ACCESSES)):
    spark_step("features", {"as-of": AS_OF}, outlets=[FEATURES])
