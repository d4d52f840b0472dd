"""ATLAS's daily popularity roll-up: TSV, one row a day, user, dataset, RSE and kind of event.

Columns in this order, or as a header line tells; `created_at` may be absent. Of no use here are project,
datatype, run_number, stream_name, prod_step, version, distinct_files and panda_jobs; and bytes, length and
created_at, which are the dataset's own, joined from Rucio's dump of DIDs (`rucio_popularity.pig` of
ATLAS-Analytics/popularity_analysis): nobody counted the bytes that were read.
"""

from features.common.errors import SchemaError
from features.common.times import DAY_S
from features.schema import ACCESSES
from jobs.loop.ingest.sources import Site, Source, rucio_traces, sql
from jobs.loop.ingest.sources.record_fields import Header

_COLUMNS = (
    *("timestamp", "user", "scope", "name", "project", "datatype", "run_number", "stream_name", "prod_step"),
    *("version", "eventtype", "rse", "bytes", "length", "ops", "file_ops", "distinct_files", "panda_jobs"),
    "created_at",
)
_NEEDED = ("timestamp", "scope", "name", "eventtype", "ops", "file_ops")
_NUMBERS = ("ops", "file_ops")
_NO_READ = sql.first_words(
    ("malformed", "'malformed TSV'"),
    *((f'"{name}" IS NULL', f"'missing field: {name}'") for name in _NEEDED[:4]),
    rucio_traces.not_a_read("eventtype"),
)
_WRONG = sql.first_reason(
    ("start_us IS NULL", "unparsable time: timestamp"),
    *((f"{n} IS NOT NULL AND n_{n} IS NULL", f"unparsable number: {n}") for n in _NUMBERS),
    *((f"n_{n} < 0", f"negative number: {n}") for n in _NUMBERS),
    ("coalesce(n_reads, 0) = 0", "no accesses"),
)
_BUCKET = """CAST('0x' || left(md5(coalesce("user", '')), 2) AS INTEGER) % 64"""


def header(line: str, path: str) -> Header:
    """The columns that the first line names, or those of a file without such a line. Raises SchemaError."""
    names = line.split("\t")
    stated = _COLUMNS[: max(len(names), len(_COLUMNS) - 1)]
    header = Header(names, line) if "timestamp" in names else Header(stated)
    if missing := sorted(set(_NEEDED) - set(header.names)):
        raise SchemaError(f"{path}: columns {missing} are missing; there are {list(header.names)}")
    return header


def query(site: Site, header: Header) -> sql.Query:
    """Accesses of the roll-up, one row a line; `did` and `dataset` are the dataset.

    `n_reads` is file_ops, so that it counts the reads of files as every other source does; ops where it is 0
    or empty. `accessed_at` is timestamp (a day), `known_at` a day later.
    """
    parsed = {"start_us": sql.micros_of_text('"timestamp"'), "bucket": _BUCKET}
    parsed |= {f"n_{name}": sql.count(name) for name in _NUMBERS}
    # Without the user, whom a sample must not show.
    fields = ", ".join(f"""coalesce("{name}", '')""" for name in (*_NEEDED[:4], "rse", *_NEEDED[4:]))
    texts = {
        name: sql.word(sql.text(f"fields[{header.names.index(name) + 1}]"))
        if name in header.names
        else "CAST(NULL AS VARCHAR)"
        for name in _COLUMNS
    }
    return sql.Query(
        table=ACCESSES,
        where=header.where,
        steps=[
            {"fields": "string_split(value, chr(9))"},
            {"malformed": f"len(fields) <> {len(header.names)}", **texts},
            parsed,
            {"n_reads": "coalesce(nullif(n_file_ops, 0), n_ops)"},
            *sql.with_parts('"name"', "scope"),
        ],
        columns=_columns(site.salt),
        reason=f"coalesce({_NO_READ}, {_WRONG})",
        sample=f"concat_ws(chr(9), {fields})",
    )


def _columns(salt: str) -> dict[str, str]:
    named = sql.named('"name"', "scope")
    # The user only by one of 64 buckets: an unsalted hash of the whole name could be looked up, and a salted
    # one would make another event of the row under another salt.
    left_out = ("user", "bytes", "length", "created_at")  # an open dataset grows until it is published again
    identifying = [f'"{name}"' for name in _COLUMNS if name not in left_out]
    return named | {
        "dataset": named["did"],
        "accessed_at": sql.timestamp("start_us"),
        "known_at": sql.timestamp(f"start_us + {DAY_S * 1_000_000}"),
        "n_reads": "n_reads",
        "origin": "rse",
        "user": sql.hashed_user('"user"', salt),
        "activity": rucio_traces.activity("eventtype", '"user"'),
        "event_id": sql.hashed(*identifying, "bucket"),
    }


SOURCE = Source(query, header)
