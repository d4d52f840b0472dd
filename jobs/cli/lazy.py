"""Imports that wait until what they name is used, so that `--help` and a mistyped option cost no Spark."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import Loader
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

_JOBS = "jobs."


class _Retrying(Loader):
    """Executes a module with `loader`; after a failure the module is executed again at its next use.

    A library that searches all modules for a name (skops does, when it is imported) can touch a waiting
    module while what that module needs is itself half imported. It ignores the ImportError, and Python's
    LazyLoader alone would leave the module empty for good.
    """

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Leave the choice to the loader."""
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Execute; on an error let the module wait again, and raise it."""
        try:
            self._loader.exec_module(module)
        except BaseException:
            importlib.util.LazyLoader(self).exec_module(module)
            raise


class _LazyFinder:
    """Finds modules of `jobs` as usual, and has them executed at the first use of an attribute."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of a module of `jobs`, to be executed later; None for all others and for packages."""
        if not name.startswith(_JOBS):
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is None or spec.loader is None or spec.submodule_search_locations is not None:
            return None
        spec.loader = importlib.util.LazyLoader(_Retrying(spec.loader))
        return spec


@contextmanager
def lazily() -> Iterator[None]:
    """In this block `from jobs.room import module` waits until an attribute of the module is used.

    Names inside a module cannot wait: `from jobs.room.module import name` imports it at once.
    """
    sys.meta_path.insert(0, _LazyFinder)
    try:
        yield
    finally:
        sys.meta_path.remove(_LazyFinder)
