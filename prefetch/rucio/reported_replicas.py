"""What was reported to Rucio of each cache, and whether it accepted it; kept beside the push journal.

A replica is `adding` or `removing` until Rucio's own answer confirms it; then it is `there`, or its row gone.
`unknown` is a file that Rucio does not know. The broker's topic keeps nothing for an absent consumer, so
what is not confirmed is reported again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import sqlalchemy as sa

from prefetch.databases import Database, pages, upsert
from prefetch.rucio.names import Did

State = Literal["adding", "there", "removing", "unknown"]
_PATIENCE_S = 60

_replicas = sa.Table(
    "rucio_replicas",
    sa.MetaData(),
    sa.Column("rse", sa.String(255), primary_key=True),
    sa.Column("scope", sa.String(255), primary_key=True),
    sa.Column("name", sa.String(1024), primary_key=True),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("told_at_s", sa.Double, nullable=False),
)


class ReportedReplicas:
    """The memory at `url`: an SQLAlchemy URL, or the path of an SQLite file."""

    def __init__(self, url: str) -> None:
        self._database = Database(
            url, _replicas.metadata, setting="push.journal", what="push journal", patience_s=_PATIENCE_S
        )

    def close(self) -> None:
        """Give back its connections."""
        self._database.close()

    def states(self, rse: str) -> dict[Did, str]:
        """What is known of each file at `rse`."""
        query = sa.select(_replicas.c.scope, _replicas.c.name, _replicas.c.state).where(
            _replicas.c.rse == rse
        )
        with self._database.reading() as connection:
            return {Did(row.scope, row.name): row.state for row in connection.execute(query)}

    def note(self, rse: str, dids: Iterable[Did], state: State, *, now_s: float) -> None:
        """Write that the files are in `state` at `rse`; `now_s`: s since 1970."""
        new = {"rse": rse, "state": state, "told_at_s": now_s}
        with self._database.writing() as connection:
            upsert(connection, _replicas, ({**did._asdict(), **new} for did in dids))

    def forget(self, rse: str, dids: Iterable[Did]) -> None:
        """Drop the rows of files that are not at `rse`, as Rucio says too."""
        these = {name: _replicas.c[name] == sa.bindparam(f"of_{name}") for name in ("rse", "scope", "name")}
        with self._database.writing() as connection:
            for rows in pages({"of_rse": rse, "of_scope": s, "of_name": n} for s, n in dids):
                connection.execute(sa.delete(_replicas).where(*these.values()), rows)
