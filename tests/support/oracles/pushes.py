"""Items to push, and a cache in memory whose verbs can be made to fail."""

import dataclasses
import datetime as dt
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from features.common.times import DAY_S
from prefetch.actions import Action
from prefetch.journal.journal import Item, Journal
from prefetch.push.push import PushLimits, PushSummary, push
from prefetch.target import Confirmation, Held, LeftOut

AS_OF_S = int(time.time())
AT_ONCE: dict[str, Any] = {"retry_after_s": 0.0, "evict_guard_s": 0}


def item_of(item_id: str, cache: str, name: str, action: str, *, as_of_s: int, **more: Any) -> Item:
    """An item for a day that needs no model; `more`: other values than rank 1 and no bytes."""
    default = Item(
        item_id, cache, as_of_s, f"t:{name}", name, Action(action), 1, 0, 0, as_of_s + 86400, basis="known"
    )
    return dataclasses.replace(default, **more)


def item(number: int, action: str = "prefetch", *, plan: int = 0, name: str | None = None) -> Item:
    lfn = name or f"/store/p/f{number}"
    numbers = {"rank": number, "cost_bytes": 10}
    return item_of(f"{plan}-{action}-{number}", "c", lfn, action, as_of_s=AS_OF_S + plan, **numbers)


def plan_row(number: int, action: str = "prefetch", **more: Any) -> dict[str, Any]:
    """A row of the table of plans, of a file of 100 bytes of CMS, that is valid for two days."""
    name = f"/store/f{number}"
    row = {"item_id": f"{action}{number}", "did": f"cms:{name}", "name": name, "reason": "because"}
    numbers = {"rank": number, "value": 1.0, "cost_bytes": 100, "size_bytes": 100}
    expires_at = dt.datetime.fromtimestamp(AS_OF_S + 2 * DAY_S, dt.UTC)
    return {"action": action, **row, **numbers, "expires_at": expires_at, **more}


def run(
    target: Any, journal: Journal, items: Sequence[Item] = (), *, cache: str = "c", **limits: Any
) -> PushSummary:
    """Record a plan of `items`, if there are any, and push what is planned at once."""
    journal.plans.record_plan(items, now_s=time.time())
    return push(target, journal, cache=cache, limits=PushLimits(**({"timeout_s": 20.0} | AT_ONCE | limits)))


class Fake:
    """A cache in memory whose verbs can be made to fail."""

    name = "fake"
    left_out = LeftOut()

    def __init__(self) -> None:
        self.removes_open = False
        self.held: dict[str, Held] = {}
        self.log: list[str] = []
        self.lock = threading.Lock()
        self.before: Callable[[str, str], None] = lambda verb, name: None
        self.forgets = False
        self.skew_s = 0.0

    def _verb(self, verb: str, name: str) -> None:
        with self.lock:
            self.log.append(f"{verb} {name}")
        self.before(verb, name)

    def prefetch(self, name: str, *, timeout_s: float) -> int:
        self._verb("prefetch", name)
        if not self.forgets:
            self.held[name] = Held(name, 10, 10, True, int(time.time()), False)
        return 10

    def touch(self, name: str, *, timeout_s: float, meanwhile: Callable[[], None] = lambda: None) -> None:
        self._verb("touch", name)
        meanwhile()
        self.held[name] = Held(name, 10, 10, True, int(time.time()), False)

    def evict(self, name: str, *, timeout_s: float) -> None:
        self._verb("evict", name)
        self.held.pop(name, None)

    def identity(self) -> None:
        """Nobody serves it."""

    def removes_open_files(self) -> bool:
        return self.removes_open

    def clock_skew_s(self) -> float:
        return self.skew_s

    def confirm(self, name: str) -> Confirmation:
        return Confirmation(self.held.get(name), "directory")

    def confirm_absent(self, name: str) -> Confirmation:
        return Confirmation(None, "stat")

    def inventory(self, expected: Collection[str] = ()) -> Iterable[Held]:
        return list(self.held.values())


def lfn_of(line: str) -> str:
    return line.partition(" ")[2]


def raising(error: Exception) -> Callable[[str, str], None]:
    def fail(_verb: str, _name: str) -> None:
        raise error

    return fail
