"""CMS AAA popularity: what XRootD servers tell of each read (HDFS `…/xrootd/{raw,enr}/gled/`)."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from jobs.ingest.sources import base
from jobs.ingest.sources.cms import read_stream


def read(
    spark: SparkSession, path: str, *, salt: str = "", day: str = "", caches: Sequence[str] = ()
) -> base.Pulled:
    """Accesses of the records at `path`, see `read_stream`. `site` is the client's domain: no more is told.

    Raises InputError if nothing is at `path`.
    """
    return read_stream(spark, path, "cms_aaa", salt=salt, caches=caches, site=F.col("client_domain"))
