"""The journal's tables, and the states of its items."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import sqlalchemy as sa

from features.common.errors import ServiceError
from prefetch.actions import ItemState

CLAIMED = (ItemState.RUNNING, ItemState.CANCELLING)
"""A try of the item is in flight; `cancelling`: it will not be tried again."""

UNDONE = (ItemState.PLANNED, *CLAIMED)
"""Something may still be done for the item."""

PLAN, PREFILL = "plan", "prefill"
"""Kinds of plans: one that decides on the whole cache, and files requested in addition."""

PROMOTED, KNOWN, UNPROVEN = "promoted", "known", "unproven"
"""Why an item may act: a promoted model chose it; a rule or queued jobs did; an operator insisted."""

RECORDING, STANDING, REPLACED, CANCELLED = "recording", "standing", "replaced", "cancelled"
"""States of plans: being written; carried out; a newer plan decides; an operator cancelled it."""

COUNTED = (STANDING, REPLACED)
"""Of these plans the newest decides."""

CLOCK_SLACK_S = 3600.0
"""Times further in the future come from a wrong clock or a mistyped time.

Clocks of pushers agree to a minute; an hour leaves room for a plan that is made a little before its time.
"""

MAX_ERROR_CHARS = 300

_END_S = 253_402_300_800

metadata = sa.MetaData()


class _Time(sa.types.TypeDecorator[Any]):
    """Seconds since 1970 up to the year 9999, and nothing else that SQLite keeps as well."""

    impl: type[sa.types.TypeEngine[Any]] = sa.BigInteger
    cache_ok = True

    def process_result_value(self, value: object, dialect: sa.Dialect) -> Any:
        """The time; None: of no row. Raises ServiceError: somebody has written what no journal holds."""
        if value is None or (isinstance(value, int | float) and 0 <= value < _END_S):
            return value
        raise ServiceError("the push journal is damaged, as a time in it is none; restore it")


class _Moment(_Time):
    """The same with its fractions."""

    impl, cache_ok = sa.Double, True


class _Name(sa.types.TypeDecorator[str]):
    """Text, and nothing else that SQLite keeps as well in such a column."""

    impl, cache_ok = sa.Text, True

    def process_result_value(self, value: object, dialect: sa.Dialect) -> str:
        """The text. Raises ServiceError: somebody has written what no journal holds."""
        if not isinstance(value, str):
            raise ServiceError("the push journal is damaged, as a name in it is no text; restore it")
        return value


items = sa.Table(
    "push_items",
    metadata,
    sa.Column("item_id", sa.String(64), primary_key=True),
    sa.Column("cache", sa.String(255), nullable=False),
    sa.Column("as_of_s", _Time, nullable=False),
    sa.Column("did", sa.Text, nullable=False),
    sa.Column("name", _Name, nullable=False),
    sa.Column("action", sa.String(16), nullable=False),
    sa.Column("rank", sa.BigInteger, nullable=False),
    sa.Column("size_bytes", sa.BigInteger, nullable=False),
    sa.Column("cost_bytes", sa.BigInteger, nullable=False),
    sa.Column("expires_at_s", _Time, nullable=False),
    sa.Column("source", sa.Text),
    sa.Column("kind", sa.String(16), nullable=False),
    sa.Column("basis", sa.String(16), nullable=False),
    sa.Column("generation", sa.BigInteger, nullable=False),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("attempts", sa.BigInteger, nullable=False),
    sa.Column("bytes", sa.BigInteger, nullable=False),
    sa.Column("seconds", sa.Double, nullable=False),
    sa.Column("error", sa.Text),
    sa.Column("fault", sa.String(16)),
    sa.Column("confirmed_by", sa.String(32)),
    sa.Column("updated_at_s", _Moment, nullable=False),
    sa.Column("renewed_at_s", _Moment),
    sa.Index("push_items_waiting", "cache", "state", "action", "attempts", "as_of_s", "rank"),
    sa.Index("push_items_of_plan", "cache", "as_of_s"),
    sa.Index("push_items_standing", "cache", "action", "expires_at_s"),
    sa.Index("push_items_changed", "cache", "updated_at_s"),
)

is_unproven = items.c.basis == sa.literal_column(f"'{UNPROVEN}'")
"""Which items no promotion covers; as it stands in the index, or the index would not be used."""

sa.Index("push_items_unproven", items.c.cache, sqlite_where=is_unproven, postgresql_where=is_unproven)

plans = sa.Table(
    "push_plans",
    metadata,
    sa.Column("cache", sa.String(255), primary_key=True),
    sa.Column("as_of_s", _Time, primary_key=True),
    sa.Column("kind", sa.String(16), nullable=False),
    sa.Column("generation", sa.BigInteger, nullable=False),
    sa.Column("digest", sa.String(64)),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("replaced_by_s", sa.BigInteger),
    sa.Column("is_settled", sa.Boolean, nullable=False),
    sa.Column("recorded_at_s", sa.Double, nullable=False),
)
"""One row per plan. An item counts if its `generation` is that of its plan.

Each time another plan of the same time is recorded, the generation goes up. `digest`: of the plan as
recorded; `is_settled`: the items that it replaces, or that are replaced themselves, are cancelled.
"""

of_its_plan = sa.and_(plans.c.cache == items.c.cache, plans.c.as_of_s == items.c.as_of_s)
"""Joins an item to its plan."""

leases = sa.Table(
    "push_leases",
    metadata,
    sa.Column("cache", sa.String(255), primary_key=True),
    sa.Column("holder", sa.String(255)),
    sa.Column("fence", sa.BigInteger, nullable=False),
    sa.Column("until_s", sa.Double, nullable=False),
)
"""One row per cache: who pushes to it (NULL: nobody), and until when. `fence` rises with each taking."""

pruned = sa.Table(
    "push_pruned",
    metadata,
    sa.Column("cache", sa.String(255), primary_key=True),
    sa.Column("as_of_s", _Time, primary_key=True),
    sa.Column("n_items", sa.BigInteger, nullable=False),
    sa.Column("pruned_at_s", sa.Double, nullable=False),
)
"""Plans whose items are deleted: they must not be recorded, and carried out, a second time."""


def change_in_order(
    connection: sa.Connection, where: Iterable[sa.ColumnElement[bool]], values: Mapping[str, object]
) -> int:
    """Give the items `where` new values; return how many.

    All who change several items lock them in this order: no two of them can wait for each other.
    """
    chosen = sa.select(items.c.item_id).where(*where).order_by(items.c.item_id).with_for_update()
    change = sa.update(items).where(items.c.item_id.in_(chosen.correlate(None)))
    return connection.execute(change.values(**values)).rowcount
