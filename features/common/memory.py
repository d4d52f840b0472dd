"""Memory that allocators keep for later, of which large work would take twice what it needs."""

import ctypes

import pyarrow as pa

_MMAP_THRESHOLD = -3  # malloc.h
_LARGE_BYTES = 2**22


def keep_large_apart() -> None:
    """From now on, give large arrays back to the system when they are freed.

    The C library would keep them, and reuse them in parts. Only glibc can do so; others do nothing.
    """
    _of_c_library("mallopt", _MMAP_THRESHOLD, _LARGE_BYTES)


def give_back() -> None:
    """Give back to the system what is free: Arrow and the C library keep what a large piece of work took."""
    pa.default_memory_pool().release_unused()
    _of_c_library("malloc_trim", 0)


def _of_c_library(name: str, *arguments: int) -> None:
    if (function := getattr(ctypes.CDLL(None), name, None)) is not None:
        function(*arguments)
