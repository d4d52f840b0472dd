"""Items of a journal, and short words to work with one."""

from typing import Any
from weakref import WeakKeyDictionary

from pushes import item_of

from prefetch.actions import Action, ItemState
from prefetch.journal.journal import Item, Journal, Receipt
from prefetch.journal.lease import Lease
from prefetch.journal.tables import PLAN

DAY = 86400

_leases: WeakKeyDictionary[Journal, Lease] = WeakKeyDictionary()


def item(number: int, action: str = "prefetch", *, as_of_s: int = 1000, kind: str = PLAN) -> Item:
    item_id, numbers = f"{as_of_s}-{action}-{number}", {"rank": number, "size_bytes": 10, "cost_bytes": 10}
    return item_of(item_id, "xc", f"/store/f{number}", action, as_of_s=as_of_s, kind=kind, **numbers)


def work_on(journal: Journal) -> Lease:
    """The lease of a pusher of cache `xc`, one for the whole test, until `stop`."""
    if journal not in _leases:
        _leases[journal] = journal.leases.take("xc", now_s=1000)
    return _leases[journal]


def stop(journal: Journal, *, now_s: float) -> None:
    """End that pusher: it gives back what is in flight."""
    work_on(journal).release(now_s=now_s)
    del _leases[journal]


def begin(
    journal: Journal, n_items: int = 100, *, action: str = "prefetch", now_s: float = 1001, **left_out: Any
) -> list[Item]:
    return work_on(journal).begin(Action(action), n_items, now_s=now_s, **left_out)


def finish(journal: Journal, item_id: str, receipt: Receipt, *, now_s: float) -> None:
    work_on(journal).finish({item_id: receipt}, now_s=now_s)


def begin_all(journal: Journal, action: str = "prefetch", now_s: float = 1001) -> list[str]:
    return [each.item_id for each in begin(journal, action=action, now_s=now_s)]


def states(journal: Journal, cache: str | None = None) -> dict[str, int]:
    return {state: n for state, n in journal.reports.counts(cache).items() if n}


def states_by_item(journal: Journal) -> dict[str, str]:
    return {row["item_id"]: row["state"] for row in journal.reports.receipts("xc")}


def pinned(journal: Journal, number: int, renewed_at_s: float, **where: Any) -> None:
    pin = item(number, "pin", **where)
    journal.plans.record_plan([pin], now_s=pin.as_of_s)
    begin_all(journal, "pin", now_s=pin.as_of_s + 1)
    finish(journal, pin.item_id, Receipt(ItemState.DONE, renewed_at_s=renewed_at_s), now_s=pin.as_of_s + 1)


def due(journal: Journal, now_s: float) -> list[str]:
    return [pin.item_id for pin in journal.reports.due_pins("xc", now_s=now_s, touch_every_s=100)]
