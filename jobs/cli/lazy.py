"""Imports that wait until what they name is used, so that `--help` and a mistyped option cost no Spark."""

from __future__ import annotations

import builtins
import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any


class _Waiting(ModuleType):
    """A module that is imported at the first use of one of its names."""

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self.__name__), name)


class _Room:
    """A package whose modules wait."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, module: str) -> ModuleType:
        return _Waiting(f"{self._name}.{module}")


@contextmanager
def lazily() -> Iterator[None]:
    """In this block `from jobs.room import module` imports the module at the first use of one of its names.

    Only modules can wait, not names in a module. Nothing of this is left in `sys.modules`: who imports the
    same module elsewhere gets the module itself.
    """
    at_once = builtins.__import__
    builtins.__import__ = lambda name, *_args, **_more: _Room(name)  # type: ignore[assignment]
    try:
        yield
    finally:
        builtins.__import__ = at_once
