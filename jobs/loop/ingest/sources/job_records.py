"""What the sources of jobs share: which records are refused, and the columns of the table `job_records`.

A source's steps end with the columns named in `FIELDS`, and `malformed`.
"""

from collections.abc import Callable, Mapping, Sequence

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from features.common.names import UNFIT_RE2, literal
from features.schema import JOB_RECORDS
from jobs.loop.ingest.sources import Site, sql, urls
from jobs.loop.ingest.sources.lines import MOST_LINE_BYTES, joined
from replay.config import expression

FIELDS = (
    *("id", "start_us", "end_us", "reported_us", "cpu", "wall", "n_cores", "n_bytes", "node", "site", "code"),
    "failed",
)
"""Columns that a source's steps make: an id, times (µs; of its start, end and report), seconds, cores, bytes,
where the job ran, its exit code, and whether it failed. A job that failed early has few of them."""
_LONGEST_S = 60 * 86400
_LONGEST_SPAN_S = 366 * 86400
_MOST_CORES = 4096
_SLACK_S = 60  # clocks of a node and of its batch system differ by less
_MOST_BUSY = 1.2  # threads use somewhat more than the cores that they asked for
_SEVERAL_LINES = r"""^\s*([\[\]{},]|"[A-Za-z0-9_]+"\s*:.*)$"""
_DOCUMENT = r"""^\s*(\[\s*\{|\{.*"jobs"\s*:\s*\[\s*\{)"""
_MOST_OF_A_LINE = 2**17  # records in a line of 16 MiB: none is shorter than 128 bytes
_LONGEST_NAME = 1024
_NO_NAME = "^(?:[{[]|/Expr[(]|(?i:undefined|error|nat)$)"
"""Objects, lists, and what HTCondor writes for an expression, or for what it could not evaluate."""
_SAMPLED = ("site", "node", "start_us", "end_us", "cpu", "wall", "n_cores")


def query(
    source: str,
    site: Site,
    *,
    steps: Sequence[sql.Columns],
    first: Sequence[tuple[str, str]],
    columns: Mapping[str, str],
    where: str = sql.LINES,
    prepare: Callable[[pa.RecordBatch], pa.RecordBatch] | None = None,
    unmeasured: str = "failed",
    of_one_pool: bool = False,
) -> sql.Query:
    """Job records of a source; `columns`: those that it alone knows; `first`: checks before all others.

    Known at the end, else when reported. Only a failed job may lack times and cores; `unmeasured`: its CPU
    time. `of_one_pool`: a job without a site is of this one. Samples name no user.
    """
    columns = {"site": "site", "node": urls.host_name("node"), **columns}
    names = {name: named(columns[name]) for name in ("kind", "site", "node", "dataset")}
    fields = ", ".join(f"coalesce(CAST({name} AS VARCHAR), '')" for name in _SAMPLED)
    return sql.Query(
        table=JOB_RECORDS,
        where=where,
        prepare=prepare or records,
        join=None if prepare else joined,
        steps=steps,
        columns={
            "started_at": sql.timestamp("start_us"),
            "ended_at": sql.timestamp("end_us"),
            "known_at": sql.timestamp("coalesce(end_us, reported_us, start_us)"),
            "cores": "n_cores",
            "cpu_s": "cpu",
            "wall_s": "wall",
            "read_bytes": "n_bytes",
            "failed": "failed",
            "exit_code": "CASE WHEN NOT failed OR code <> 0 THEN code END",
            "event_id": sql.hashed(literal(source), "id"),
            **columns,
            **names,
        },
        reason=_reason(site, first, (columns["task"], *names.values()), unmeasured, of_one_pool),
        sample=f"concat_ws(' ', {fields})",
    )


def _reason(
    site: Site, first: Sequence[tuple[str, str]], names: Sequence[str], unmeasured: str, of_one_pool: bool
) -> str:
    is_part = f"regexp_matches(value, {literal(_SEVERAL_LINES)})"
    unfit = literal(UNFIT_RE2)
    where = named("site") if of_one_pool else f"coalesce({named('site')}, '')"
    elsewhere = f"NOT regexp_full_match({where}, {literal(expression(site.job_sites))})"
    return sql.first_reason(
        (f"malformed AND {is_part}", "a part of a record: its beginning or its end is missing"),
        (f"malformed AND strlen(value) >= {MOST_LINE_BYTES}", "longer than 16 MiB: write one record a line"),
        ("malformed", "malformed record"),
        ("id IS NULL", "missing field: id of the job"),
        *first,
        (f"{names[0]} IS NULL", "missing field: task"),
        ("start_us IS NULL AND NOT failed", "missing field: start"),
        ("end_us IS NULL AND NOT failed", "missing field: end"),
        ("coalesce(start_us, end_us, reported_us) IS NULL", "missing field: any time"),
        ("end_us < start_us", "ends before it starts"),
        (sql.is_ahead("greatest(start_us, coalesce(end_us, reported_us))", site.day), "ends in the future"),
        (f"cpu IS NULL AND NOT ({unmeasured})", "missing field: CPU time"),
        ("wall IS NULL AND NOT failed", "missing field: wall time"),
        ("cpu < 0 OR wall < 0", "negative time"),
        (f"wall > {_LONGEST_S}", "wall time of more than 60 days"),
        (f"wall > (end_us - start_us) / 1e6 + {_SLACK_S}", "wall time longer than from start to end"),
        (f"(end_us - start_us) / 1e6 > {_LONGEST_SPAN_S}", "more than a year from start to end"),
        (f"NOT coalesce(n_cores BETWEEN 1 AND {_MOST_CORES}, failed)", "impossible number of cores"),
        (f"cpu > {_MOST_BUSY} * wall * n_cores + {_SLACK_S}", "CPU time above the wall time of its cores"),
        ("n_bytes < 0", "negative size"),
        (
            " OR ".join(f"strlen({n}) > {_LONGEST_NAME} OR regexp_matches({n}, {unfit})" for n in names),
            f"a name with control characters, or above {_LONGEST_NAME} bytes",
        ),
        *([(elsewhere, "not a job: of another site")] if site.job_sites else []),
    )


def records(batch: pa.RecordBatch) -> pa.RecordBatch:
    """`batch` of lines (value, input) with a line per record.

    A line that is a list of records, or an object with such a list as `jobs`, becomes several.
    """
    if not pc.any(pc.match_substring_regex(batch["value"], _DOCUMENT)).as_py():
        return batch
    is_list = f"regexp_matches(value, {literal(_DOCUMENT)}) AND json_valid(value)"
    listed = "coalesce(nullif(json_extract(value, '$[*]'), []), json_extract(value, '$.jobs[*]'))"
    # What only looks like a list, as by `jobs` within another field, stays the line that it is.
    n = "coalesce(nullif(json_array_length(value), 0), json_array_length(value, '$.jobs'))"
    few = f"CASE WHEN {n} <= {_MOST_OF_A_LINE} THEN {listed} ELSE [] END"
    split = f"(SELECT *, CASE WHEN {is_list} THEN {few} ELSE [] END AS records FROM batch)"
    with duckdb.connect() as database:
        database.register("batch", pa.Table.from_batches([batch]))
        split_lines = database.sql(
            f"SELECT CAST(unnest(records) AS VARCHAR) AS value, input FROM {split} "
            f"UNION ALL SELECT value, input FROM {split} WHERE len(records) = 0"
        ).to_arrow_table()
    return split_lines.combine_chunks().to_batches()[0].cast(batch.schema)


def number(field: str) -> str:
    """A finite number, or text of one, as DOUBLE; null if it is none."""
    value = f"try_cast({field} AS DOUBLE)"
    return f"CASE WHEN isfinite({value}) THEN {value} END"


def cores(*fields: str) -> str:
    """The first of the fields that is a number of cores; 1 if none is stated, null if all are unreadable."""
    stated = f"coalesce({', '.join(fields)})"
    return f"coalesce({', '.join(map(sql.count, fields))}, CASE WHEN {stated} IS NULL THEN 1 END)"


def named(name: str) -> str:
    """`name`, or null if it stands for none."""
    return f"CASE WHEN NOT regexp_matches({name}, {literal(_NO_NAME)}) THEN {name} END"


def first_of(*fields: str) -> str:
    return f"coalesce({', '.join(named(field) for field in fields)})"
