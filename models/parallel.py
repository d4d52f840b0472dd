"""Work on all cores, one thread per piece."""

import os
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def map_parallel(
    work: Callable[[_Item], _Result], items: Iterable[_Item], *, on_done: Callable[[], None] = lambda: None
) -> list[_Result]:
    """The results of `work` on every item, in order; for work that spends its time outside Python.

    Pieces run in parallel, each with one thread: OpenMP's threads wait for each other by spinning, which
    costs many times the work where other programs run too. `on_done`: called after each piece, in its thread.
    """

    def piece(item: _Item) -> _Result:
        result = work(item)
        on_done()
        return result

    with threadpool_limits(1), ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        return list(pool.map(piece, items))


def run_bounded(work: Callable[[_Item], object], items: Iterable[_Item]) -> None:
    """Do `work` on every item, on all cores, while the next item is made; only a few are in memory."""
    n_threads = len(os.sched_getaffinity(0))
    with threadpool_limits(1), ThreadPoolExecutor(n_threads) as pool:
        running: deque[Future[object]] = deque()
        for item in items:
            if len(running) == n_threads:
                running.popleft().result()
            running.append(pool.submit(work, item))
        for future in running:
            future.result()
