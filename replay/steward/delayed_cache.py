"""A cache beside which a steward evicts, with the delays of a live one."""

from typing import NamedTuple

import numpy as np

from features.common.arrays import IntArray
from features.common.times import DAY_S
from replay.access_context import AccessContext, QueuedReads
from replay.kernels import delayed as kernel
from replay.kernels.delayed import ABSENT, CYCLE, DONE, LEARNS, PLAN, Delays, Reads, what
from replay.kernels.heap import PENDING, enter
from replay.planner import CacheState, Planner, checked, peak_inflow, sure_inflow
from replay.policies.policy import Prefetched
from replay.steward.order import ArrayOrder, extend, larger
from replay.trace import Trace

NO_DELAY = Delays()
XCACHE = Delays(seen_s=60, look_s=60, headroom=0.06, effect_s=5, open_s=600, fetch_s=60)
"""Beside an XCache: a look per minute, reads reported within a minute, files open for ten minutes.

A live steward evicts to below the high watermark, 0.95 by default, by what arrives between two looks: 5.25 to
10 % of the capacity stay free. With less room the cache's own purge takes what goes, and the order little.
"""


class Plans(NamedTuple):
    """Plans for the cache, of `capacity_bytes` and watermarks `low` and `high`, as the planner knows it.

    `planner` is asked at each multiple of `cycle_s` (s since 1970) from `from_s` on. Its pins are no victims,
    its evictions are the first victims, and its prefetches begin at once.
    """

    planner: Planner
    capacity_bytes: int
    low: float
    high: float
    cycle_s: int
    from_s: int


class DelayedCache:
    """An empty cache for the files of a trace, and a steward beside it that knows them.

    Plans are made from the first boundary after the first read on.
    """

    def __init__(
        self,
        order: ArrayOrder,
        context: AccessContext,
        trace: Trace,
        capacity_bytes: int,
        delays: Delays,
        *,
        plans: Plans | None = None,
    ) -> None:
        files = context.files
        order.add(
            *(column.astype(np.int64, copy=False) for column in (files.dataset, files.tier, trace.size_bytes))
        )
        self._order, self._learnt = order.followed, order.learnt
        none = self._learnt.number(-1)
        self._cache = kernel.new_cache(capacity_bytes, delays, none, trace.size_bytes, trace.n_accesses)
        self._context, self._trace, self._plans = context, trace, plans
        self._inflows: list[int] = []
        self._n_coming = 0
        if plans is not None:
            first_s = -(-max(int(trace.time_s[0]), plans.from_s) // plans.cycle_s) * plans.cycle_s
            enter(self._cache.agenda, first_s - plans.cycle_s, what(CYCLE, 0))
            enter(self._cache.agenda, first_s, what(PLAN, 0))

    def serve(self, needed: IntArray, queued: QueuedReads) -> Reads:
        """Replay, where each access reads the first `needed` bytes of its file; `queued`: what queues say.

        Raises InputError if a plan names a file that the trace does not have.
        """
        trace, context, sums = self._trace, self._context, self._cache.sums
        n = trace.n_accesses
        answers = (np.zeros(k, np.int64) for k in (1, n, n, n))
        open_s, close_s = self._cache.delays.open_s, trace.close_s
        if close_s is None or not open_s:
            close_s = trace.time_s + open_s
        reads = Reads(trace.time_s, trace.item, context.reader, close_s, needed, queued, *answers)
        reads.refetched[:] = ABSENT
        while (why := kernel.serve(self._cache, self._order, reads, self._learnt.begins_s)) != DONE:
            asked = int(sums[kernel.ASKED])
            if why == LEARNS:
                self._cache = self._cache._replace(learnt=self._learnt.number(asked))
            else:
                assert self._plans is not None
                self._plan(self._plans, asked)
        return reads

    @property
    def peak_bytes(self) -> int:
        """The most bytes on disk."""
        return int(self._cache.sums[kernel.PEAK])

    def prefetched(self, reads: Reads) -> Prefetched:
        """The files that were fetched ahead; `reads`: those that were served."""
        at_s, n_bytes, ended_s, is_read = self._cache.came[: self._cache.sums[kernel.N_CAME]].T.copy()
        again = reads.refetched != ABSENT
        refetched = np.column_stack([reads.time_s[again], reads.refetched[again]])
        return Prefetched(at_s, n_bytes, ended_s, is_read.astype(np.bool_), refetched)

    def _plan(self, plans: Plans, now_s: int) -> None:
        """A boundary: ask for the plan, and begin to carry it out."""
        cache, cycle_s = self._cache, plans.cycle_s
        inflow_bytes = int(cache.sums[kernel.INFLOW])
        self._inflows = [*self._inflows, inflow_bytes][-max(1, DAY_S // cycle_s) :]
        actions = checked(plans.planner.actions(self._state(plans, now_s)), self._trace.n_items)
        cache.sums[kernel.INFLOW] = 0
        first = np.array([*dict.fromkeys(actions.evict.tolist())], np.int64)
        self._cache = cache = cache._replace(first=first)
        cache.is_first[:] = False
        cache.is_first[first] = True
        cache.pinned[actions.unpin] = False
        cache.pinned[actions.pin[cache.held[actions.pin] != ABSENT]] = True
        stayed = cache.spare.copy()
        cache.spare[:] = (cache.opens > 0) | cache.pinned
        unpinned = np.flatnonzero(stayed & ~cache.spare)
        coming = actions.prefetch[cache.held[actions.prefetch] == ABSENT]
        self._make_room(coming.size)
        kernel.carry_out(cache, self._order, unpinned, coming, now_s)
        enter(cache.agenda, now_s + cycle_s, what(PLAN, 0))

    def _make_room(self, n_coming: int) -> None:
        """Room for so many more prefetches, now and when they come, and for the next plan."""
        cache = self._cache
        n_reads = self._trace.n_accesses - int(cache.sums[kernel.SERVED])
        pending = int(cache.agenda.sums[PENDING])
        n_most = pending + 2 * n_reads + cache.size.size + n_coming + 3
        for column in cache.agenda.heap:
            extend(column, larger(len(column), n_most))
        self._n_coming += n_coming
        extend(cache.came, larger(len(cache.came), self._n_coming))

    def _state(self, plans: Plans, now_s: int) -> CacheState:
        """The cache as the planner sees it; the age at which files are purged is unknown."""
        cache = self._cache
        item = np.flatnonzero(cache.held != ABSENT)
        last_use_s = cache.last_use_s[item]
        return CacheState(
            as_of_s=now_s,
            capacity_bytes=plans.capacity_bytes,
            low_watermark=plans.low,
            high_watermark=plans.high,
            item=item,
            bytes_on_disk=cache.held[item],
            last_access_s=last_use_s,
            pinned=cache.pinned[item],
            is_open=last_use_s > now_s,
            inflow_bytes=int(cache.sums[kernel.INFLOW]),
            peak_inflow_bytes=peak_inflow(self._inflows, plans.cycle_s),
            lru_age_s=None,
            sure_inflow_bytes=sure_inflow(self._inflows, plans.cycle_s),
        )
