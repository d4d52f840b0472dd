"""A folder that one process of a run makes, and all of them read."""

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import pytest


def made_once(temporary: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """The folder `name` of this run, filled by `make` in the process that needs it first.

    One that failed is left as it is, and the next process makes another.
    """
    own = temporary.getbasetemp()
    of_run = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
    done = of_run / f"{name}.made"
    with (of_run / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            folder = temporary.mktemp(name)
            make(folder)
            done.symlink_to(folder)
    return done.resolve()
