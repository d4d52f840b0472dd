"""Compilation by numba: a kernel keeps its Python signature, is cached on disk and releases the GIL."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

_Kernel = TypeVar("_Kernel", bound=Callable[..., object])


def kernel(function: _Kernel) -> _Kernel:
    """`function`, compiled at its first call; later processes load the same machine code."""
    return cast(_Kernel, numba.njit(cache=True, nogil=True)(function))


def bare(function: _Kernel) -> _Kernel:
    """A kernel that creates no array: it goes without numba's reference counting, which is slow in loops."""
    options: Any = {"cache": True, "nogil": True, "_nrt": False}
    return cast(_Kernel, numba.njit(**options)(function))
