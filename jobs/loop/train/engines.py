"""Which engine computes features, labels and predictions: this process, or Spark for what exceeds memory."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from features.schema import ACCESSES
from jobs.ground.settings.tree import Settings, SparkSettings
from jobs.ground.spark.java import check_spark, is_submitted
from jobs.ground.store.tables import Tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from jobs.loop.train.work import Engine


@dataclasses.dataclass(frozen=True)
class Engines:
    """This process for up to `local_up_to` rows, else Spark; always Spark where a cluster is configured."""

    local_up_to: int
    settings: SparkSettings

    @classmethod
    def of(cls, settings: Settings) -> Engines:
        """As configured by `[features] local_up_to` and `[spark]`."""
        return cls(settings.features.local_up_to, settings.spark)

    def is_local(self, n_rows: int) -> bool:
        """Whether `n_rows` rows are computed in this process."""
        is_cluster = is_submitted() or not self.settings.master.startswith("local")
        return n_rows <= self.local_up_to and not is_cluster

    def engine(self, n_rows: int) -> Engine:
        """The engine for `n_rows` rows of accesses: this process, or Spark."""
        from jobs.loop.train.local_engine import LocalEngine  # noqa: PLC0415  each engine is loaded where it is used

        if self.is_local(n_rows):
            return LocalEngine()
        from jobs.loop.train.spark_engine import SparkEngine  # noqa: PLC0415

        return SparkEngine(self.spark())

    def spark(self) -> SparkSession:
        """Spark, started if it does not run."""
        from jobs.ground.spark.session import spark_session  # noqa: PLC0415

        return spark_session(self.settings)

    def check(self, tables: Tables) -> None:
        """Raise ServiceError if Spark may be needed for the accesses in `tables`, and cannot start here."""
        if not self.is_local(tables.head(ACCESSES).n_rows):
            check_spark()
