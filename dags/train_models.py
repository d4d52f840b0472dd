"""Train the models anew on what is known by now.

**Does:** computes the labels that have matured and trains one bundle of models for the region; runs, metrics
and models are in MLflow, the bundle under the alias `candidate`. Then `evaluate_and_promote` begins.

**Runs:** weekly, by `[airflow] train`.

**Safe to repeat:** yes; a second run adds a version to MLflow and moves the alias to an equal model.

**When it fails:** the champion goes on serving, until it is older than `[training] max_age`. A training that
MLflow was away for is kept: `cachecast train --resume` brings it in.

**Owner:** the operators of the caches.
"""

from __future__ import annotations

from dags.moments import AS_OF
from dags.steps import CANDIDATE, at, pipeline, spark_step
from jobs.settings.airflow import scheduling

with pipeline("train_models", __doc__, schedule=at(scheduling().airflow.train), is_long=True):
    spark_step("train", {"as-of": AS_OF}, outlets=[CANDIDATE])
