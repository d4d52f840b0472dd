"""A plan's items as columns."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Sequence

import numpy as np

from features.common.arrays import BoolArray, FloatArray, IntArray
from prefetch.actions import Action
from replay.planner import Actions


class Cause(enum.IntEnum):
    """Why an item is in the plan; `prefetch.plan.explain` has the words."""

    VALUE = 0
    PIN_RULE = 1
    NEVER_RULE = 2
    ELSEWHERE = 3
    UNKNOWN = 4
    SIBLINGS = 5
    WHOLE_DATASET = 6
    UNPLANNED = 7
    QUEUED = 8
    TEST_FILE = 9


@dataclasses.dataclass(frozen=True)
class Limit:
    """A bound of a plan in bytes; `what` names it for an operator."""

    n_bytes: int
    what: str


def least(*limits: Limit) -> Limit:
    """The tightest of `limits`, the first of equals."""
    return min(limits, key=lambda limit: limit.n_bytes)


@dataclasses.dataclass(frozen=True)
class Plan:
    """A plan's items, best first within each action.

    `action`: `Action.code`; `rank`: from 1 within its action; `cause`: codes of `Cause`; `probability`: of a
    read within the horizon that is shown; `value`: what that is expected to save, in the objective's unit;
    `size_bytes`: on disk, or to fetch; `n_jobs`: queued jobs that are known to read it. `bound_by`: for each
    action the limit that kept more from being planned.
    """

    item: IntArray
    action: IntArray
    rank: IntArray
    cause: IntArray
    probability: FloatArray
    value: FloatArray
    size_bytes: IntArray
    was_read: BoolArray
    n_jobs: IntArray
    bound_by: dict[Action, str] = dataclasses.field(default_factory=dict)

    @property
    def cost_bytes(self) -> IntArray:
        """Bytes that the item itself brings over the WAN."""
        return np.where(self.action == Action.PREFETCH.code, self.size_bytes, np.int64(0))

    @property
    def needs_model(self) -> BoolArray:
        """Which items the models chose, bool[n]; rules of the site and queued jobs chose the others."""
        by_rule = np.isin(self.cause, (Cause.PIN_RULE, Cause.NEVER_RULE, Cause.TEST_FILE))
        by_rule |= (self.cause == Cause.UNPLANNED) & (self.action == Action.UNPIN.code)
        held = np.isin(self.action, (Action.PIN.code, Action.PREFETCH.code))
        chosen: BoolArray = ~(by_rule | (held & (self.cause == Cause.QUEUED)))
        return chosen

    def of(self, action: Action) -> IntArray:
        """File ids of one action's items, best first."""
        return self.item[np.flatnonzero(self.action == action.code)]

    def bytes_of(self, action: Action) -> int:
        """Bytes of one action's items."""
        return int(self.size_bytes[self.action == action.code].sum())

    @property
    def actions(self) -> Actions:
        """The same plan as the replay engine takes it."""
        return Actions(
            prefetch=self.of(Action.PREFETCH),
            pin=self.of(Action.PIN),
            unpin=self.of(Action.UNPIN),
            evict=self.of(Action.EVICT),
        )


COLUMNS = tuple(field.name for field in dataclasses.fields(Plan) if field.name != "bound_by")


def joined(parts: Sequence[Plan], bound_by: dict[Action, str]) -> Plan:
    """The items of `parts`, one after the other."""
    columns = {name: np.concatenate([getattr(part, name) for part in parts]) for name in COLUMNS}
    return Plan(**columns, bound_by=bound_by)
