"""Train new models from the accesses known so far.

**Does:** computes the labels that have matured and trains one bundle for the region: a model per horizon, and
an order of eviction for the stewards of its caches. Runs, metrics and models are recorded in MLflow; the
bundle gets the alias `candidate`. Then `evaluate_and_promote` starts.

**Runs:** weekly, by `[airflow] train`.

**Safe to repeat:** yes; a second run adds a version to MLflow and moves the alias to an identical model.

**When it fails:** the champion continues to serve until it is older than `[training] max_age`. If MLflow was
unavailable, the trained bundle waits in `[training] spool`, and the task is retried.

**Owner:** the operators of the caches.
"""

from dags.moments import AS_OF
from dags.steps import CANDIDATE, FEATURES, LONG, on_cron, pipeline, spark_step
from jobs.ground.settings.sections import scheduling

with pipeline("train_models", __doc__, schedule=on_cron(scheduling().airflow.train), is_long=True):
    spark_step("train", {"as-of": AS_OF}, inlets=[FEATURES], outlets=[CANDIDATE], pool=LONG)
