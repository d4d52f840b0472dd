"""One row per key from new rows and those of a table, in a workspace; `spark_merging` does it with frames.

The result does not depend on order or repetition. A merged table has the columns of the table, for accesses
their `day`, and `changed`: the row is not in the old one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from features.schema import ACCESSES, FILES
from jobs.ingest.sources.workspace import Workspace

# These may be salted hashes: a difference caused by another salt of the site is no change.
_SALTED = ("user", "task")
IN_TWO_PARTS = "xrootd_fstream"
"""The source that reports an access at its open, and its end and bytes later."""
DAY = "CAST(CAST(accessed_at AS DATE) AS VARCHAR)"
"""The day of an access: its partition."""


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


def merge_accesses(space: Workspace, *, into: str, old: str) -> None:
    """`into`: one row per event of the accepted rows and of table `old`.

    Of several rows of an event, one with its end is preferred, then the one known first. An open reported
    before its close (`IN_TWO_PARTS`) is completed by the close and stays known since the open.
    """
    names = [*ACCESSES.column_names, *ACCESSES.partition]
    others = [name for name in names if name not in {"known_at", *_SALTED}]
    whole = f"source <> '{IN_TWO_PARTS}'"
    known_at_once = f"CASE WHEN {whole} THEN known_at END"
    order = ["closed_at IS NULL", known_at_once, *_quoted(others), "changed", *_quoted(_SALTED)]
    rule = _Rule(
        key="event_id",
        order=", ".join(f"{one} NULLS FIRST" for one in order),
        new=f'{", ".join(_quoted(ACCESSES.column_names))}, {DAY} AS "day"',
        old=", ".join(_quoted(names)),
        known=f"CASE WHEN {whole} THEN known_at ELSE first_at END",
    )
    _merge(space, rule, into, old)


def merge_files(space: Workspace, *, into: str, old: str) -> None:
    """`into`: one row per file of the accepted rows and of table `old`.

    The content is the one published last (`updated_at`). `known_at` is the earliest of any source, so that a
    file stays known at the times at which it was known, whatever is published later.
    """
    content = [name for name in FILES.column_names if name not in {"did", "known_at", "updated_at"}]
    latest = ", ".join(f"{one} DESC NULLS LAST" for one in _quoted(["updated_at", *content]))
    rows = "* REPLACE (coalesce(updated_at, known_at) AS updated_at)"
    _merge(space, _Rule("did", f"{latest}, changed", rows, rows, "first_at"), into, old)


def _merge(space: Workspace, rule: _Rule, into: str, old: str) -> None:
    """Choosing among the rows of a key sorts whole rows; counting keys is cheap, and few keys repeat."""
    accepted = "SELECT * EXCLUDE (reason, sample, input) FROM parsed WHERE reason IS NULL"
    run, both, repeated, key = space.database.execute, f'"{into} both"', f'"{into} repeated"', rule.key
    run(
        f"CREATE VIEW {both} AS SELECT {rule.new}, true AS changed FROM ({accepted}) "
        f'UNION ALL BY NAME SELECT {rule.old}, false AS changed FROM "{old}"'
    )
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


def _quoted(names: Iterable[str]) -> list[str]:
    return [f'"{name}"' for name in names]
