"""Popularity series of datasets: CSV of `dataset,week,accesses` or `date,dataset,n_accesses`.

Week w begins 7·w days after 1970-01-01: sources number weeks from a start of their own. Other columns are not
kept, but tell rows apart: a dataset may have one per site and week.
"""

from collections.abc import Sequence

from features.schema import ACCESSES
from jobs.loop.ingest.sources import Site, Source, record_fields, sql, urls

_WEEKLY = ("dataset", "week", "accesses")
_DAILY = ("date", "dataset", "n_accesses")
_WEEK_S = 7 * 86400
_MAX_WEEK = 6000


def query(site: Site, header: record_fields.Header) -> sql.Query:
    """Accesses, one row per row of the file that differs, with `n_reads` reads.

    `accessed_at` is the start of the unit, `known_at` its end. Rows that are equal in all named columns are
    one, wherever they stand; so a file that is pulled twice, whole or in parts, changes nothing.
    """
    weekly = set(_WEEKLY) <= set(header.names)
    form = _WEEKLY if weekly else _DAILY
    unit, reads = ("week", "accesses") if weekly else ('"date"', "n_accesses")
    n = sql.count(unit)
    week_s = f"CASE WHEN {n} BETWEEN 0 AND {_MAX_WEEK} THEN {n} * {_WEEK_S} END"
    is_date = f"regexp_full_match({unit}, '[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}')"
    day_s = f"epoch_us(CAST(try_cast({unit} AS DATE) AS TIMESTAMP)) // 1000000"
    date_s = f"CASE WHEN {is_date} AND {day_s} BETWEEN 0 AND {sql.LATEST_S} THEN {day_s} END"
    start_s = week_s if weekly else date_s
    others = sorted({*header.names} - {*form, ""})
    called = [f"other {i}" for i in range(len(others))]
    return sql.Query(
        table=ACCESSES,
        where=header.where,
        prepare=record_fields.csv_columns(header.names, form, others),
        steps=[
            *record_fields.fields([*form, *called]),
            {"start_s": start_s, "n": sql.count(reads), "plain": urls.plain("dataset")},
            *sql.with_parts("plain"),
        ],
        columns=_columns(_WEEK_S if weekly else 86400, called),
        reason=sql.first_reason(
            ("malformed", "malformed CSV"),
            ("dataset IS NULL", "missing field: dataset"),
            ("start_s IS NULL", "unparsable time"),
            ("n IS NULL", "unparsable number of accesses"),
            ("n < 0", "negative number of accesses"),
            ("n = 0", "no accesses"),
        ),
        sample=f"CASE WHEN malformed THEN value ELSE concat_ws(',', dataset, {unit}, {reads}) END",
    )


def _columns(unit_s: int, others: Sequence[str]) -> dict[str, str]:
    end = sql.timestamp(f"(start_s + {unit_s}) * 1000000")
    return sql.named("plain") | {
        "accessed_at": sql.timestamp("start_s * 1000000"),
        "closed_at": end,
        "known_at": end,
        "n_reads": "n",
        "event_id": sql.hashed("plain", "start_s", str(unit_s), "n", *(f'"{name}"' for name in others)),
    }


SOURCE = Source(query, lambda line, path: record_fields.csv_header(line, path, _WEEKLY, _DAILY))
