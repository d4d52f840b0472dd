"""Scan a cache's namespace: its inventory into contents, the records in its cinfo files into accesses.

Runs on the cache's host. A second scan changes nothing unless the cache changed.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from features.errors import ConfigError, InputError
from features.schema import ACCESSES, CONTENTS
from features.times import as_of_label
from jobs.caches.inventory import check_loss
from jobs.ingest import namespace_files
from jobs.ingest.raw_input import Request
from jobs.ingest.sources import xcache_cinfo
from jobs.ingest.sources.site import Site
from jobs.ingest.spark_engine import merge, rows_of
from jobs.settings.tree import Settings
from jobs.spark import table_io
from jobs.spark.session import spark_session
from jobs.store.keys import MomentKey
from jobs.store.schema_check import checked_key
from jobs.store.tables import Tables


@dataclasses.dataclass(frozen=True)
class ScanSummary:
    """One cache's inventory at `as_of`, and the accesses in its cinfo files.

    `open`: files a client holds open; `new_accesses`: rows that changed the accesses table. `n_rejected`:
    files and access records left out, by reason.
    """

    cache: str
    as_of: str
    files: int
    bytes_on_disk: int
    complete: int
    open: int
    new_accesses: int
    known_accesses: int
    n_rejected: Mapping[str, int]
    days: tuple[str, ...]


def run(
    settings: Settings,
    *,
    namespace: Path | None,
    spaces: Sequence[Path],
    cache: str,
    as_of_s: int | None,
    force: bool = False,
) -> ScanSummary:
    """Read a cache's inventory and accesses from its namespace; `as_of_s` defaults to now.

    `namespace` and `spaces` default to those of the cache's settings; `force`: however many bytes are
    missing. Raises ConfigError, and as `scan`.
    """
    if namespace is None:
        known = settings.cache(cache)
        namespace, spaces = known.namespace, spaces or known.spaces
    if namespace is None:
        raise ConfigError(f"caches.{cache}.namespace", "is not set; set it, or give --namespace")
    tables, at_s = Tables(settings.tables.root), int(time.time()) if as_of_s is None else as_of_s
    _check(tables, namespace, MomentKey.at(at_s, cache))
    return scan(
        spark_session(settings.spark),
        tables,
        namespace=namespace,
        spaces=spaces,
        cache=cache,
        as_of_s=at_s,
        lost_share=1.0 if force else settings.plan.lost_share,
    )


def _check(tables: Tables, namespace: Path, key: MomentKey) -> None:
    """Raise before Spark starts what `scan` would raise after it: InputError, SchemaError, ServiceError."""
    checked_key(CONTENTS, key)
    tables.check_writable(CONTENTS, ACCESSES)
    try:
        os.scandir(namespace).close()
    except OSError as error:
        raise InputError(
            f"cannot read namespace {namespace}: {error.strerror}; give the folder of the cache's files"
        ) from None


def scan(
    spark: SparkSession,
    tables: Tables,
    *,
    namespace: Path,
    cache: str,
    as_of_s: int,
    spaces: Sequence[Path] = (),
    lost_share: float = 1.0,
) -> ScanSummary:
    """Replace the contents of `cache` at `as_of_s`, and merge the accesses.

    `spaces`: folders that links of the namespace may lead to. Raises SchemaError for a name no cache can
    have, InputError if there is no folder `namespace`, ConflictError if a pull is at work on these tables,
    LimitError if more than `lost_share` of the bytes of the last inventory is gone; nothing is written then.
    """
    key = checked_key(CONTENTS, MomentKey.at(as_of_s, cache))
    files = namespace_files.files(spark, namespace, spaces)
    held = _held(files)
    check_loss(tables, cache, held_bytes=held["bytes_on_disk"], at_s=as_of_s, share=lost_share)
    input = namespace.absolute().as_uri()
    request = Request("xcache_cinfo", input, Site(day=day_of(as_of_s).isoformat()))
    merged = merge(spark, tables, request, lambda: rows_of(files, xcache_cinfo.query(cache, input)))
    table_io.replace(namespace_files.contents(files, cache, as_of_s), tables, CONTENTS, cover=[key])
    return ScanSummary(
        cache=cache,
        as_of=as_of_label(as_of_s),
        **held,
        new_accesses=merged.n_new,
        known_accesses=merged.n_duplicates,
        n_rejected=merged.n_rejected,
        days=merged.days,
    )


def day_of(at_s: int) -> dt.date:
    """The UTC day of seconds since 1970."""
    return dt.datetime.fromtimestamp(at_s, dt.UTC).date()


def _held(files: DataFrame) -> dict[str, int]:
    held = files.filter(F.col("fault").isNull())
    counted = held.agg(
        F.count("*").alias("files"),
        F.coalesce(F.sum("bytes_on_disk"), F.lit(0)).alias("bytes_on_disk"),
        F.count_if("complete").alias("complete"),
        F.count_if("open").alias("open"),
    ).first()
    assert counted is not None
    return counted.asDict()
