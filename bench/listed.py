"""A cache that follows lists in a replay: what is known of its files, predicted and queued; and the lists."""

from __future__ import annotations

import dataclasses
import functools
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from boards import Board, of_file, public

from features.common.arrays import BoolArray, FloatArray, Ids, IntArray
from features.common.jit import bare
from features.common.times import DAY_S
from features.spec import COLUMNS
from features.stream.row import written
from features.stream.state import LAST, Read, new_state, update
from jobs.ground.settings.tree import Settings
from jobs.ground.store.tables import Tables
from jobs.loop.evaluate.replay_setup import copy_file
from jobs.loop.plan.file_facts import OriginRules, facts, hours_per_byte, plan_files
from jobs.studies.simulate import workload
from models.evaluation.promotion import HoursPerByte
from models.learning.learners import forest_of
from models.learning.order import HorizonTrees
from prefetch.actions import Action
from prefetch.plan.planner import ValuePlanner
from prefetch.plan.rules import Treatment
from prefetch.plan.scores import Files, KnownWork, Scores
from replay.access_context import QueuedReads
from replay.kernels.accesses import Part
from replay.kernels.scored_files import Known, no_values
from replay.kernels.trees import Forest, margins, new_block
from replay.planner import Actions, CacheState

ALL = (Action.PREFETCH, Action.PIN, Action.EVICT)
CANDIDATES_S = 14 * DAY_S
SETTINGS = Settings.load(env={})


class Site(NamedTuple):
    """A trace with what a plan knows of its files, and core-hours per byte where distances are known."""

    board: Board
    files: Files
    hours: HoursPerByte | None


def region_site(name: str, accesses: int, seed: int) -> Site:
    """A generated region, counted from its middle."""
    with tempfile.TemporaryDirectory(prefix="cachecast-") as scratch:
        written = workload.write(workload.load(name, seed=seed, accesses=accesses), out=Path(scratch))
        board, tables = of_file(name, Path(written.traces), 0.5), Tables(f"{scratch}/tables")
        copy_file(Path(written.traces), tables)
        assert board.trace.names is not None
        plan, benefit, regions = SETTINGS.plan, SETTINGS.benefit.model, SETTINGS.regions
        known = facts(tables, board.trace.names, OriginRules(regions, tape=plan.tape))
    files, origins = plan_files(board.trace.names, known, plan=plan, benefit=benefit, regions=regions)
    files = dataclasses.replace(files, is_control=np.zeros(files.n, np.bool_))
    return Site(board, files, hours_per_byte(files, origins, benefit, regions))


def public_site(name: str) -> Site:
    """A public trace, of whose files only the names are known."""
    board = public(name)
    n, of = board.trace.n_items, board.story.files
    no, ones = np.zeros(n, np.bool_), np.ones(n)
    treatment, unknown, barred = np.full(n, int(Treatment.PLANNED)), np.full(n, -1), np.zeros(n, np.int64)
    dataset, tier = of.dataset.astype(np.int64), of.tier.astype(np.int64)
    return Site(board, Files(no, treatment, ~no, dataset, tier, unknown, ones, ones, barred), None)


class Accesses(NamedTuple):
    """Accesses in time order: `time_s` int64[n], `item` int32[n], `reader` int64[n]."""

    time_s: IntArray
    item: Ids
    reader: IntArray


@bare
def remember(known: Known, accesses: Accesses, part: Part) -> None:
    """Remember accesses."""
    for i in range(part.start, part.stop):
        now_s = float(accesses.time_s[i])
        update(known.state, known.files, Read(accesses.item[i], accesses.reader[i], 1.0, now_s, now_s))


class Predictions:
    """Scores of the files read in the last 14 days, at rising times, by the trees learned before each."""

    def __init__(self, board: Board, learned: Mapping[int, HorizonTrees]) -> None:
        self._trace, self._learned = board.trace, learned
        state = new_state(board.trace.n_items, board.story.n_datasets)
        self._known = Known(state, board.story.files, no_values(board.trace.n_items))
        self._accesses = Accesses(board.trace.time_s, board.trace.item, board.story.reader)
        self._served = 0

    def at(self, as_of_s: int) -> Scores:
        """The scores at a time; times never go back."""
        stop = self._trace.first_at(as_of_s)
        remember(self._known, self._accesses, Part(self._served, stop))
        self._served = stop
        last_s = self._known.state.file[:, LAST]
        item = np.flatnonzero(last_s >= as_of_s - CANDIDATES_S)
        columns = written(self._known.state, self._known.files, item.astype(np.int32), float(as_of_s))
        trees = self._learned[max(at for at in self._learned if at <= as_of_s)]
        margin, x = np.empty((len(trees.texts), item.size)), np.ascontiguousarray(columns.T)
        for k, text in enumerate(trees.texts):
            margins(_forest(text), x, new_block(_forest(text)), margin[k])
        chance: Any = (1 / (1 + np.exp(-margin))).astype(np.float32)  # all times are kept: half the memory
        last = last_s[item].astype(np.int64)
        return Scores(as_of_s, item, self._trace.size_bytes[item], trees.horizons_s, chance, last)


@functools.lru_cache(maxsize=64)
def _forest(text: str) -> Forest:
    return forest_of(text, COLUMNS)


class Waiting:
    """The queue as it was known, at rising times."""

    def __init__(self, queued: QueuedReads, size_bytes: IntArray) -> None:
        self._queued, self._size = queued, size_bytes

    def at(self, as_of_s: int) -> KnownWork:
        """What waited to be read at a time."""
        stop = int(np.searchsorted(self._queued.at_s, as_of_s, side="right"))
        file, due_s = self._queued.file[:stop][::-1], self._queued.due_s[:stop][::-1]
        item, newest = np.unique(file, return_index=True)
        waits = ~np.isnan(due_s[newest])
        item, due = item[waits], due_s[newest][waits]
        wait_s, late_s = (np.maximum(0, of).astype(np.int64) for of in (due - as_of_s, as_of_s - due))
        n_jobs, sure = np.ones(item.size, np.int64), np.ones(item.size)
        return KnownWork(item.astype(np.int64), self._size[item], n_jobs, wait_s, sure, late_s)


@dataclasses.dataclass
class Only:
    """A planner whose lists are cut to some actions; `n_pushed`: items of all its lists, made in `cpu_s`."""

    planner: ValuePlanner
    acts: Sequence[Action]
    n_pushed: int = 0
    n_lists: int = 0
    cpu_s: float = 0.0

    def actions(self, state: CacheState) -> Actions:
        """The actions that are left."""
        began_s, none = time.thread_time(), np.zeros(0, np.int64)
        whole = self.planner.actions(state)
        self.cpu_s += time.thread_time() - began_s
        pushed = {act: getattr(whole, str(act)) if act in self.acts else none for act in ALL}
        new = ~np.isin(pushed[Action.PIN], state.item[state.pinned])
        self.n_pushed += sum(pushed[act].size for act in (Action.PREFETCH, Action.EVICT)) + int(new.sum())
        self.n_lists += 1
        unpin = whole.unpin if Action.PIN in self.acts else none
        return Actions(pushed[Action.PREFETCH], pushed[Action.PIN], unpin, pushed[Action.EVICT])


class Reliability:
    """By action: files, chances that lists stated, and the files read in that time; float64[3, datasets]."""

    def __init__(self, board: Board) -> None:
        trace = board.trace
        self._from_s, self._end_s, self._first_s = board.from_s, int(trace.time_s[-1]), int(trace.time_s[0])
        self._span = self._end_s - self._first_s + 1
        self._key = np.sort(trace.item.astype(np.int64) * self._span + trace.time_s - self._first_s)
        self._dataset = board.story.files.dataset.astype(np.int64)
        n = 1 + int(self._dataset.max(initial=0))
        self.sums = {act: np.zeros((3, n)) for act in ALL}

    def note(self, planner: ValuePlanner, state: CacheState) -> None:
        """Count the lists at a boundary whose time ends within the trace."""
        judged = planner.judge(state, min_probability=planner.limits.min_prefetch_probability)
        end_s = state.as_of_s + judged.horizon_s
        if state.as_of_s < self._from_s or end_s > self._end_s:
            return
        plan = judged.plan
        for act, sums in self.sums.items():
            mine = plan.action == act.code
            before, after = (
                np.searchsorted(self._key, plan.item[mine] * self._span + at_s - self._first_s)
                for at_s in (state.as_of_s, end_s)
            )
            np.add.at(sums.T, self._dataset[plan.item[mine]], _rows(plan.probability[mine], after > before))


def _rows(chance: FloatArray, was_read: BoolArray) -> FloatArray:
    return np.column_stack([np.ones(chance.size), chance, was_read])


@dataclasses.dataclass
class Noting(Only):
    """Notes its chances each sixth list."""

    reliability: Reliability | None = None

    def actions(self, state: CacheState) -> Actions:
        """The actions, noted."""
        if self.reliability and self.n_lists % 6 == 0:
            self.reliability.note(self.planner, state)
        return super().actions(state)
