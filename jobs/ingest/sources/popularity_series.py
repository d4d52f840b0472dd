"""Popularity series of datasets: CSV of `dataset,week,accesses` or `date,dataset,n_accesses`.

Week w begins 7·w days after 1970-01-01: sources number weeks from a start of their own.
"""

from __future__ import annotations

from features.schema import ACCESSES
from jobs.ingest.sources import Site, Source, csv_header, sql

_WEEKLY = ("dataset", "week", "accesses")
_DAILY = ("date", "dataset", "n_accesses")
_WEEK_S = 7 * 86400
_MAX_WEEK = 6000


def query(site: Site, header: csv_header.Header) -> sql.Query:
    """Accesses, one row a dataset and week or day, with `n_reads` reads.

    `accessed_at` is the start of the unit, `known_at` its end.
    """
    weekly = set(_WEEKLY) <= set(header.names)
    unit, reads = ("week", "accesses") if weekly else ('"date"', "n_accesses")
    start_s = _week_s(unit) if weekly else _date_s(unit)
    return sql.Query(
        table=ACCESSES,
        where=header.where,
        prepare=csv_header.csv_columns(header.names, _WEEKLY if weekly else _DAILY),
        steps=[{"start_s": start_s, "n": sql.count(reads)}, *sql.with_parts("dataset")],
        columns=_columns(_WEEK_S if weekly else 86400),
        reason=_reason(),
        sample=f"CASE WHEN malformed THEN value ELSE concat_ws(',', dataset, {unit}, {reads}) END",
    )


def _reason() -> str:
    return sql.first_reason(
        ("malformed", "malformed CSV"),
        ("dataset IS NULL", "missing field: dataset"),
        ("start_s IS NULL", "unparsable time"),
        ("n IS NULL", "unparsable number of accesses"),
        ("n < 0", "negative number of accesses"),
        ("n = 0", "no accesses"),
    )


def _columns(unit_s: int) -> dict[str, str]:
    end = sql.timestamp(f"(start_s + {unit_s}) * 1000000")
    return sql.named("dataset") | {
        "accessed_at": sql.timestamp("start_s * 1000000"),
        "closed_at": end,
        "known_at": end,
        "n_reads": "n",
        "event_id": sql.hashed("dataset", "start_s", str(unit_s)),
    }


def _week_s(week: str) -> str:
    return f"CASE WHEN {sql.count(week)} BETWEEN 0 AND {_MAX_WEEK} THEN {sql.count(week)} * {_WEEK_S} END"


def _date_s(date: str) -> str:
    is_date = f"regexp_full_match({date}, '[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}')"
    start_s = f"epoch_us(CAST(try_cast({date} AS DATE) AS TIMESTAMP)) // 1000000"
    return f"CASE WHEN {is_date} AND {start_s} BETWEEN 0 AND {sql.LATEST_S} THEN {start_s} END"


SOURCE = Source(query, lambda line, path: csv_header.csv_header(line, path, _WEEKLY, _DAILY))
