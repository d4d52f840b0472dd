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
DAY = "CAST(CAST(accessed_at AS DATE) AS VARCHAR)"
"""The day of an access: its partition."""


@dataclasses.dataclass(frozen=True)
class _Rule:
    """Of rows with equal `key` the first in `order` stays, with the least `least` of them all.

    `new` and `old`: what is selected of the accepted rows, and of those of the table.
    """

    key: str
    order: str
    new: str
    old: str
    least: str = ""


def merge_accesses(space: Workspace, *, into: str, old: str) -> None:
    """`into`: one row per event of the accepted rows and of table `old`.

    Of several rows of an event, one with its end is preferred, then the one known first: an open without its
    close is replaced by the same open with it.
    """
    names = [*ACCESSES.column_names, *ACCESSES.partition]
    others = [name for name in names if name not in {"known_at", *_SALTED}]
    order = ["closed_at IS NULL", *_quoted(["known_at", *others]), "changed", *_quoted(_SALTED)]
    rule = _Rule(
        key="event_id",
        order=", ".join(f"{one} NULLS FIRST" for one in order),
        new=f'{", ".join(_quoted(ACCESSES.column_names))}, {DAY} AS "day"',
        old=", ".join(_quoted(names)),
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
    _merge(space, _Rule("did", f"{latest}, changed", rows, rows, least="known_at"), into, old)


def _merge(space: Workspace, rule: _Rule, into: str, old: str) -> None:
    """Choosing among the rows of a key sorts whole rows; counting keys is cheap, and few keys repeat."""
    accepted = "SELECT * EXCLUDE (reason, sample, input) FROM parsed WHERE reason IS NULL"
    run, both, repeated, key = space.database.execute, f'"{into} both"', f'"{into} repeated"', rule.key
    run(
        f"CREATE VIEW {both} AS SELECT {rule.new}, true AS changed FROM ({accepted}) "
        f'UNION ALL BY NAME SELECT {rule.old}, false AS changed FROM "{old}"'
    )
    run(f"CREATE TABLE {repeated} AS SELECT {key} FROM {both} GROUP BY {key} HAVING count(*) > 1")
    again = f"SELECT * FROM {both} SEMI JOIN {repeated} USING ({key})"
    if rule.least:
        again = f"SELECT *, min({rule.least}) OVER (PARTITION BY {key}) AS least FROM ({again})"
    again += f" QUALIFY row_number() OVER (PARTITION BY {key} ORDER BY {rule.order}) = 1"
    if rule.least:
        moved = f"changed OR {rule.least} <> least AS changed"
        again = f"SELECT * EXCLUDE (least) REPLACE (least AS {rule.least}, {moved}) FROM ({again})"
    run(f'CREATE TABLE "{into} chosen" AS {again}')
    once = f"SELECT * FROM {both} ANTI JOIN {repeated} USING ({key})"
    run(f'CREATE VIEW "{into}" AS {once} UNION ALL BY NAME SELECT * FROM "{into} chosen"')


def _quoted(names: Iterable[str]) -> list[str]:
    return [f'"{name}"' for name in names]
