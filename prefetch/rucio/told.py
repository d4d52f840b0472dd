"""What Rucio was told of each cache, and whether it took it: kept beside the journal of pushes.

A replica is `adding` or `removing` until Rucio's own answer confirms it; then it is `there`, or its row gone.
`unknown` is a file that Rucio does not know. The broker's topic keeps nothing for a consumer that is away, so
what is not confirmed is told again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from prefetch.journal_tables import engine_for
from prefetch.rucio.names import Did

State = Literal["adding", "there", "removing", "unknown"]
_ROWS_AT_ONCE = 10_000
_INSERTS: dict[str, Any] = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}

_replicas = sa.Table(
    "rucio_replicas",
    sa.MetaData(),
    sa.Column("rse", sa.String(255), primary_key=True),
    sa.Column("scope", sa.String(255), primary_key=True),
    sa.Column("name", sa.String(1024), primary_key=True),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("told_at_s", sa.Double, nullable=False),
)


class Told:
    """The memory at `url`: an SQLAlchemy URL, or the path of an SQLite file."""

    def __init__(self, url: str) -> None:
        self._engine = engine_for(url)
        _replicas.metadata.create_all(self._engine)

    def close(self) -> None:
        """Give back its connections."""
        self._engine.dispose()

    def states(self, rse: str) -> dict[Did, str]:
        """What is known of each file at `rse`."""
        query = sa.select(_replicas.c.scope, _replicas.c.name, _replicas.c.state).where(
            _replicas.c.rse == rse
        )
        with self._engine.connect() as connection:
            return {Did(row.scope, row.name): row.state for row in connection.execute(query)}

    def note(self, rse: str, dids: Iterable[Did], state: State, *, now_s: float) -> None:
        """Write that the files are in `state` at `rse`; `now_s`: s since 1970."""
        new = {"rse": rse, "state": state, "told_at_s": now_s}
        with self._engine.begin() as connection:
            insert = _INSERTS[connection.dialect.name](_replicas)
            changed = {name: insert.excluded[name] for name in ("state", "told_at_s")}
            upsert = insert.on_conflict_do_update(index_elements=["rse", "scope", "name"], set_=changed)
            for rows in _pages({**did._asdict(), **new} for did in dids):
                connection.execute(upsert, rows)

    def forget(self, rse: str, dids: Iterable[Did]) -> None:
        """Drop the rows of files that are not at `rse`, as Rucio says too."""
        these = {name: _replicas.c[name] == sa.bindparam(f"of_{name}") for name in ("rse", "scope", "name")}
        with self._engine.begin() as connection:
            for rows in _pages({"of_rse": rse, "of_scope": s, "of_name": n} for s, n in dids):
                connection.execute(sa.delete(_replicas).where(*these.values()), rows)


def _pages(rows: Iterable[Mapping[str, object]]) -> Iterator[list[Mapping[str, object]]]:
    page: list[Mapping[str, object]] = []
    for row in rows:
        page.append(row)
        if len(page) == _ROWS_AT_ONCE:
            yield page
            page = []
    if page:
        yield page
