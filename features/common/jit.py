"""Compilation by numba: a kernel keeps its Python signature, is cached on disk and releases the GIL."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

_Kernel = TypeVar("_Kernel", bound=Callable[..., object])


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
        return cast(_Kernel, numba.njit(cache=True, **more)(function))
    except RuntimeError:  # no locator available: there is no folder for the machine code
        return cast(_Kernel, numba.njit(**more)(function))
