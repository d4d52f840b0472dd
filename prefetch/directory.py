"""A folder as a cache: the embedded target, with the interface, records and purge order of a real XCache.

Files lie below `files/`; a file's modification time is the end of its last use. Every use appends the record
that XCache would send to `gstream.txt`, so that one reader serves both. Several processes may share a folder.
"""

import contextlib
import errno
import json
import os
import secrets
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from features.common.errors import PushRejected, SourceUnavailable, TargetUnavailable
from prefetch.lfn import checked_lfn, fault_of, path_below
from prefetch.target import Confirmation, Held, LeftOut
from prefetch.xcache.events import frame
from prefetch.xcache.gstream import PSEQ_MODULUS
from prefetch.xcache.rolling import append

BLOCK_BYTES = 128 * 1024
_ABANDONED_S = 3600
"""A partial copy of this age is of a process that was killed."""
_READ_TIMEOUT_S = 60.0
_NOT_A_FILE = (FileNotFoundError, FileExistsError, IsADirectoryError, NotADirectoryError, PermissionError)


def n_blocks_of(size_bytes: int) -> int:
    """Blocks of a file as XCache counts them: at least one."""
    return max(1, -(-size_bytes // BLOCK_BYTES))


class DirectoryTarget:
    """A cache in folder `root` of the files below `origin`."""

    left_out = LeftOut()

    def __init__(self, name: str, origin: Path, root: Path) -> None:
        self.name = name
        self._origin = Path(os.path.realpath(origin))
        self.namespace = root / "files"
        self.gstream = root / "gstream.txt"
        self._tmp = root / "tmp"
        for folder in (self.namespace, self._tmp):
            folder.mkdir(parents=True, exist_ok=True)
        self._recording, self._pseq = threading.Lock(), 0
        self._sender = {
            "stod": int(time.time()),
            "sid": secrets.randbits(48),
            "src": {"site": name, "host": "localhost", "port": 0, "inst": f"directory-{os.getpid()}"},
        }

    def prefetch(self, name: str, *, timeout_s: float) -> int:
        path = path_below(self.namespace, name)
        fetched = not self._has(path)
        if fetched:
            self._fetch(name, path, timeout_s)
        size = self._set_last_use(path)
        n_blocks = n_blocks_of(size) if size else 0
        self._record(name, size, hit=0 if fetched else n_blocks, missed=n_blocks if fetched else 0)
        return size

    def touch(self, name: str, *, timeout_s: float, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Make `name` the most recently used. Raises PushRejected if it is not here."""
        path = path_below(self.namespace, name)
        self._has(path)
        size = self._set_last_use(path)
        meanwhile()
        self._record(name, size, hit=0, missed=0)

    def evict(self, name: str, *, timeout_s: float) -> None:
        path = path_below(self.namespace, name)
        if self._has(path):
            try:
                path.unlink()
            except OSError as error:
                _refuse(error)

    def removes_open_files(self) -> bool:
        """No: a process that has the file open goes on reading it."""
        return False

    def identity(self) -> None:
        """Nothing: no server stands before a folder."""

    def confirm(self, name: str) -> Confirmation:
        return Confirmation(_held(name, path_below(self.namespace, name)), "directory")

    def clock_skew_s(self) -> float:
        """Zero: the times of files in a folder are of this machine's clock."""
        return 0.0

    def confirm_absent(self, name: str) -> Confirmation:
        """What the folder holds, as there is no server to ask. Raises TargetUnavailable if it is there."""
        confirmed = self.confirm(name)
        if confirmed.held is not None:
            raise TargetUnavailable(f"{name} came back to cache {self.name!r} meanwhile")
        return confirmed

    def inventory(self, expected: Collection[str] = ()) -> Iterator[Held]:
        """Every file in the folder, except those in `left_out`: links, and names that no command takes.

        Raises TargetUnavailable if a part of it cannot be read, or the folder is gone at the end.
        """
        left_out = LeftOut()
        for folder, _, files in os.walk(self.namespace, onerror=_refuse):
            for file in files:
                path = Path(folder) / file
                held = _held(f"/{path.relative_to(self.namespace)}", path)
                if held is None:
                    continue
                if path.is_symlink():  # what it leads to takes no room here
                    left_out = left_out.with_one(held._replace(bytes_on_disk=path.lstat().st_size))
                elif fault_of(held.name) is not None:
                    left_out = left_out.with_one(held)
                else:
                    yield held
        self.left_out = left_out
        if not self.namespace.is_dir():
            raise TargetUnavailable(f"{self.namespace}, the folder of cache {self.name!r}, is gone")

    def read(self, name: str) -> bool:
        """Read `name` as a job would; True if it was here, else it is fetched first."""
        path = path_below(self.namespace, name)
        hit = self._has(path)
        if not hit:
            self._fetch(name, path, _READ_TIMEOUT_S)
        size = self._set_last_use(path)
        self._record(name, size, hit=size if hit else 0, missed=0 if hit else size)
        return hit

    def purge(self, low: float, high: float, capacity_bytes: int) -> list[str]:
        """The names of the files removed: the longest unused first, down to `low` of the capacity.

        Nothing is removed while no more than `high` of the capacity is used.
        """
        for partial in self._tmp.iterdir():
            with contextlib.suppress(FileNotFoundError):
                if time.time() - partial.stat().st_mtime > _ABANDONED_S:
                    partial.unlink()
        held = sorted(self.inventory(), key=lambda file: (file.last_detach_s or 0, file.name))
        used_bytes = self.left_out.n_bytes + sum(file.bytes_on_disk for file in held)
        if used_bytes <= high * capacity_bytes:
            return []
        purged = []
        for file in held:
            if used_bytes <= low * capacity_bytes:
                break
            self.evict(file.name, timeout_s=1.0)
            used_bytes -= file.bytes_on_disk
            purged.append(file.name)
        return purged

    def _has(self, path: Path) -> bool:
        """Whether the file is here. Raises PushRejected if it is a folder."""
        if path.is_dir():
            raise PushRejected(f"{path.name!r} is a folder in cache {self.name!r}")
        return path.exists()

    def _fetch(self, name: str, path: Path, timeout_s: float) -> None:
        source = path_below(self._origin, name)
        if not self._origin.is_dir():
            raise SourceUnavailable(f"origin folder {self._origin} is unavailable")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._copy(source, path, time.monotonic() + timeout_s)
        except OSError as error:
            if isinstance(error, _NOT_A_FILE) or error.errno == errno.ELOOP:
                what = f"{name} cannot be fetched from {self._origin}: {error.strerror}"
                raise PushRejected(what) from error
            raise TargetUnavailable(f"{name} cannot be fetched: {error.strerror}") from error

    def _copy(self, source: Path, path: Path, deadline: float) -> None:
        # Written aside and renamed, so that a crash leaves no half file under a file's name.
        descriptor, partial = tempfile.mkstemp(dir=self._tmp)
        try:
            with os.fdopen(descriptor, "wb") as target, source.open("rb") as content:
                while chunk := content.read(2**20):
                    if time.monotonic() > deadline:
                        raise SourceUnavailable(f"{source}: not copied in time")
                    target.write(chunk)
            Path(partial).replace(path)
        except BaseException:
            Path(partial).unlink(missing_ok=True)
            raise

    def _set_last_use(self, path: Path) -> int:
        """Set the last use of a file to now; return its size. Raises PushRejected if it is not here."""
        now_s = time.time()
        try:
            os.utime(path, (now_s, now_s))
            return path.stat().st_size
        except OSError as error:
            _refuse(error)
            raise PushRejected(f"cache {self.name!r} does not hold {path.name!r}") from error

    def _record(self, name: str, size: int, *, hit: int, missed: int) -> None:
        """Append a `file_close` of bytes hit and missed, as an XCache sends it: numbered, one per datagram.

        Raises TargetUnavailable if it cannot be written.
        """
        now_s, n_blocks = int(time.time()), n_blocks_of(size)
        record = {"event": "file_close", "lfn": checked_lfn(name), "size": size, "blk_size": BLOCK_BYTES}
        record |= {"n_blks": n_blocks, "n_blks_done": n_blocks if size else 0, "access_cnt": 1}
        record |= {"attach_t": now_s, "detach_t": now_s}
        record |= {"remotes": [self._origin.as_uri()] if missed else []}
        record |= {"b_hit": hit, "b_miss": missed, "b_bypass": 0, "n_cks_errs": 0}
        with self._recording:
            self._pseq = (self._pseq + 1) % PSEQ_MODULUS
            header = {"code": "g", "pseq": self._pseq, **self._sender}
            header["gs"] = {"type": "C", "tbeg": now_s, "tend": now_s}
            body = "\n".join(json.dumps(part, separators=(",", ":")) for part in (header, record))
            try:
                descriptor = os.open(self.gstream, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
                try:
                    append(descriptor, frame(now_s, 0, body.encode()))
                finally:
                    os.close(descriptor)
            except OSError as error:
                raise TargetUnavailable(f"cannot write {self.gstream}: {error.strerror}") from error


def _held(name: str, path: Path) -> Held | None:
    try:
        status = path.stat()
    except OSError as error:
        _refuse(error)
        return None
    if stat.S_ISDIR(status.st_mode):
        return None
    return Held(name, status.st_size, status.st_size, True, int(status.st_mtime), False)


def _refuse(error: OSError) -> None:
    """Raise TargetUnavailable, unless there is nothing: what cannot be read would count as gone."""
    if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
        raise TargetUnavailable(f"cannot use {error.filename}: {error.strerror}") from error
