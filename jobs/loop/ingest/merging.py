"""One row per key from new rows and those of a table, in a workspace.

The result does not depend on order or repetition. A merged table has the columns of the table, where rows are
dated their `day`, and `changed`: the row is not in the old one.
"""

import dataclasses
import itertools
import operator
from collections.abc import Iterable, Iterator

import pyarrow as pa

from features.schema import ACCESSES, FILES, JOB_RECORDS, Table, arrow_schema
from jobs.ground.store.commits import Key
from jobs.ground.store.schema_check import partition_groups
from jobs.loop.ingest.pull_input import LATE_DAYS
from jobs.loop.ingest.sources.workspace import Workspace

# These may be salted hashes: a difference caused by another salt of the site is no change.
_SALTED = ("user", "task", "job")
_FOLLOWING = ("bytes_hit", "bytes_missed")


@dataclasses.dataclass(frozen=True)
class _Rule:
    """Of rows with equal `key` the first in `order` stays.

    `new` and `old`: what is selected of the accepted rows, and of those of the table. `known`: the `known_at`
    it gets, made of its own and of `first_at`, the earliest of them all.
    """

    key: str
    order: str
    new: str
    old: str
    known: str


def day_of(table: Table) -> str:
    """The day of a row of a dated table: its partition."""
    return f"CAST(CAST(coalesce({', '.join(table.dated_by)}) AS DATE) AS VARCHAR)"


def merge(space: Workspace, *, in_two_parts: bool = False, into: str = "merged", old: str = "old") -> None:
    """The table `into`: one row per key of the accepted rows and of those of the table `old`.

    `in_two_parts`: the accepted rows report an access at its open, and its end and bytes later.
    """
    rule = _RULES[space.table.name](in_two_parts)
    accepted = "SELECT * EXCLUDE (reason, sample, input) FROM parsed WHERE reason IS NULL"
    run, both, repeated, key = space.database.execute, f'"{into} both"', f'"{into} repeated"', rule.key
    run(
        f"CREATE VIEW {both} AS SELECT {rule.new}, true AS changed FROM ({accepted}) "
        f'UNION ALL BY NAME SELECT {rule.old}, false AS changed FROM "{old}"'
    )
    # Choosing among the rows of a key sorts whole rows; counting keys is cheap, and few keys repeat.
    run(f"CREATE TABLE {repeated} AS SELECT {key} FROM {both} GROUP BY {key} HAVING count(*) > 1")
    first = f"row_number() OVER (PARTITION BY {key} ORDER BY {rule.order}) = 1"
    again = (
        f"SELECT *, min(known_at) OVER (PARTITION BY {key}) AS first_at "
        f"FROM {both} SEMI JOIN {repeated} USING ({key}) QUALIFY {first}"
    )
    moved = f"{rule.known} AS known_at, changed OR known_at <> {rule.known} AS changed"
    run(f'CREATE TABLE "{into} chosen" AS SELECT * EXCLUDE (first_at) REPLACE ({moved}) FROM ({again})')
    once = f"SELECT * FROM {both} ANTI JOIN {repeated} USING ({key})"
    run(f'CREATE VIEW "{into}" AS {once} UNION ALL BY NAME SELECT * FROM "{into} chosen"')


def _rule_of_accesses(in_two_parts: bool) -> _Rule:
    """One row per event: one with its end, then the one known first, then recorded first by the cache.

    An open is completed by its close, and known since the open. Bytes of `fetched` are no difference.
    """
    names = [*ACCESSES.column_names, *ACCESSES.partition]
    others = [name for name in names if name not in {"known_at", *_FOLLOWING, *_SALTED}]
    known_at_once = [] if in_two_parts else ["known_at"]
    recorded = ["disk_bytes IS NULL", "disk_accesses", "disk_bytes"]
    following = [f"CASE WHEN bypassed_bytes IS NULL THEN {name} END" for name in _FOLLOWING]
    # What came from the catalogue stays when the same record, which lacks it, is pulled again.
    order = [
        "closed_at IS NULL",
        "scope = 'unknown'",
        *known_at_once,
        *recorded,
        "dataset IS NULL",
        *_quoted(others),
        *following,
    ]
    order += ["changed", *_quoted(_SALTED)]
    return _Rule(
        key="event_id",
        order=", ".join(f"{name} NULLS FIRST" for name in order),
        **_dated(ACCESSES),
        known="first_at" if in_two_parts else "known_at",
    )


def _rule_of_jobs(_: bool) -> _Rule:
    """One row per job: of several reports the one of the latest end, if it has one."""
    others = [name for name in JOB_RECORDS.column_names if name not in _SALTED]
    order = ["ended_at DESC", *_quoted(others), "changed", *_quoted(_SALTED)]
    return _Rule(
        "event_id", ", ".join(f"{name} NULLS LAST" for name in order), **_dated(JOB_RECORDS), known="known_at"
    )


def _dated(table: Table) -> dict[str, str]:
    names = _quoted(table.column_names)
    return {"new": f'{", ".join(names)}, {day_of(table)} AS "day"', "old": ", ".join([*names, '"day"'])}


def _rule_of_files(_: bool) -> _Rule:
    """One row per file.

    The content is the one published last (`updated_at`). `known_at` is the earliest of any source, so that a
    file stays known at the times at which it was known, whatever is published later.
    """
    content = [name for name in FILES.column_names if name not in {"did", "known_at", "updated_at"}]
    latest = ", ".join(f"{name} DESC NULLS LAST" for name in _quoted(["updated_at", *content]))
    rows = "* REPLACE (coalesce(updated_at, known_at) AS updated_at)"
    return _Rule("did", f"{latest}, changed", rows, rows, "first_at")


_RULES = {ACCESSES.name: _rule_of_accesses, JOB_RECORDS.name: _rule_of_jobs, FILES.name: _rule_of_files}


def changes(space: Workspace) -> pa.Table:
    """Changed rows of `merged` by partition: its columns, `n` and `n_late`."""
    keys = ", ".join(_quoted(space.table.partition)) or "()"
    late = f"known_at > coalesce(closed_at, accessed_at) + INTERVAL {LATE_DAYS} DAY"
    n_late = f"count_if({late})" if space.table == ACCESSES else "0"
    names = "".join(f"{name}, " for name in _quoted(space.table.partition))
    return space.select(
        f"SELECT {names}count(*) AS n, CAST({n_late} AS BIGINT) AS n_late FROM merged "
        f"WHERE changed GROUP BY {keys} ORDER BY ALL"
    )


def merged_rows(space: Workspace, where: str = "") -> Iterator[tuple[Key, pa.Table]]:
    """The rows of `merged` by partition, in order of their keys."""
    table, schema = space.table, arrow_schema(space.table)
    for name in table.partition:
        schema = schema.append(pa.field(name, pa.string()))
    columns = ", ".join(_quoted(schema.names))
    first = [name for name in ("did",) if name in table.column_names]
    order = ", ".join(_quoted(dict.fromkeys([*table.partition, *first, *table.key])))
    batches = space.batches(f"SELECT {columns} FROM merged {where} ORDER BY {order}")
    rows = (pa.Table.from_batches([batch]).cast(schema) for batch in batches)
    pieces = itertools.chain.from_iterable(partition_groups(table, piece) for piece in rows)
    for key, group in itertools.groupby(pieces, operator.itemgetter(0)):
        yield key, pa.concat_tables(piece for _, piece in group)


def _quoted(names: Iterable[str]) -> list[str]:
    return [f'"{name}"' for name in names]
