"""Threads for replays."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager


@contextmanager
def threads(workers: int | None = None) -> Iterator[ThreadPoolExecutor]:
    """`workers` threads, one per core by default.

    The block's end waits for them. If it fails or is interrupted, what has not begun is dropped, and nothing
    waits for the rest.
    """
    pool = ThreadPoolExecutor(workers)
    try:
        yield pool
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()
