"""Locks: of one machine, released by the kernel; and leases on file systems that many machines share.

A lease is a file that names its holder and is created only once. No kernel releases it when its holder dies:
it stays until the holder removes it, or an operator breaks it.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import fcntl
import getpass
import json
import os
import shutil
import signal
import socket
import stat
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from features.common import strict_json
from features.common.errors import ConfigError, ConflictError

if TYPE_CHECKING:
    from jobs.ground.store.filesystems import Store

_YOUNG_S = 60.0  # a folder may not be locked yet for so long


@contextmanager
def alone_at(folder: Path, work: str) -> Iterator[bool]:
    """Hold a lock on `folder` itself while the block runs, whatever it is called; nothing is written.

    `work`: the kind of work, for example `steward of cache 'xc1'`. Raises ConflictError at once, naming the
    holder, if another process of this machine has it that is of this account, of the folder's owner or of
    root; who else can read the folder can lock it too, and is no reason to wait: then it gives False. Raises
    ConfigError if the folder cannot be locked, for example on a network file system.
    """
    is_held = True
    with contextlib.ExitStack() as stack:
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            stack.callback(os.close, descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder, is_held = _holder(descriptor), False
            if _account(holder) in {0, os.geteuid(), os.fstat(descriptor).st_uid}:
                raise ConflictError(_at_work(work, holder, folder)) from None
        except OSError as error:
            raise ConfigError(str(folder), f"cannot be locked for the {work}: {error.strerror}") from error
        yield is_held


def _holder(descriptor: int) -> str:
    """The process that holds the lock on what is open as `descriptor`, by the kernel's list."""
    status, holders = os.fstat(descriptor), dict[str, str]()
    device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}"
    with contextlib.suppress(OSError):
        for line in Path("/proc/locks").read_text().splitlines():
            words = line.split()
            if words[1:2] == ["FLOCK"] and words[5].endswith(f":{status.st_ino}"):
                holders.setdefault(words[5], words[4])
    # Another disk can have a file of this number; some file systems, as btrfs, state another device here.
    return holders.get(f"{device}:{status.st_ino}", next(iter(holders.values()), "unknown"))


def _account(process: str) -> int | None:
    """Who a process works for; None: it has ended, or is in a place that is not seen from here."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process}").stat().st_uid
    return None


@contextmanager
def scratch_folder(prefix: str) -> Iterator[Path]:
    """A temporary folder; those that killed processes of this account have left are removed first."""
    for left in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        with contextlib.suppress(OSError, ConfigError, ConflictError):
            status = left.lstat()
            is_ours = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
            if is_ours and time.time() - status.st_mtime > _YOUNG_S:
                with alone_at(left, "work") as is_held:
                    # Else a process works there that is not seen from here: one of another container.
                    if is_held:
                        shutil.rmtree(left)
    with tempfile.TemporaryDirectory(prefix=prefix) as folder, contextlib.ExitStack() as stack:
        with contextlib.suppress(ConfigError):  # no lock there: nobody can tell, and nobody removes it
            stack.enter_context(alone_at(Path(folder), "work"))
        yield Path(folder)


@contextmanager
def exclusive(path: Path, work: str) -> Iterator[None]:
    """Hold the lock file `path` while the block runs; `work`: the kind of work, for example `pull`.

    The file stays, and contains the process id of its last holder; no other account can read it, and so none
    can lock it. Raises ConflictError at once, naming the holder, if another process has it, ConfigError if
    the file is another account's. Local file systems only.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        file = path.open("a+")
        os.fchmod(file.fileno(), 0o600)
    except PermissionError as error:
        raise ConfigError(
            str(path), f"{error.strerror}; if another account has left it, remove it"
        ) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read(20).strip() or "unknown"
            raise ConflictError(_at_work(work, holder, path.parent)) from None
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield


def _at_work(work: str, holder: str, folder: Path) -> str:
    return f"another {work} (process {holder}) is at work on {folder}; wait for it to end"


@contextmanager
def leased(store: Store, name: str, work: str) -> Iterator[None]:
    """Hold the lease `name` while the block runs; `work`: the kind of work, for example `pull`.

    The lease is released however the block ends, also by SIGTERM, but not by SIGKILL or the loss of the
    machine. Raises ConflictError at once, naming the holder, if the lease is held.
    """
    holder = {
        "owner": _user(),
        "host": socket.gethostname(),
        "pid": str(os.getpid()),
        "since": dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "token": uuid.uuid4().hex,
    }
    lease = json.dumps(holder).encode()
    if not store.put_if_absent(name, lease):
        raise ConflictError(
            f"another {work} ({_holder_label(_read_lease(store, name))}) is at work on {store.root}; wait "
            f"for it to end. If it died, break its lock: cachecast unlock --tables {store.root}"
        )
    try:
        with _terminable():
            yield
    finally:
        if _read_lease(store, name) == lease:
            store.remove(name)


def broken(store: Store, name: str) -> str | None:
    """Break the lease `name`; returns a description of its holder, None if nobody held it."""
    lease = _read_lease(store, name)
    if lease is None:
        return None
    store.remove(name)
    return _holder_label(lease)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        return f"user {os.getuid()}"


def _read_lease(store: Store, name: str) -> bytes | None:
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

    def unwind(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, unwind)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
