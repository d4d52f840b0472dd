"""Rucio traces: JSON lines as Rucio's tracer and its HDFS archive hold them (`traces.YYYY-MM-DD*`).

Reads are get, get_sm, sm_get, their `_a` twins (analysis jobs) and download. States that count as done are
DONE, FOUND and FOUND_ROOT (read remotely by the job); a trace without a state counts as done.
"""

from __future__ import annotations

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from features.schema import ACCESSES
from jobs.sources import base

_READS = ("get", "get_sm", "sm_get", "get_sm_a", "sm_get_a", "download")
_JOBS = ("get_sm", "sm_get")
_DONE = ("DONE", "FOUND", "FOUND_ROOT")
_TIMES = ("transferStart", "timeStart", "transferEnd", "timeEnd", "traceTimeentryUnix")
_FIELDS = (
    *("eventType", "scope", "filename", "dataset", "datasetScope", "localSite", "remoteSite", "filesize"),
    *("clientState", "url", "usr", "usrdn", "account", "uuid", "appid", "taskid", *_TIMES),
)
_NOBODY = "(?i)robot|pilot|prod|ddmadmin|^root$"
# root://cache:1094//root://origin:1094//path, with or without a user before the host
_PROTOCOL = "(?:xroots?|roots?|https?|davs?)"
_HOST = "(?:[^/@]*@)?([^/@]+)"
_THROUGH_CACHE = f"^{_PROTOCOL}://{_HOST}/+{_PROTOCOL}://{_HOST}/"
_DIRECT = f"^{_PROTOCOL}://{_HOST}/"


def read(spark: SparkSession, path: str, *, salt: str = "", day: str = "") -> base.Pulled:
    """Accesses of the traces at `path`: one row a trace of a read.

    `accessed_at` is transferStart, else timeStart; `known_at` traceTimeentryUnix, else the end of the
    transfer. `task` is taskid, else appid (the PanDA job). `read_bytes` is the size where the file was
    copied, null where the job read it remotely. Raises InputError if nothing is at `path`.
    """
    raw = base.json_fields(base.read_lines(spark, path), _FIELDS)
    for name in _TIMES:
        raw = raw.withColumn(f"{name}_s", base.seconds(F.col(name)))
    raw = raw.withColumns(
        {
            "start_s": F.coalesce("transferStart_s", "timeStart_s"),
            "end_s": F.coalesce("transferEnd_s", "timeEnd_s"),
            "size": base.count(F.col("filesize")),
        }
    ).withColumn("known_s", F.coalesce("traceTimeentryUnix_s", "end_s"))
    raw = base.with_parts(raw, F.col("filename"), F.col("scope"))
    rows = base.parsed_rows(raw, ACCESSES, _columns(salt), reason=_reason(), sample=F.col("value"))
    return base.pulled(rows, ACCESSES, "rucio_traces")


def _reason() -> Column:
    kind = F.col("eventType")
    return base.first_reason(
        (F.col("malformed"), "malformed JSON"),
        *((F.col(name).isNull(), f"missing field: {name}") for name in ("eventType",)),
        (~kind.isin(*_READS), _bounded("not a read: ", kind, "^[a-z_]{1,20}$")),
        (_is_ours(), base.OURS),
        (
            ~F.col("clientState").isin(*_DONE),
            _bounded("transfer not done: ", F.col("clientState"), "^[A-Z_]{1,40}$"),
        ),
        *((F.col(name).isNull(), f"missing field: {name}") for name in ("scope", "filename", "uuid")),
        *(
            (F.col(name).isNotNull() & F.col(f"{name}_s").isNull(), f"unparsable time: {name}")
            for name in _TIMES
        ),
        (F.col("start_s").isNull(), "missing field: transferStart"),
        (F.col("known_s").isNull(), "missing field: traceTimeentryUnix"),
        (F.col("filesize").isNotNull() & F.col("size").isNull(), "unparsable size"),
        (F.col("size") < 0, "negative size"),
    )


def _columns(salt: str) -> dict[str, Column]:
    url, kind, scope = F.col("url"), F.col("eventType"), F.col("scope")
    remote = F.col("clientState") == "FOUND_ROOT"
    named = base.named(F.col("filename"), scope)
    told = F.when(
        ~F.col("dataset").isin("None", "unknown", "[]"),
        F.when(F.col("dataset").contains(":"), F.col("dataset")).otherwise(
            F.concat(F.coalesce("datasetScope", "scope"), F.lit(":"), F.col("dataset"))
        ),
    )
    return named | {
        "dataset": F.coalesce(told, named["dataset"]),
        "site": F.col("localSite"),
        "cache": F.nullif(F.regexp_extract(url, _THROUGH_CACHE, 1), F.lit("")),
        "accessed_at": base.timestamp(F.col("start_s")),
        "closed_at": base.timestamp(F.col("end_s")),
        "known_at": base.timestamp(F.col("known_s")),
        "size_bytes": F.col("size"),
        "read_bytes": F.when(~F.coalesce(remote, F.lit(False)), F.col("size")),
        "n_reads": F.lit(1),
        "wall_s": (F.col("end_s") - F.col("start_s")).cast("double"),
        "origin": F.coalesce(
            F.nullif(F.regexp_extract(url, _THROUGH_CACHE, 2), F.lit("")),
            F.col("remoteSite"),
            F.nullif(F.regexp_extract(url, _DIRECT, 1), F.lit("")),
        ),
        "user": base.hashed_user(F.coalesce("usr", "usrdn", "account"), salt),
        "task": F.coalesce("taskid", "appid"),
        "activity": F.when(kind.endswith("_a") | _by_a_person(), "analysis").otherwise("production"),
        "source": F.lit("rucio_traces"),
        "event_id": base.hashed(F.col("uuid"), scope, F.col("filename"), F.col("start_s")),
    }


def _by_a_person() -> Column:
    """A get or download outside the production system, by a user who is no robot."""
    who = F.coalesce("usrdn", "usr", "account")
    return ~F.col("eventType").isin(*_JOBS) & F.coalesce(~who.rlike(_NOBODY), F.lit(False))


def _is_ours() -> Column:
    return F.coalesce(*(F.nullif(F.col(n) == "cachecast", F.lit(False)) for n in ("appid", "usr", "account")))


def _bounded(words: str, value: Column, form: str) -> Column:
    """`words` and `value`; a value of another form than `form` is `other`, so that reasons stay few."""
    return F.concat(F.lit(words), F.when(value.rlike(form), value).otherwise("other"))
