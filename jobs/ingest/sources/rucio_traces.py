"""Rucio traces: JSON lines as Rucio's tracer and its HDFS archive hold them (`traces.YYYY-MM-DD*`).

Reads are get, get_sm, sm_get, their `_a` twins (analysis jobs) and download. States that count as done are
DONE, FOUND and FOUND_ROOT (read remotely by the job); a trace without a state counts as done.
"""

from __future__ import annotations

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from features.schema import ACCESSES
from jobs.ingest.sources import base, rucio_events, urls

_DONE = ("DONE", "FOUND", "FOUND_ROOT")
_TIMES = ("transferStart", "timeStart", "transferEnd", "timeEnd", "traceTimeentryUnix")
_FIELDS = (
    *("eventType", "scope", "filename", "dataset", "datasetScope", "localSite", "remoteSite"),
    *("clientState", "url", "usr", "usrdn", "account", "uuid", "appid", "taskid"),
)


def read(spark: SparkSession, path: str, *, salt: str = "", day: str = "") -> base.Pulled:
    """Accesses of the traces at `path`: one row a trace of a read.

    `accessed_at` is transferStart, else timeStart; `known_at` traceTimeentryUnix, else the end of the
    transfer. `task` is taskid, else appid (the PanDA job). `read_bytes` is the size where the file was
    copied, null where the job read it remotely. Raises InputError if nothing is at `path`.
    """
    raw = base.json_fields(base.read_lines(spark, path), _FIELDS, times=_TIMES, counts=("filesize",))
    raw = raw.withColumns(
        {
            "start_us": F.coalesce("transferStart", "timeStart"),
            "end_us": F.coalesce("transferEnd", "timeEnd"),
            "known_us": F.coalesce("traceTimeentryUnix", "transferEnd", "timeEnd"),
        }
    )
    raw = base.with_parts(raw, F.col("filename"), F.col("scope"))
    rows = base.parsed_rows(
        raw, ACCESSES, _columns(salt), reason=_reason(), sample=base.without_users(F.col("value"))
    )
    return base.pulled(rows, ACCESSES, "rucio_traces")


def _reason() -> Column:
    kind = F.col("eventType")
    return base.first_reason(
        (F.col("malformed"), "malformed JSON"),
        *((F.col(name).isNull(), f"missing field: {name}") for name in ("eventType",)),
        rucio_events.not_a_read(kind),
        (_is_ours(), base.OURS),
        (
            ~F.col("clientState").isin(*_DONE),
            rucio_events.bounded("transfer not done: ", F.col("clientState"), "^[A-Z_]{1,40}$"),
        ),
        *((F.col(name).isNull(), f"missing field: {name}") for name in ("scope", "filename", "uuid")),
        *((F.col("unparsable") == name, f"unparsable time: {name}") for name in _TIMES),
        (F.col("start_us").isNull(), "missing field: transferStart"),
        (F.col("known_us").isNull(), "missing field: traceTimeentryUnix"),
        (F.col("unparsable") == "filesize", "unparsable size"),
        (F.col("filesize") < 0, "negative size"),
    )


def _columns(salt: str) -> dict[str, Column]:
    url, kind, scope = F.col("url"), F.col("eventType"), F.col("scope")
    remote = F.col("clientState") == "FOUND_ROOT"
    named = base.named(F.col("filename"), scope)
    dataset = F.when(
        ~F.col("dataset").isin("None", "unknown", "[]"),
        F.when(F.col("dataset").contains(":"), F.col("dataset")).otherwise(
            F.concat(F.coalesce("datasetScope", "scope"), F.lit(":"), F.col("dataset"))
        ),
    )
    return named | {
        "dataset": F.coalesce(dataset, named["dataset"]),
        "site": F.col("localSite"),
        "cache": urls.cache_host(url),
        "accessed_at": base.timestamp(F.col("start_us")),
        "closed_at": base.timestamp(F.col("end_us")),
        "known_at": base.timestamp(F.col("known_us")),
        "size_bytes": F.col("filesize"),
        "read_bytes": F.when(~F.coalesce(remote, F.lit(False)), F.col("filesize")),
        "n_reads": F.lit(1),
        "wall_s": (F.col("end_us") - F.col("start_us")) / 1e6,
        "origin": F.coalesce(urls.origin_host(url), F.col("remoteSite"), urls.first_host(url)),
        "user": base.hashed_user(F.coalesce("usr", "usrdn", "account"), salt),
        "task": F.coalesce("taskid", "appid"),
        "activity": rucio_events.activity(kind, F.coalesce("usrdn", "usr", "account")),
        "source": F.lit("rucio_traces"),
        "event_id": base.hashed(
            F.col("uuid"), scope, F.col("filename"), base.seconds_text(F.col("start_us"))
        ),
    }


def _is_ours() -> Column:
    return F.coalesce(*(F.nullif(F.col(n) == "cachecast", F.lit(False)) for n in ("appid", "usr", "account")))
