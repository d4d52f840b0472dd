"""What the definitions of sources are made of: DuckDB expressions, each a text.

A definition is a `Query`: how raw records become rows of a table, each with a reason if it is refused. It is
the same text wherever it runs (see `jobs.loop.ingest.sources.workspace`).
"""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Callable, Iterable, Mapping, Sequence

import pyarrow as pa

from features.common.errors import bounded
from features.common.names import NO_NAMES, literal
from features.schema import ACCESSES, Table
from jobs.loop.ingest.sources import Site, urls
from replay.config import expression

SAMPLE_CHARS = 200
OURS = "our own prefetch or touch"
FUTURE = "in the future"
_AHEAD_DAYS = 366  # a pull may be dated before its records, as one that is repeated, but not by years
TEST_FILE = "not a read: a test file of monitoring"
# No record tells of 32 PiB or 16 million reads; of a few that did, sums (2^32 a read) would not fit.
MOST_BYTES = 2**55
MOST_READS = 2**24
_MOST = dict.fromkeys(("size_bytes", "read_bytes", "bytes_hit", "bytes_missed"), MOST_BYTES)
_MOST["n_reads"] = MOST_READS
# Seconds since 1970 that a record can have: up to the year 2100. Milliseconds fall outside, and are refused.
LATEST_S = 4102444800
# Milliseconds start in September 2001: seconds of our days would be January 1970.
EARLIEST_MS = 10**12
# Fields of JSON records that name a person, with their value.
_PEOPLE = "usr|usrdn|account|user|user_dn|username|app_info|tid|token_subject|token_username|remote_ip"
_PERSON = f'"((?:data[.])?(?:{_PEOPLE}))"[ ]*:[ ]*"(?:[^"\\\\]|\\\\.)*("|$)'
_WHOLE_NUMBER = "[ ]*[+-]?[0-9]{1,19}(?:[.]0*)?[ ]*"
_POWER_OF_TEN = "[ ]*[+-]?[0-9]{1,19}(?:[.][0-9]*)?[eE][+-]?[0-9]{1,3}[ ]*"
_DATE, _TIME = "[0-9]{4}-[0-9]{2}-[0-9]{2}", "[0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.,][0-9]{1,9})?"
_MOMENT = f"{_DATE}(?:[T ]{_TIME}(?:Z| UTC|[+-][0-9]{{2}}(?::?[0-9]{{2}})?)?)?"
# As a pattern: DuckDB makes a join of each list of many words.
_LONGEST_NUMBER = 24
_LONGEST_NO_NAME, _NO_NAME = max(map(len, NO_NAMES)), literal(expression(NO_NAMES))
Columns = Mapping[str, str]  # expressions by the name of their column
with_parts, named = urls.with_parts, urls.named


@dataclasses.dataclass(frozen=True)
class Query:
    """How raw records become rows of `table`.

    `steps`: columns that are added one step after the other, the first to the raw records; a raw record for
    which `where` does not hold counts as none. `columns`: by name, those of the table that the source knows.
    `reason` is null for an accepted record; `sample` shows a refused one. `prepare` turns a batch of raw
    lines (`value`, `input`) into what the first step needs; `join` makes batches of whole records of a
    stream of batches in which a record may go over several lines. `site`: its test files are refused, its
    scopes and its day count. Raises ValueError for a column of no table.
    """

    table: Table
    steps: Sequence[Columns]
    columns: Columns
    reason: str
    sample: str
    where: str = "true"
    prepare: Callable[[pa.RecordBatch], pa.RecordBatch] | None = None
    join: Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]] | None = None
    site: Site = dataclasses.field(default_factory=Site)

    def __post_init__(self) -> None:
        if unknown := sorted(self.columns.keys() - {*self.table.column_names, *ACCESSES.column_names}):
            raise ValueError(
                f"the table {self.table.name} has no column {bounded(repr(unknown[0]), 100)}; it has "
                + ", ".join(self.table.column_names)
            )

    def reading(self, site: Site) -> Query:
        """The same without reads of the test files of `site`, and with its scopes and day."""
        return dataclasses.replace(self, site=site)

    @property
    def text(self) -> str:
        """A SELECT over `raw`: the table's columns, `reason`, `sample` and `input`.

        A refused row keeps only its verdict, so that what is kept in memory is small.
        """
        columns = urls.scoped(_in_order(self.columns), self.site.scopes)
        impossible = [
            (f"{columns[name]} > {most}", f"impossible {name}")
            for name, most in _MOST.items()
            if name in columns
        ]
        nameless = []
        if (name := columns.get("name")) is not None:
            is_none = f"regexp_full_match({name}, '/?(?:' || {_NO_NAME} || ')?')"
            nameless = [(f"strlen({name}) <= {_LONGEST_NO_NAME + 1} AND {is_none}", "missing field: name")]
        tests = []
        if self.table == ACCESSES and self.site.test_files:
            is_test = f"regexp_full_match({columns['name']}, {literal(expression(self.site.test_files))})"
            tests = [(is_test, TEST_FILE)]
        at = columns.get("accessed_at", columns["known_at"])  # old records may be published today
        ahead = is_ahead(f"epoch_us({at})", self.site.day)
        others = first_reason(*nameless, *impossible, (ahead, FUTURE), *tests)
        steps = [*self.steps, {"reason": f"coalesce({self.reason}, {others})"}]
        text = with_steps(f"SELECT * FROM raw WHERE {self.where}", steps)
        fields = [
            f'CASE WHEN reason IS NULL THEN {columns[column.name]} END AS "{column.name}"'
            if column.name in columns
            else f'NULL AS "{column.name}"'
            for column in self.table.columns
        ]
        sample = f"left({urls.without_secrets(self.sample)}, {SAMPLE_CHARS})"
        cut = f"CASE WHEN reason IS NOT NULL THEN {sample} END AS sample"
        return f"SELECT {', '.join(fields)}, reason, {cut}, input FROM ({text})"


def with_steps(text: str, steps: Iterable[Columns]) -> str:
    """The SELECT `text` with the columns of `steps`, added one step after the other."""
    for step in filter(None, steps):
        added = ", ".join(f'{expression} AS "{name}"' for name, expression in step.items())
        text = f"SELECT *, {added} FROM ({text})"
    return text


def is_ahead(us: str, day: str) -> str:
    """Whether a time is a year after the begin of `day`, or later, which no pull of it holds; else false."""
    if not day:
        return "false"
    last = dt.datetime.fromisoformat(day).replace(tzinfo=dt.UTC) + dt.timedelta(days=_AHEAD_DAYS)
    return f"{us} >= {int(last.timestamp()) * 1_000_000}"


def _in_order(columns: Columns) -> dict[str, str]:
    """`columns` with `known_at` not before the start, and null for an end or duration that cannot be.

    A row is one read, unless `columns` count them.
    """
    if "accessed_at" not in columns:
        return dict(columns)
    start = columns["accessed_at"]
    ordered = {"known_at": f"greatest({columns['known_at']}, {start})"}
    if "closed_at" in columns:
        last = f"{start} + INTERVAL {_AHEAD_DAYS} DAY"
        end = columns["closed_at"]
        ordered["closed_at"] = f"CASE WHEN {end} BETWEEN {start} AND {last} THEN {end} END"
    if "wall_s" in columns:
        wall, most = columns["wall_s"], _AHEAD_DAYS * 86400
        ordered["wall_s"] = f"CASE WHEN {wall} BETWEEN 0 AND {most} THEN {wall} END"
    return {"n_reads": "1", **columns, **ordered}


LINES = "CASE WHEN starts_with(value, ' ') THEN trim(value, ' ') ELSE value END <> ''"
"""The `where` of sources of lines: blank ones count as none."""


def with_words(columns: Mapping[str, str]) -> list[Columns]:
    """Steps that add the columns that `columns` names, each the `word` of the text column that it names.

    Few records have a text that is not its own word: only for those are words worked out, for all columns in
    one expression, as planning many of them takes as long as parsing thousands of records.
    """
    texts = [f'"{field}"' for field in columns.values()]
    if len(texts) < 2:
        return [{name: word(field) for name, field in zip(columns, texts, strict=True)}]
    all_words = f"list_transform([{', '.join(texts)}], lambda t: {word('t')})"
    checks = (_is_none, _may_be_list, _may_be_number)
    is_odd = " OR ".join(f"({check(field)})" for field in texts for check in checks)
    return [
        {"words": f"CASE WHEN {is_odd} THEN {all_words} END"},
        {
            name: f"CASE WHEN words IS NULL THEN {field} ELSE words[{n}] END"
            for n, (name, field) in enumerate(zip(columns, texts, strict=True), start=1)
        },
    ]


def text(field: str) -> str:
    """`field` without spaces around it; null if nothing is left."""
    # Trimming costs much more than to see that there is nothing to trim. Less than '!' is what begins with a
    # space, or is empty.
    is_odd = f"{field} < '!' OR ends_with({field}, ' ')"
    return f"CASE WHEN {is_odd} THEN nullif(trim({field}, ' '), '') ELSE {field} END"


def word(field: str) -> str:
    """What a text names: null for words for none (`NA`, `null`, `-`), and 8 for the number 8.0.

    Of a JSON list it is the only element; a list of more or of none names nothing.
    """
    only = f"CASE WHEN json_array_length({field}) = 1 THEN json_extract_string({field}, '$[0]') END"
    number = f"coalesce(CAST({count(field)} AS VARCHAR), {field})"
    return (
        f"CASE WHEN {_is_none(field)} THEN NULL "
        f"WHEN {_may_be_list(field)} THEN CASE WHEN json_valid({field}) THEN {only} ELSE {field} END "
        f"WHEN {_may_be_number(field)} THEN {number} ELSE {field} END"
    )


# Asked of every field: what takes long stands behind what takes little.
def _is_none(field: str) -> str:
    # Words for none begin with a sign, or with n or u of either case.
    may_be_none = f"({field} < '0' OR {field} >= 'N' AND {field} < '_' OR {field} >= 'n')"
    return (
        f"strlen({field}) <= {_LONGEST_NO_NAME} AND {may_be_none} AND regexp_full_match({field}, {_NO_NAME})"
    )


def _may_be_list(field: str) -> str:
    return f"{field} >= '[' AND {field} < '\\'"


def _may_be_number(field: str) -> str:
    is_short = f"strlen({field}) <= {_LONGEST_NUMBER}"
    return f"{field} < ':' AND {field} >= '0' AND {is_short} AND contains({field}, '.')"


def first_reason(*checks: tuple[str, str]) -> str:
    """The words of the first check that holds (a null check does not), or null."""
    return first_words(*((check, literal(words)) for check, words in checks))


def first_words(*checks: tuple[str, str]) -> str:
    """The same with an expression for the words of each check."""
    cases = " ".join(f"WHEN {check} THEN {words}" for check, words in checks)
    return f"CASE {cases} END" if cases else "NULL"


def micros(seconds: str) -> str:
    """µs since 1970 of a number of seconds, or text of one; null if it is none, 0 or out of range."""
    value = f"try_cast({seconds} AS DOUBLE)"
    return f"CASE WHEN {value} > 0 AND {value} < {LATEST_S} THEN CAST({value} * 1000000 AS BIGINT) END"


def micros_of_ms(milliseconds: str) -> str:
    """The same of milliseconds; null for what is seconds or µs."""
    value = f"try_cast({milliseconds} AS DOUBLE)"
    in_range = f"{value} >= {EARLIEST_MS} AND {value} < {LATEST_S * 1000}"
    return f"CASE WHEN {in_range} THEN CAST({value} * 1000 AS BIGINT) END"


def stated_time(field: str) -> str:
    """A time as `field` states it, or null where there is none; 0 is written for that, too."""
    is_none = f"starts_with({field}, '0') AND try_cast({field} AS DOUBLE) = 0"
    return f"CASE WHEN {is_none} THEN NULL ELSE {word(field)} END"


def micros_of_moment(moment: str) -> str:
    """µs since 1970 of a date or time, in UTC where it names no zone; null if it is none or out of range."""
    is_moment = f"regexp_full_match({moment}, {literal(_MOMENT)})"
    with_point = f"CASE WHEN contains({moment}, ',') THEN replace({moment}, ',', '.') ELSE {moment} END"
    us = f"epoch_us(try_cast({with_point} AS TIMESTAMPTZ))"
    return f"CASE WHEN {is_moment} AND {us} BETWEEN 1 AND {LATEST_S * 1_000_000} THEN {us} END"


def micros_of_text(moment: str) -> str:
    """The same, or of a number of seconds."""
    is_number = f"try_cast({moment} AS DOUBLE) IS NOT NULL"
    return f"CASE WHEN {is_number} THEN {micros(moment)} ELSE {micros_of_moment(moment)} END"


def timestamp(us: str) -> str:
    return f"make_timestamp({us})"


def seconds_text(us: str) -> str:
    """`1772323200.250000` of µs since 1970, as ids of events hold it."""
    return f"({us} // 1000000) || '.' || substr(CAST({us} % 1000000 + 1000000 AS VARCHAR), 2, 6)"


def count(number: str) -> str:
    """A whole number, also one written as `8.0` or `1e3`, or null; `1.5` is none."""
    exact, near = (f"try_cast({number} AS {kind})" for kind in ("DECIMAL(38, 10)", "DOUBLE"))
    return (
        f"CASE WHEN regexp_full_match({number}, '{_WHOLE_NUMBER}') THEN try_cast({number} AS BIGINT) "
        f"WHEN regexp_full_match({number}, '{_POWER_OF_TEN}') AND {exact} % 1 = 0 AND {near} = trunc({near}) "
        f"THEN try_cast({number} AS BIGINT) END"
    )


def hashed(*parts: str) -> str:
    """32 hex digits of the sha256 of `parts`; a null part counts as absent."""
    texts = ", ".join(f"coalesce(CAST({part} AS VARCHAR), chr(0))" for part in parts)
    return f"left(sha256(concat_ws(chr(31), {texts})), 32)"


def hashed_user(user: str, salt: str) -> str:
    """16 hex digits that stand for `user`; null without a salt, as a bare hash could be looked up."""
    if not salt:
        return "NULL"
    return f"left(sha256({literal(salt)} || chr(31) || {user}), 16)"


def without_users(line: str) -> str:
    """A JSON line as a sample of it may be kept: the values of fields that name a person are blotted out."""
    return f"""regexp_replace({line}, {literal(_PERSON)}, '"\\1":"*"', 'g')"""


def total(*numbers: str) -> str:
    """The sum of whole numbers; null if one is null, or if it is none of 64 bits."""
    return f"try_cast({' + '.join(f'CAST({part} AS HUGEINT)' for part in numbers)} AS BIGINT)"


def is_one(value: str, words: Sequence[str]) -> str:
    """Whether `value` is one of `words`; null for a null."""
    return f"{value} IN ({', '.join(map(literal, words))})"
