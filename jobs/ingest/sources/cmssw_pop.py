"""CMSSW popularity: what CMS's jobs tell of each file that they read (`…/cmssw_pop/raw/metric/`)."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from jobs.ingest.sources import base
from jobs.ingest.sources.cms import read_stream


def read(
    spark: SparkSession, path: str, *, salt: str = "", day: str = "", caches: Sequence[str] = ()
) -> base.Pulled:
    """Accesses of the records at `path`, see `read_stream`. `site` is site_name.

    `fallback` (the job read over the WAN what its site did not have) shows in `origin`, and is not kept.
    Raises InputError if nothing is at `path`.
    """
    return read_stream(spark, path, "cmssw_pop", salt=salt, caches=caches, site=F.col("site_name"))
