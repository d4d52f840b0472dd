"""Work on all cores, one thread for each piece."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def each(work: Callable[[_Item], _Result], items: Iterable[_Item]) -> list[_Result]:
    """`work` of every item, in order; for work that spends its time outside Python.

    Fits side by side, not threads within a fit: OpenMP's threads wait for each other by spinning, and beside
    other work on the machine that costs many times the fit.
    """
    with threadpool_limits(1), ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        return list(pool.map(work, items))


def in_turn(work: Callable[[_Item], object], items: Iterable[_Item]) -> None:
    """`work` of every item on all cores, while the next item is made; only a few are in memory."""
    n_threads = len(os.sched_getaffinity(0))
    with threadpool_limits(1), ThreadPoolExecutor(n_threads) as pool:
        running: deque[Future[object]] = deque()
        for item in items:
            if len(running) == n_threads:
                running.popleft().result()
            running.append(pool.submit(work, item))
        for one in running:
            one.result()
