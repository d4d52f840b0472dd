"""Items of a journal, and short words to work with one."""

from __future__ import annotations

from typing import Any

from prefetch.actions import Action, ItemState
from prefetch.journal.journal import Item, Journal, Patience, Receipt
from prefetch.journal.tables import PLAN

DAY = 86400


def item(number: int, action: str = "prefetch", *, as_of_s: int = 1000, kind: str = PLAN) -> Item:
    name, item_id = f"/store/f{number}", f"{as_of_s}-{action}-{number}"
    expires_at_s = as_of_s + DAY
    return Item(
        item_id,
        "xc",
        as_of_s,
        f"cms:{name}",
        name,
        Action(action),
        number,
        10,
        10,
        expires_at_s,
        kind=kind,
        basis="known",
    )


def claim(
    journal: Journal,
    owner: str,
    n_items: int = 100,
    *,
    action: str = "prefetch",
    now_s: float = 1001,
    **but: Any,
) -> list[Item]:
    return journal.claim("xc", Action(action), n_items, owner=owner, now_s=now_s, patience=Patience(**but))


def finish(journal: Journal, item_id: str, receipt: Receipt, *, owner: str, now_s: float) -> bool:
    return journal.finish({item_id: receipt}, owner=owner, now_s=now_s) == {item_id}


def claim_all(journal: Journal, owner: str, action: str = "prefetch", now_s: float = 1001) -> list[str]:
    return [each.item_id for each in claim(journal, owner, action=action, now_s=now_s)]


def states(journal: Journal, cache: str | None = None) -> dict[str, int]:
    return {state: n for state, n in journal.counts(cache).items() if n}


def pinned(journal: Journal, number: int, renewed_at_s: float, **where: Any) -> None:
    pin = item(number, "pin", **where)
    journal.record_plan([pin], now_s=pin.as_of_s)
    claim_all(journal, "a", "pin", now_s=pin.as_of_s + 1)
    finish(
        journal,
        pin.item_id,
        Receipt(ItemState.DONE, renewed_at_s=renewed_at_s),
        owner="a",
        now_s=pin.as_of_s + 1,
    )


def due(journal: Journal, now_s: float, touch_every_s: int = 100) -> list[str]:
    return [pin.item_id for pin in journal.due_pins("xc", now_s=now_s, touch_every_s=touch_every_s)]
