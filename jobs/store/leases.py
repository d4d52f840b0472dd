"""Locks on a file system shared by many machines: a file that names its holder and is created only once.

No kernel releases it when its holder dies: it stays until the holder removes it, or an operator breaks it.
"""

from __future__ import annotations

import datetime as dt
import getpass
import json
import os
import signal
import socket
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Protocol

from features.common import strict_json
from features.common.errors import ConflictError


class LeaseStore(Protocol):
    """The part of `Store` that a lease needs."""

    @property
    def root(self) -> str: ...
    def read(self, name: str) -> bytes: ...
    def put_if_absent(self, name: str, content: bytes) -> bool: ...
    def remove(self, name: str) -> None: ...


@contextmanager
def leased(store: LeaseStore, name: str, work: str) -> Iterator[None]:
    """Hold the lease `name` while the block runs; `work`: the kind of work, for example `pull`.

    The lease is released however the block ends, also by SIGTERM, but not by SIGKILL or the loss of the
    machine. Raises ConflictError at once, naming the holder, if the lease is held.
    """
    lease = json.dumps(_holder() | {"what": work}).encode()
    if not store.put_if_absent(name, lease):
        raise ConflictError(
            f"another {work} ({_holder_label(_read(store, name))}) is at work on {store.root}; wait for it "
            f"to end. If it died, break its lock: cachecast unlock --tables {store.root}"
        )
    try:
        with _terminable():
            yield
    finally:
        if _read(store, name) == lease:
            store.remove(name)


def broken(store: LeaseStore, name: str) -> str | None:
    """Break the lease `name`; returns a description of its holder, None if nobody held it."""
    lease = _read(store, name)
    if lease is None:
        return None
    store.remove(name)
    return _holder_label(lease)


def _holder() -> dict[str, str]:
    return {
        "owner": _user(),
        "host": socket.gethostname(),
        "pid": str(os.getpid()),
        "since": dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "token": uuid.uuid4().hex,
    }


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        return f"user {os.getuid()}"


def _read(store: LeaseStore, name: str) -> bytes | None:
    try:
        return store.read(name)
    except FileNotFoundError:
        return None


def _holder_label(lease: bytes | None) -> str:
    try:
        words = {key: str(value) for key, value in strict_json.loads(lease or b"{}").items()}
        return f"{words['owner']} on {words['host']}, process {words['pid']}, since {words['since']}"
    except (ValueError, AttributeError, KeyError):
        return "unknown"


@contextmanager
def _terminable() -> Iterator[None]:
    """Let SIGTERM unwind the block; by default it ends the process without cleaning up."""
    ours = threading.current_thread() is threading.main_thread()
    if not ours or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, _unwind)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _unwind(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)
