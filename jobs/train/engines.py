"""Which engine computes features, labels and predictions: this process, or Spark for what exceeds memory."""

from __future__ import annotations

from collections.abc import Callable

from features.schema import ACCESSES
from jobs.settings.tree import Settings
from jobs.spark.java import check_spark, is_submitted
from jobs.store.tables import Tables
from jobs.train.local_engine import LocalEngine
from jobs.train.work import Engine

Choice = Callable[[int], Engine]
"""The engine for so many rows of accesses or features."""


def local(n_rows: int) -> Engine:
    """This process, whatever there is to do."""
    del n_rows
    return LocalEngine()


def by_size(settings: Settings) -> Choice:
    """Spark for more rows than `[features] local_up_to`, and wherever a cluster is configured."""

    def choose(n_rows: int) -> Engine:
        if n_rows <= settings.features.local_up_to and not uses_cluster(settings):
            return LocalEngine()
        from jobs.spark.session import spark_session  # noqa: PLC0415  Spark is loaded where it is used
        from jobs.train.spark_engine import SparkEngine  # noqa: PLC0415

        return SparkEngine(spark_session(settings.spark))

    return choose


def check(settings: Settings, tables: Tables) -> None:
    """Raise ServiceError if Spark may be needed for the accesses in `tables`, and cannot start here."""
    if uses_cluster(settings) or tables.head(ACCESSES).n_rows > settings.features.local_up_to:
        check_spark()


def uses_cluster(settings: Settings) -> bool:
    """Whether a Spark cluster was given: by `[spark] master`, or by spark-submit."""
    return is_submitted() or not settings.spark.master.startswith("local")
