"""The plan of one cache for its page: sums, the items by action, and why a file is planned or not."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from features.common.errors import InputError
from features.schema import ACCESSES, CONTENTS, PLANS, PREDICTIONS, QUEUE
from jobs.ground.settings.tree import CacheSettings, Settings
from jobs.ground.store.tables import Tables
from jobs.ground.text import Row
from jobs.loop.plan.cache_state import CacheAtMoment
from jobs.loop.plan.plan import Judged, explained_by, judge
from jobs.operator.overview.state import Sources, Unknown
from jobs.operator.placement.current_plans import current_plan
from prefetch.actions import ACTIONS, Action
from prefetch.placement.pages import Asked
from prefetch.plan.explain import Explanation

ITEMS_SHOWN: Final = 50
"""Items of one action on one page."""
FIRST_SHOWN: Final = 10
"""Items of each action where all actions are shown."""

_ITEM_COLUMNS = ("action", "rank", "name", "size_bytes", "cost_bytes", "probability", "reason")


@dataclasses.dataclass(frozen=True)
class Listed:
    """The items of a plan. `sums`: files and bytes by action; `rows`: those that are shown, by action.

    `n_items`: of the action that was asked for, or of all.
    """

    sums: Sequence[Row]
    rows: Mapping[Action, Sequence[Row]]
    n_items: int

    @property
    def n_shown(self) -> int:
        """Items that are shown."""
        return sum(map(len, self.rows.values()))


@dataclasses.dataclass(frozen=True)
class Why:
    """Why file `item` is planned or not, at the time `as_of_s` of the plan; or that it is not known."""

    item: str
    as_of_s: int
    answer: Explanation | str


@dataclasses.dataclass(frozen=True)
class PlanState:
    """The page of one cache; `why` None: no file was asked for."""

    settings: CacheSettings
    asked: Asked
    listed: Listed | Unknown
    why: Why | Unknown | None


def _slice(plan: pa.Table, action: str, after: int, n_items: int) -> list[Row]:
    items = plan.filter(pc.equal(plan["action"], pa.scalar(action))).sort_by("rank")
    rows: list[Row] = items.slice(after, n_items).to_pylist()
    return rows


class Plans:
    """The plans of the caches of `settings`; the last judgement is kept for the next question."""

    def __init__(self, settings: Settings) -> None:
        self._settings, self._tables = settings, Tables(settings.tables.root)
        self._judged: tuple[object, Judged] | None = None

    def state(self, asked: Asked, sources: Sources, *, now_s: int) -> PlanState:
        """The plan of a cache at `now_s`, and what is asked about a file."""
        listed = sources.known(f"plan {asked.cache}", lambda: self._listed(asked, now_s), now_s=now_s)
        why = None
        if asked.item:
            why = sources.known(f"why {asked.cache}", lambda: self._why(asked), now_s=now_s)
        return PlanState(self._settings.caches[asked.cache], asked, listed, why)

    def _listed(self, asked: Asked, now_s: int) -> Listed:
        plan = current_plan(self._tables, asked.cache, now_s).select(_ITEM_COLUMNS)
        sums = plan.group_by("action").aggregate(
            [([], "count_all"), ("size_bytes", "sum"), ("cost_bytes", "sum")]
        )
        by_action = {row["action"]: row for row in sums.to_pylist()}
        chosen = [action for action in ACTIONS if action in by_action]
        shown = {
            action: _slice(plan, action, asked.after if asked.action else 0, n_items)
            for action in chosen
            if (n_items := ITEMS_SHOWN if asked.action == action else 0 if asked.action else FIRST_SHOWN)
        }
        n_items = sum(by_action[action]["count_all"] for action in shown)
        return Listed([by_action[action] for action in chosen], shown, n_items)

    def _why(self, asked: Asked) -> Why:
        judged = self._judgement(asked.cache)
        try:
            answer: Explanation | str = explained_by(judged, item=asked.item)
        except InputError as error:
            answer = str(error)
        return Why(asked.item, judged.moment.as_of_s, answer)

    def _judgement(self, cache: str) -> Judged:
        """The newest plan of the cache, judged again from the tables that it was made from."""
        used = (PLANS, CONTENTS, PREDICTIONS, ACCESSES, QUEUE)
        key = (cache, *(self._tables.head(table).number for table in used))
        if self._judged is None or self._judged[0] != key:
            self._judged = None
            self._judged = (key, judge(CacheAtMoment.last_planned(self._settings, cache)))
        return self._judged[1]
