"""Compilation by numba: a kernel keeps its Python signature, is cached on disk and releases the GIL.

Of processes that begin together one compiles, the others wait for its machine code and load it. Without this,
each would compile; and two that compile a kernel for different types at once may leave the code of one under
the name of the other.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numba.core.compiler_lock import global_compiler_lock

_Kernel = TypeVar("_Kernel", bound=Callable[..., object])

MOST_WAIT_S = 120.0
"""So long a process waits for another one that compiles kernels of the same module."""
_LOOK_S = 0.02
_alone: set[Path] = set()
"""The locks that this process holds, which numba's own lock guards."""


def kernel(function: _Kernel) -> _Kernel:
    """`function`, compiled at its first call; later processes load the same machine code.

    Where neither the installation nor a home can be written, each process compiles it anew.
    """
    return _compiled(function)


def bare(function: _Kernel) -> _Kernel:
    """A kernel that creates no array: it goes without numba's reference counting, which is slow in loops."""
    return _compiled(function, _nrt=False)


def direct(function: _Kernel) -> _Kernel:
    """A kernel for calls from Python whose arguments always have the types of those of its first call.

    These are looked up once: with many arrays, to look takes most of the time of a call. Other types of
    numbers are converted; arrays must not differ, nobody checks.
    """
    compiled: Any = function
    code: Callable[..., object] | None = None

    def call(*arguments: object) -> object:
        nonlocal code
        if code is None:
            types = tuple(compiled.typeof_pyval(one) for one in arguments)
            compiled.compile(types)
            code = compiled.get_overload(types)
        return code(*arguments)

    return cast(_Kernel, call)


def _compiled(function: _Kernel, **options: bool) -> _Kernel:
    more: Any = {"nogil": True, **options}
    try:
        compiled = numba.njit(cache=True, **more)(function)
    except RuntimeError:  # no locator available: there is no folder for the machine code
        return cast(_Kernel, numba.njit(**more)(function))
    lock = Path(compiled.stats.cache_path, f"{function.__module__}.lock")
    compiled.compile = partial(_compile_alone, compiled.compile, lock)
    return cast(_Kernel, compiled)


def _compile_alone(compile_for: Callable[[object], object], lock: Path, types: object) -> object:
    """Compile, or load what another process has compiled, while no other one compiles in this module."""
    with global_compiler_lock, _held(lock):
        return compile_for(types)


@contextmanager
def _held(lock: Path) -> Iterator[None]:
    """Hold the file `lock`, unless this process does, it cannot be made, or it is not free in time."""
    if lock in _alone:  # kernels call others of their module
        yield
        return
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError:
        yield
        return
    _alone.add(lock)
    try:
        _wait_for(descriptor)
        yield
    finally:
        _alone.discard(lock)
        os.close(descriptor)


def _wait_for(descriptor: int) -> None:
    until_s = time.monotonic() + MOST_WAIT_S
    while time.monotonic() < until_s:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_LOOK_S)
        except OSError:  # a file system without locks
            return None
    return None
