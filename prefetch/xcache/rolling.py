"""A collector's folder: captures that roll, their quota, and the heartbeat beside them.

A file being written ends in `.part`, a finished one does not.

Frames are written at once, so killing the writer loses none. A second thread syncs them every `SYNC_EVERY_S`,
so that a crash of the machine loses no more, and finishes files: fsync, then rename. Readers leave out a torn
last frame.
"""

import contextlib
import json
import math
import os
import queue
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import pydantic

from features.common import files
from features.common.errors import InputError, NotPlainError, ServiceError
from features.common.input_files import InputFile, plain
from features.common.times import as_of_label

PART: Final = ".part"
SYNC_EVERY_S: Final = 1.0
CAPTURES: Final = "gstream", ".capture"
_FILE_MODE = 0o640
_MAX_LINE_BYTES = 2**22


class RollingFiles:
    """Frames appended to `gstream-<number>-<time>.capture` in `folder`, in the order of their names.

    One process at a time writes there. A file is finished at `roll_bytes`, `roll_s` after its first frame, or
    at `close`. `form`: name and suffix; of others than `CAPTURES` a torn last line is cut off. Raises
    ServiceError.
    """

    def __init__(
        self, folder: Path, *, roll_bytes: int, roll_s: int, form: tuple[str, str] = CAPTURES
    ) -> None:
        self._folder = folder
        self._form = form
        self._roll_bytes = roll_bytes
        self._roll_s = roll_s
        self._file: int | None = None
        self._path = folder
        self._size_bytes = 0
        self._began_s = 0.0
        self._failure: OSError | None = None
        self._is_named = True
        self._to_finish: queue.Queue[tuple[int, Path] | None] = queue.Queue()
        try:
            self.n_recovered = self._recover()
        except OSError as error:
            raise self._unwritable(error) from error
        self._number = max(map(_number, folder.glob("-*".join(form))), default=0)
        self._syncer = threading.Thread(target=self._sync, name="capture-sync", daemon=True)
        self._syncer.start()

    def append(self, framed: bytes, now_s: float) -> None:
        """Write one frame; it is in the file when this returns. Raises ServiceError."""
        try:
            if self._failure is not None:
                raise self._failure
            self.roll(now_s, len(framed))
            if self._file is None:
                self._begin(now_s)
            assert self._file is not None
            append(self._file, framed)
        except OSError as error:
            raise self._unwritable(error) from error
        self._size_bytes += len(framed)

    def roll(self, now_s: float, n_more_bytes: int = 0) -> None:
        """Finish the file if its time is over, or `n_more_bytes` do not fit."""
        full = self._size_bytes + n_more_bytes > self._roll_bytes
        if self._file is not None and (full or not 0 <= now_s - self._began_s < self._roll_s):
            self._to_finish.put((self._file, self._path))
            self._file = None

    def sync(self) -> None:
        """Bring all frames, and the names of their files, to the disk. Raises ServiceError."""
        self._to_finish.join()
        try:
            if self._failure is not None:
                raise self._failure
            if self._file is not None:
                os.fdatasync(self._file)
            if not self._is_named:
                files.sync_folder(self._folder)
                self._is_named = True
        except OSError as error:
            raise self._unwritable(error) from error

    def close(self) -> None:
        """Finish the file. Raises ServiceError if one could not be brought to the disk."""
        if self._file is not None:
            self._to_finish.put((self._file, self._path))
            self._file = None
        self._to_finish.put(None)
        self._syncer.join()
        if self._failure is not None:
            raise self._unwritable(self._failure)

    def newest(self) -> Path | None:
        return max(self._folder.glob("-*".join(self._form)), key=_number, default=None)

    def _begin(self, now_s: float) -> None:
        # Rising, also where finished files were moved away or the clock went back.
        self._number = max(self._number + 1, int(now_s))
        moment = as_of_label(int(now_s)).replace("-", "").replace(":", "")
        name, suffix = self._form
        self._path = self._folder / f"{name}-{self._number:012d}-{moment}{suffix}{PART}"
        self._file = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL, _FILE_MODE)
        self._size_bytes, self._began_s, self._is_named = 0, now_s, False

    def _recover(self) -> int:
        """Finish what a killed writer left; the number of files."""
        left = sorted(self._folder.glob(f"{'-*'.join(self._form)}{PART}"))
        for path in left:
            _finish(os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK), path)
        return len(left)

    def _sync(self) -> None:
        while True:
            file = self._file
            try:
                job = self._to_finish.get(timeout=SYNC_EVERY_S)
                if job is None:
                    return
                try:
                    _finish(*job)
                finally:
                    self._to_finish.task_done()
            except queue.Empty:
                if file is not None:
                    os.fdatasync(file)
            except OSError as error:
                self._failure = error

    def _unwritable(self, error: OSError) -> ServiceError:
        return ServiceError(f"cannot write captures to {self._folder}: {error.strerror}")


def append(descriptor: int, framed: bytes) -> None:
    """Append one frame in one write, so that frames of several writers do not mix."""
    n_written = os.write(descriptor, framed)
    while n_written < len(framed):
        n_written += os.write(descriptor, framed[n_written:])


def _finish(file: int, path: Path) -> None:
    """Bring the file and its final name to the disk; one without a byte is removed."""
    try:
        if CAPTURES[1] not in path.suffixes:
            _cut(file)
        os.fsync(file)
        if os.fstat(file).st_size:
            path.rename(path.with_suffix(""))
        else:
            path.unlink()
    finally:
        os.close(file)
    files.sync_folder(path.parent)


def _cut(file: int) -> None:
    """Cut off a last line without an end: a full disk, or the end of a process, tore it."""
    end = os.fstat(file).st_size
    tail = os.pread(file, _MAX_LINE_BYTES, max(0, end - _MAX_LINE_BYTES))
    if n_torn := len(tail) - (tail.rfind(b"\n") + 1):
        os.ftruncate(file, end - n_torn)


def _number(path: Path) -> int:
    number = path.name.split("-")[1]
    return int(number) if number.isdecimal() else 0


_MEASURED_EVERY_S: Final = 1.0


class Quota:
    """Keeps the captures in `folder` within `quota_bytes`; when full, it looks once a second what is left."""

    def __init__(
        self,
        folder: Path,
        quota_bytes: int,
        *,
        pattern: str = "-*".join(CAPTURES),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pattern = pattern
        self.quota_bytes = quota_bytes
        self.held_bytes = 0
        self.folder = folder
        self._clock = clock
        self.measure()

    def measure(self) -> None:
        self.held_bytes = held_bytes(self.folder, self._pattern)
        self._measured_s = self._clock()

    def admits(self, n_bytes: int) -> bool:
        """Whether `n_bytes` more fit; if so, they count as held."""
        has_room = self.has_room(n_bytes)
        self.held_bytes += n_bytes if has_room else 0
        return has_room

    def has_room(self, n_bytes: int = 1) -> bool:
        is_full = self.held_bytes + n_bytes > self.quota_bytes
        if is_full and self._clock() - self._measured_s >= _MEASURED_EVERY_S:
            self.measure()
        return self.held_bytes + n_bytes <= self.quota_bytes


def held_bytes(folder: Path, pattern: str = "-*".join(CAPTURES)) -> int:
    """The bytes of all captures in `folder`, also of one being written."""
    return sum(map(_size_bytes, folder.glob(f"{pattern}*")))


def _size_bytes(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:  # archived since it was listed
        return 0


BEAT_EVERY_S: Final = 2.0
BEAT_FRESH_S: Final = 15.0
"""After so many seconds of silence a collector hangs, or has ended."""
_HEARTBEAT_NAME: Final = ".heartbeat"
_MAX_HEARTBEAT_BYTES: Final = 4096

_Count = Annotated[int, pydantic.Field(ge=0, lt=2**63)]


class Heartbeat(NamedTuple):
    """A collector's counts since its start. `dropped`: by the kernel; `is_full`: nothing is kept now."""

    dropped: _Count
    over_quota: _Count
    is_full: bool

    def write(self, folder: Path) -> None:
        """Replace the heartbeat in `folder`; if it cannot be written, its age shows that."""
        with contextlib.suppress(OSError):
            if folder.is_dir():
                files.write(folder / _HEARTBEAT_NAME, json.dumps(self._asdict()), settle=False)

    @staticmethod
    def end(folder: Path) -> None:
        with contextlib.suppress(OSError):
            (folder / _HEARTBEAT_NAME).unlink(missing_ok=True)


_HEARTBEAT: Final = pydantic.TypeAdapter(Heartbeat)


def check_heartbeat(folder: Path) -> Heartbeat:
    """The heartbeat of the collector that writes to `folder`.

    Raises InputError if none does, if it hangs, and while the captures fill their quota.
    """
    path = folder / _HEARTBEAT_NAME
    try:
        age_s = time.time() - path.stat().st_mtime
        with plain(InputFile(folder, _HEARTBEAT_NAME)) as name, Path(name).open("rb") as opened:
            heartbeat = _HEARTBEAT.validate_python(json.loads(opened.read(_MAX_HEARTBEAT_BYTES)))
    except (OSError, ValueError, NotPlainError):
        age_s = math.inf
    if not -BEAT_FRESH_S < age_s < BEAT_FRESH_S:
        was = "no collector writes" if math.isinf(age_s) else "the collector has hung that writes"
        raise InputError(
            f"{was} to {folder}, so that nothing is reported; start it: cachecast collect --port PORT "
            f"--out {folder}"
        )
    if heartbeat.is_full:
        raise InputError(
            f"captures in {folder} fill their quota, so that reports are refused; pull them, or raise "
            "[collect] quota"
        )
    return heartbeat
