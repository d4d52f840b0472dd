"""The wait for what has to come."""

import time
from collections.abc import Callable
from typing import TypeVar

import pytest

PATIENCE_S = 180.0
"""A machine at work for others starts a server in minutes."""
STOPPED_AT_ONCE = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
"""For daemons in this process: the signal may come between what opens a folder and its `with`."""
Given = TypeVar("Given")


def eventually(so: Callable[[], Given], within_s: float = PATIENCE_S, every_s: float = 0.05) -> Given:
    """What `so` gives, asked again and again until that is true, or the time is over.

    Asking takes a fifth of a core at most: what is waited for needs the rest.
    """
    until, before_s = time.monotonic() + within_s, time.thread_time()
    while not (given := so()) and time.monotonic() < until:
        time.sleep(max(every_s, 4 * (time.thread_time() - before_s)))
        before_s = time.thread_time()
    return given
