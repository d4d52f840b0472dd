"""The journal's tables, the states of its plans and items, and what a row of them holds."""

import dataclasses
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

import sqlalchemy as sa

from features.common.errors import ServiceError
from prefetch.actions import Action, ItemState

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
_MOST = 2**62

metadata = sa.MetaData()


class _Text(sa.types.TypeDecorator[Any]):
    """Text, and nothing else that SQLite keeps as well in such a column."""

    impl: type[sa.types.TypeEngine[Any]] = sa.Text
    cache_ok = True
    what = "a text"

    def process_result_value(self, value: object, dialect: sa.Dialect) -> Any:
        """The value; None: of no row. Raises ServiceError: somebody has written what no journal holds."""
        if value is None or self.fits(value):
            return value
        raise ServiceError(f"the push journal is damaged, as {self.what} in it is none; restore it")

    def fits(self, value: object) -> bool:
        return isinstance(value, str)


class _Number(_Text):
    """A whole number to which more can be added."""

    impl, cache_ok, what = sa.BigInteger, True, "a number"

    def fits(self, value: object) -> bool:
        return isinstance(value, int) and abs(value) < _MOST


class _Time(_Text):
    """Seconds since 1970 up to the year 9999."""

    impl: type[sa.types.TypeEngine[Any]] = sa.BigInteger
    cache_ok, what = True, "a time"

    def fits(self, value: object) -> bool:
        return isinstance(value, int | float) and 0 <= value < _END_S


class _Moment(_Time):
    """The same with its fractions."""

    impl, cache_ok = sa.Double, True


class _Pusher(_Text):
    """A run's name, as `prefetch.journal.lease` makes it."""

    impl, cache_ok, what = sa.String, True, "a pusher"

    def fits(self, value: object) -> bool:
        return isinstance(value, str) and re.fullmatch(r"[^|]+\|[0-9]{1,10}(\|[^|]+){2}", value) is not None


items = sa.Table(
    "push_items",
    metadata,
    sa.Column("item_id", sa.String(64), primary_key=True),
    sa.Column("cache", sa.String(255), nullable=False),
    sa.Column("as_of_s", _Time, nullable=False),
    sa.Column("did", _Text, nullable=False),
    sa.Column("name", _Text, nullable=False),
    sa.Column("action", sa.String(16), nullable=False),
    sa.Column("rank", _Number, nullable=False),
    sa.Column("size_bytes", _Number, nullable=False),
    sa.Column("cost_bytes", _Number, nullable=False),
    sa.Column("expires_at_s", _Time, nullable=False),
    sa.Column("source", _Text),
    sa.Column("kind", sa.String(16), nullable=False),
    sa.Column("basis", sa.String(16), nullable=False),
    sa.Column("generation", _Number, nullable=False),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("attempts", _Number, nullable=False),
    sa.Column("bytes", _Number, nullable=False),
    sa.Column("seconds", _Moment, nullable=False),
    sa.Column("error", _Text),
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
"""Items that no promotion covers; written as in the index, which is not used otherwise."""

sa.Index("push_items_unproven", items.c.cache, sqlite_where=is_unproven, postgresql_where=is_unproven)

plans = sa.Table(
    "push_plans",
    metadata,
    sa.Column("cache", sa.String(255), primary_key=True),
    sa.Column("as_of_s", _Time, primary_key=True),
    sa.Column("kind", sa.String(16), nullable=False),
    sa.Column("generation", _Number, nullable=False),
    sa.Column("digest", sa.String(64)),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("replaced_by_s", _Time),
    sa.Column("is_settled", sa.Boolean, nullable=False),
    sa.Column("recorded_at_s", _Moment, nullable=False),
)
"""One row per plan. An item counts if its `generation` is that of its plan.

Each time another plan of the same time is recorded, the generation goes up. `digest`: of the plan as
recorded; `is_settled`: the items that it replaces, or that are replaced themselves, are cancelled.
"""

of_its_plan = sa.and_(plans.c.cache == items.c.cache, plans.c.as_of_s == items.c.as_of_s)
"""Joins an item to its plan."""

of_standing_plan = sa.and_(of_its_plan, plans.c.state == STANDING, plans.c.generation == items.c.generation)
"""Joins an item to its plan, if that is carried out and the item still part of it."""

leases = sa.Table(
    "push_leases",
    metadata,
    sa.Column("cache", sa.String(255), primary_key=True),
    sa.Column("holder", _Pusher(255)),
    sa.Column("fence", _Number, nullable=False),
    sa.Column("until_s", _Moment, nullable=False),
)
"""One row per cache: who pushes to it (NULL: nobody), and until when. `fence` rises with each taking."""

pruned = sa.Table(
    "push_pruned",
    metadata,
    sa.Column("cache", sa.String(255), primary_key=True),
    sa.Column("as_of_s", _Time, primary_key=True),
    sa.Column("n_items", _Number, nullable=False),
    sa.Column("pruned_at_s", _Moment, nullable=False),
)
"""Plans whose items are deleted: they must not be recorded, and carried out, a second time."""


def of_plan(cache: str, as_of_s: int | None) -> list[sa.ColumnElement[bool]]:
    """Which items are a cache's, of one time of planning or of all."""
    return [items.c.cache == cache, *([] if as_of_s is None else [items.c.as_of_s == as_of_s])]


def change_in_order(
    connection: sa.Connection, where: Iterable[sa.ColumnElement[bool]], values: Mapping[str, object]
) -> int:
    """Give items new values, locked in one order: no two wait for each other. Return how many."""
    locked = sa.select(items.c.item_id).where(*where).order_by(items.c.item_id).with_for_update()
    change = sa.update(items).where(items.c.item_id.in_(locked.correlate(None)))
    return connection.execute(change.values(**values)).rowcount


@dataclasses.dataclass(frozen=True, slots=True)
class Item:
    """One plan item; columns as in `features.schema.PLANS`. `attempts`: tries so far, this one included.

    `source`: where its bytes come from, empty if unknown. `size_bytes`: 0 if unknown. `kind`: of its plan;
    `basis`: why it may act, see `prefetch.journal.tables`.
    """

    item_id: str
    cache: str
    as_of_s: int
    did: str
    name: str
    action: Action
    rank: int
    size_bytes: int
    cost_bytes: int
    expires_at_s: int
    attempts: int = 0
    source: str = ""
    kind: str = PLAN
    basis: str = ""


@dataclasses.dataclass(frozen=True)
class Receipt:
    """The result of one try. `bytes`: fetched or freed; `renewed_at_s`: the last use of a pinned file.

    `fault`: who caused an `error`: `cache`, `source`, or `file` (refused for good). `already`: the cache was
    as wanted before; the journal does not keep that.
    """

    state: ItemState
    bytes: int = 0
    seconds: float = 0.0
    error: str | None = None
    fault: str | None = None
    confirmed_by: str | None = None
    renewed_at_s: float | None = None
    already: bool = False


@dataclasses.dataclass(frozen=True)
class Try:
    """One try to fetch from `source` (empty: not known) that ended at `at_s`, s since 1970."""

    source: str
    at_s: float
    seconds: float
    failed: bool


class Items(Protocol):
    """Items that can be iterated again and again; a million of them need not be in memory."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Item]: ...


@dataclasses.dataclass(frozen=True)
class Heading:
    """The plan that some items are of; `digest`: a hash of the items, whatever their order; here of none."""

    cache: str
    as_of_s: int
    kind: str
    digest: str = f"{0:064x}"


def heading(plan: Items) -> Heading:
    """The heading of a `plan`. Raises ValueError unless its items are of one plan, each with a basis."""
    headings = set[tuple[str, int, str]]()
    total = 0
    for item in plan:
        if item.basis not in (PROMOTED, KNOWN, UNPROVEN):
            raise ValueError(f"nothing vouches for item {item.item_id}: its basis is {item.basis!r}")
        headings.add((item.cache, item.as_of_s, item.kind))
        # The source is no part of the plan: it is looked up for each push. Nor is the basis: a plan that the
        # journal has keeps the one that it was recorded with.
        decided = [getattr(item, field) for field in _DECIDED]
        text = repr([str(value) if isinstance(value, Action) else value for value in decided])
        total += int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest())
    if len(headings) != 1:
        raise ValueError(f"one plan at a time: these are items of {len(headings)}")
    return Heading(*headings.pop(), f"{total % 2**256:064x}")


_FIELDS = [field.name for field in dataclasses.fields(Item)]
_DECIDED = [name for name in _FIELDS if name not in ("attempts", "source", "basis")]


def item_of(row: Mapping[Any, Any], attempts: int) -> Item:
    known = {field: row[field] for field in _FIELDS}
    read = {"action": Action(row["action"]), "source": row["source"] or "", "attempts": attempts}
    return Item(**known | read)


def new_row(item: Item, generation: int, now_s: float) -> dict[str, Any]:
    known = {field: getattr(item, field) for field in _FIELDS}
    new = {"state": ItemState.PLANNED, "attempts": 0, "bytes": 0, "seconds": 0.0, "updated_at_s": now_s}
    return known | new | {"generation": generation}
