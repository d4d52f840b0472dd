"""One typed door to numba: a kernel keeps its Python signature, is cached on disk and frees the GIL."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

import numba

_Kernel = TypeVar("_Kernel", bound=Callable[..., object])


def kernel(function: _Kernel) -> _Kernel:
    """`function` compiled on its first call; the same machine code serves later processes."""
    return cast(_Kernel, numba.njit(cache=True, nogil=True)(function))
