"""One typed door to numba: a kernel keeps its Python signature, is cached on disk and frees the GIL."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

_Kernel = TypeVar("_Kernel", bound=Callable[..., object])


def kernel(function: _Kernel) -> _Kernel:
    """`function` compiled on its first call; the same machine code serves later processes."""
    return cast(_Kernel, numba.njit(cache=True, nogil=True)(function))


def bare(function: _Kernel) -> _Kernel:
    """A kernel that makes no array: numba's counting of references, dear in a loop over records, is off."""
    options: Any = {"cache": True, "nogil": True, "_nrt": False}
    return cast(_Kernel, numba.njit(**options)(function))
