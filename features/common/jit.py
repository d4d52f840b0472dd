"""Compilation by numba: a kernel keeps its Python signature, is cached on disk and releases the GIL.

Of processes that begin together one compiles, the others wait for its machine code and load it. A file of
machine code holds all that decides it, and is taken only for that (`_Files`).
"""

import fcntl
import functools
import hashlib
import inspect
import os
import pickle
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, Final, TypeVar, cast

import numba
import numpy as np
from numba.core import serialize
from numba.core.caching import FunctionCache
from numba.core.compiler_lock import global_compiler_lock
from numba.core.dispatcher import Dispatcher
from numba.core.extending import _Intrinsic

from features.common import files

_Kernel = TypeVar("_Kernel", bound=Callable[..., object])

MOST_WAIT_S = 120.0
"""So long a process waits for another one that compiles kernels of the same module."""
_LOOK_S = 0.02
wide, narrow = (cast(Callable[[Any], int], kind) for kind in (np.int64, np.int32))
"""A number in 64 or 32 bits: a kernel is compiled for each width, and each constant, that it gets."""
_alone: set[Path] = set()
"""The locks that this process holds, which numba's own lock guards."""


def kernel(function: _Kernel) -> _Kernel:
    """`function`, compiled at its first call; later processes load the same machine code.

    Where neither the installation nor a home can be written, each process compiles it anew.
    """
    return _compiled(function)


def bare(function: _Kernel) -> _Kernel:
    """A kernel that creates no array: it goes without numba's reference counting, which is slow in loops.

    It becomes part of each kernel that calls it: a call would pass all fields of all arrays of its arguments,
    which takes longer than most of what is called.
    """
    return _compiled(function, _nrt=False, forceinline=True)


def inner(function: _Kernel) -> _Kernel:
    """A bare kernel that only kernels call: an entry for Python may take most of its compilation."""
    no_entry = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    return _compiled(function, _nrt=False, forceinline=True, **no_entry)


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
            types = tuple(compiled.typeof_pyval(argument) for argument in arguments)
            compiled.compile(types)
            code = compiled.get_overload(types)
        return code(*arguments)

    return cast(_Kernel, call)


def _compiled(function: _Kernel, **options: bool) -> _Kernel:
    compiled = cast(Any, numba).njit(nogil=True, **options)(function)
    try:
        cache = cast(Any, FunctionCache)(function)
    except RuntimeError:  # no locator available: there is no folder for the machine code
        return cast(_Kernel, compiled)
    folder = Path(cache.cache_path)
    cache._cache_file = _Files(folder, cache._impl.filename_base, function.__module__)
    cache.save_overload = partial(_save, cache.save_overload)
    compiled._cache = cache
    compiled.compile = partial(_compile_alone, compiled.compile, folder / f"{function.__module__}.lock")
    return cast(_Kernel, compiled)


def _save(save: Callable[..., None], *compiled: object) -> None:
    """Keep what was compiled, unless the disk is full or nothing can be written there any more."""
    with suppress(OSError):
        save(*compiled)


_DIGEST_BYTES: Final = 32
_NAME_CHARS: Final = 16
_MOST_BYTES: Final = 2**26


class _Files:
    """The machine code of a kernel, one file in `folder` per types of its arguments.

    It has the part of numba's files, which take code by the time of the kernel's own source: code with a
    kernel of another module in it would stay when that one changes. A file of other sources is not read, nor
    one that is damaged, and goes when one of these is written. Nor is one that another account than root's or
    this one's may write: what is read becomes code of this process.
    """

    def __init__(self, folder: Path, base: str, module: str) -> None:
        self._folder, self._base, self._module = folder, base, module

    def save(self, key: object, data: object) -> None:
        """Write the code of `key`. Raises OSError."""
        content = cast(Any, serialize).dumps(((key, _sources(self._module)), data))
        files.write(self._path(key), hashlib.sha256(content).digest() + content, mode=0o644, settle=False)
        for path in self._folder.iterdir():
            if path.name.startswith(f"{self._base}.") and not path.name.startswith(self._present()):
                path.unlink(missing_ok=True)

    def load(self, key: object) -> object:
        """The code of `key`; None if there is none."""
        try:
            stored = files.read_own(self._path(key), _MOST_BYTES)
        except OSError:
            return None
        digest, content = stored[:_DIGEST_BYTES], stored[_DIGEST_BYTES:]
        if hashlib.sha256(content).digest() != digest:
            return None
        digested, data = pickle.loads(content)  # noqa: S301  of root or of this account
        return data if digested == (key, _sources(self._module)) else None

    def _present(self) -> str:
        """How the names of files of the present sources begin."""
        return f"{self._base}.{_sources(self._module)[:_NAME_CHARS]}."

    def _path(self, key: object) -> Path:
        name = hashlib.sha256(repr(key).encode()).hexdigest()[:_NAME_CHARS]
        return self._folder / f"{self._present()}{name}.nbc"


@functools.cache
def _sources(module: str) -> str:
    """The digest of what becomes machine code with the kernels of `module`: sources, constants, compiler."""
    reached, waiting = set[str](), [module, __name__]
    while waiting:
        if (name := waiting.pop()) not in reached:
            reached.add(name)
            waiting += _used(name)
    parts = [numba.__version__, *(_source(name) for name in sorted(reached))]
    return hashlib.sha256(repr(parts).encode()).hexdigest()


@functools.cache
def _source(module: str) -> str:
    known = vars(sys.modules[module])
    constants = sorted((of, repr(value)) for of, value in known.items() if _is_constant(value))
    fields = sorted((of, value._fields) for of, value in known.items() if hasattr(value, "_fields"))
    return repr((constants, fields)) + inspect.getsource(sys.modules[module])


def _is_constant(value: object) -> bool:
    parts = value if isinstance(value, tuple) else (value,)
    return all(isinstance(part, int | float | str) for part in parts)


@functools.cache
def _used(module: str) -> frozenset[str]:
    """The modules with kernels, and with parts of kernels, among the globals of a module."""
    modules = set[str]()
    for value in vars(sys.modules[module]).values():
        parts = vars(value).values() if isinstance(value, ModuleType) else [value]
        modules |= {part.__module__ for part in parts if isinstance(part, Dispatcher | _Intrinsic)}
    return frozenset(modules)


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
