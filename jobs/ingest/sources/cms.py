"""What CMS's two popularity streams share: JSON lines of MONIT with the record in `data`, times in ms.

A field is read as `{"data": {"file_lfn": …}}` or as `{"data.file_lfn": …}`. `server_domain` and its like are
what the server knows of itself and of its client.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from features.schema import ACCESSES
from jobs.ingest.sources import base, urls

_TIMES = ("start_time", "end_time", "kafka_timestamp", "timestamp")
_SIZES = ("file_size", "read_bytes", "read_bytes_at_close")
_FIELDS = (
    *("file_lfn", "unique_id", "user_dn", "app_info", "is_transfer", "start_time", "end_time", *_SIZES),
    *("server_host", "server_domain", "client_host", "client_domain", "site_name", "src_experiment_site"),
)
_NAMES = (*(f"data.{name}" for name in _FIELDS), "metadata.kafka_timestamp", "metadata.timestamp")
_UNKNOWN = "(?i)^(unknown|none|null|n/a)?$"


def read_stream(
    spark: SparkSession, path: str, source: str, *, salt: str, caches: Sequence[str], site: Column
) -> base.Pulled:
    """Accesses of the stream `source` at `path`, one row a record; `site` is where the job ran.

    `caches`: hosts and domains of caches; a record whose client is one of them is a cache's own fetch, and
    refused. `known_at` is the metadata's kafka_timestamp, else its timestamp, else end_time. Bytes are the
    greater of read_bytes and read_bytes_at_close, as a lost packet leaves one of them short.
    """
    raw = base.json_fields(base.read_lines(spark, path), _NAMES)
    raw = raw.withColumns(
        {f"{name}_us": base.micros_of_ms(F.col(name)) for name in _TIMES}
        | {f"n_{name}": base.count(F.col(name)) for name in _SIZES}
        | {
            "lfn": urls.plain_path(F.col("file_lfn")),
            "server": _host_name("server"),
            "client": _host_name("client"),
        }
    ).withColumn("known_us", F.coalesce("kafka_timestamp_us", "timestamp_us", "end_time_us"))
    raw = base.with_parts(raw, F.col("lfn"))
    sample = base.without_users(F.col("value"))
    columns = _columns(source, salt, caches) | {"site": site}
    return base.pulled(
        base.parsed_rows(raw, ACCESSES, columns, reason=_reason(caches), sample=sample), ACCESSES, source
    )


def _reason(caches: Sequence[str]) -> Column:
    return base.first_reason(
        (F.col("malformed"), "malformed JSON"),
        (F.lower("is_transfer").isin("true", "1"), "not a read: transfer"),
        (F.lower("app_info").contains("cachecast"), base.OURS),
        (is_one_of(F.col("client"), caches), "client is a cache"),
        *((F.col(n).isNull(), f"missing field: {n}") for n in ("file_lfn", "unique_id", "start_time")),
        *((F.col(n).isNotNull() & F.col(f"{n}_us").isNull(), f"unparsable time: {n}") for n in _TIMES),
        (F.col("known_us").isNull(), "missing field: end_time"),
        *((F.col(n).isNotNull() & F.col(f"n_{n}").isNull(), f"unparsable number: {n}") for n in _SIZES),
        *((F.col(f"n_{n}") < 0, "negative size") for n in _SIZES),
    )


def _columns(source: str, salt: str, caches: Sequence[str]) -> dict[str, Column]:
    lfn, app = F.col("file_lfn"), F.col("app_info")
    served_by_a_cache = is_one_of(F.col("server"), caches)
    origin = F.when(~served_by_a_cache, F.coalesce(_known("server_domain"), _known("src_experiment_site")))
    return base.named(F.col("lfn")) | {
        "cache": F.coalesce(urls.cache_host(lfn), F.when(served_by_a_cache, F.col("server"))),
        "accessed_at": base.timestamp(F.col("start_time_us")),
        "closed_at": base.timestamp(F.col("end_time_us")),
        "known_at": base.timestamp(F.col("known_us")),
        "size_bytes": F.col("n_file_size"),
        "read_bytes": F.greatest("n_read_bytes", "n_read_bytes_at_close"),
        "n_reads": F.lit(1),
        "wall_s": (F.col("end_time_us") - F.col("start_time_us")) / 1e6,
        "origin": F.coalesce(urls.source_host(lfn), origin),
        "user": base.hashed_user(F.col("user_dn"), salt),
        # A CRAB task's name holds its user's, so it is kept as a hash too.
        "task": base.hashed_user(app, salt),
        "activity": F.when(F.lower(app).contains("crab"), "analysis").when(app.isNotNull(), "production"),
        "source": F.lit(source),
        "event_id": base.hashed(F.col("unique_id"), F.col("lfn"), base.seconds_text(F.col("start_time_us"))),
    }


def is_one_of(host: Column, hosts: Sequence[str]) -> Column:
    """Whether `host` is one of `hosts`, or in a domain that is one of them; false for a null."""
    lower = F.lower(host)
    checks = [(lower == name.lower()) | lower.endswith(f".{name.lower()}") for name in hosts]
    return F.coalesce(F.greatest(F.lit(False), F.lit(False), *checks), F.lit(False))


def _host_name(side: str) -> Column:
    """`host.domain` of the server or client; what there is of it, null for neither."""
    host, domain = _known(f"{side}_host"), _known(f"{side}_domain")
    return F.when(host.endswith(domain), host).otherwise(F.nullif(F.concat_ws(".", host, domain), F.lit("")))


def _known(name: str) -> Column:
    return F.when(~F.col(name).rlike(_UNKNOWN), F.col(name))
