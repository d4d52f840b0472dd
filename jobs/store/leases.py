"""One at a time on a file system of many machines: a file that names its holder, created once.

No kernel takes it back when its holder dies: it stays until the holder ends, or a person breaks it.
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

from features import strict_json
from features.errors import ConflictError


class LeaseStore(Protocol):
    """What a lease needs of its store; see `Store`."""

    @property
    def root(self) -> str: ...
    def read(self, name: str) -> bytes: ...
    def put_if_absent(self, name: str, content: bytes) -> bool: ...
    def remove(self, name: str) -> None: ...


@contextmanager
def leased(store: LeaseStore, name: str, what: str) -> Iterator[None]:
    """Hold the lease `name` while the block runs; `what` says who is at work, as `pull`.

    It is given back however the block ends, also by SIGTERM; only SIGKILL or a lost machine leave it behind.
    Raises ConflictError at once, naming the holder.
    """
    lease = json.dumps(_holder() | {"what": what}).encode()
    if not store.put_if_absent(name, lease):
        raise ConflictError(
            f"another {what} ({_told(_read(store, name))}) is at work on {store.root}; wait for it to end. "
            f"If it died, break its lock: cachecast unlock --tables {store.root}"
        )
    try:
        with _terminable():
            yield
    finally:
        if _read(store, name) == lease:
            store.remove(name)


def broken(store: LeaseStore, name: str) -> str | None:
    """Take the lease `name` away, whoever holds it; its holder in words, None if there is none."""
    lease = _read(store, name)
    if lease is None:
        return None
    store.remove(name)
    return _told(lease)


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
    except (KeyError, OSError):  # a container may run as a number without a name
        return f"user {os.getuid()}"


def _read(store: LeaseStore, name: str) -> bytes | None:
    try:
        return store.read(name)
    except FileNotFoundError:
        return None


def _told(lease: bytes | None) -> str:
    try:
        words = {key: str(value) for key, value in strict_json.loads(lease or b"{}").items()}
        return f"{words['owner']} on {words['host']}, process {words['pid']}, since {words['since']}"
    except (ValueError, AttributeError, KeyError):
        return "unknown"


@contextmanager
def _terminable() -> Iterator[None]:
    """Let SIGTERM unwind the block; by default it ends the process where it stands."""
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
