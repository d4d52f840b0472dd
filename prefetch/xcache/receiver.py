"""Receives what caches send by UDP into captures: of several caches, counted and rolled; or of one."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from features.common.errors import InputError, ServiceError
from features.common.input_files import InputFile
from prefetch.xcache import fstream
from prefetch.xcache.events import BINARY, MAX_DATAGRAM_BYTES, ReportSender, frame, is_kept, read_datagram
from prefetch.xcache.gstream import MAX_SENDERS, CaptureReader, Numberings, note
from prefetch.xcache.rolling import BEAT_EVERY_S, Heartbeat, Quota, RollingFiles, append

COUNTS: Final = (
    *("datagrams", "bytes", "caches", "lost", "dropped", "restarts", "other", "malformed", "over_quota"),
    *("files_recovered", "held_bytes", "quota_bytes"),
)
"""What is counted since the start. datagrams, bytes: received. lost: missing in the caches' numbering;
dropped: by this machine's kernel, as they were not read in time, or not read at all when it ended; caches:
lives of caches seen first, restarts: those of a cache seen before. Of those received all are kept but other:
datagrams of other streams, malformed: those that no cache sends, and over_quota: those that found the folder
full. held_bytes, quota_bytes: of the folder now, and at most."""

_STOP_WITHIN_S: Final = 0.5
_COUNT_WITHIN_S: Final = 0.2
# Linux 4.12: a socket's memory as counters of 32 bits, the last of these what it dropped so far.
_SO_MEMINFO: Final = 55
_MEMINFO = struct.Struct("=9I")
# So much of the last capture shows where each cache's numbering stood.
_RESUME_BYTES: Final = 2**20
_WAKE_S = 0.2
_BUFFER_BYTES = 4 * 2**20


def listening(host: str, port: int) -> socket.socket:
    """A UDP socket that waits for a moment at a time; port 0 takes any free one. Raises ServiceError."""
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
        listener.bind((host, port))
    except (OSError, OverflowError, TypeError) as error:  # no such port, or a name that cannot be asked for
        listener.close()
        reason = getattr(error, "strerror", None) or str(error)
        raise ServiceError(f"cannot listen on UDP {host}:{port}: {reason}") from error
    listener.settimeout(_WAKE_S)
    return listener


class Receiver:
    """Listens at `host`:`port` (0: any free one) and keeps what caches send. Raises ServiceError."""

    def __init__(
        self,
        files: RollingFiles,
        quota: Quota,
        *,
        host: str,
        port: int,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        self.counts: Counter[str] = Counter(dict.fromkeys(COUNTS, 0))
        self.counts["files_recovered"] = files.n_recovered
        self._files = files
        self._quota = quota
        self._is_full = False
        self._now_s = now_s
        self._numberings = Numberings()
        self._lives: dict[Hashable, int] = {}
        self._socket = listening(host, port)
        self.port: int = self._socket.getsockname()[1]
        newest = files.newest()
        if newest is not None:
            self._resume(newest)

    def run(self, stopping: Callable[[], bool], *, report_every_s: float, report: Callable[[], None]) -> None:
        """Receive until `stopping`, and what has arrived by then; `report` is called now and then.

        Also at once when the folder is full. Ends within a second. Raises ServiceError if the disk fails.
        """
        report_at, full_at, beat_at = time.monotonic() + report_every_s, 0.0, 0.0
        stop_at = None
        with self._socket:
            while stop_at is None or time.monotonic() < stop_at:
                if not self._receive() and stop_at is not None:
                    break
                if stop_at is None and stopping():
                    stop_at = time.monotonic() + _STOP_WITHIN_S
                now = time.monotonic()
                if now >= beat_at:
                    self._beat()
                    beat_at = now + BEAT_EVERY_S
                if now >= report_at or (self._is_full and now >= full_at):
                    self._count_dropped()
                    self._count_held()
                    report()
                    full_at = now + report_every_s
                    report_at += report_every_s if now >= report_at else 0
            self._leave()
            Heartbeat.end(self._quota.folder)

    def _beat(self) -> None:
        """Say that we live, and what was lost; a full folder is looked at again: others make room there."""
        self._count_dropped()
        self._is_full = self._is_full and not self._quota.admits(0)
        counts = self.counts
        Heartbeat(counts["dropped"], counts["over_quota"], self._is_full).write(self._quota.folder)

    def _receive(self) -> bool:
        """Take one datagram; False if there was none for a moment."""
        try:
            arrived = self._socket.recvfrom(MAX_DATAGRAM_BYTES)
        except TimeoutError:
            arrived = None
        now_s = self._now_s()
        # Whatever comes, a file is finished in its time: only then is it pulled, and makes room.
        self._files.roll(now_s)
        if arrived is not None:
            datagram, (_, port, *_) = arrived
            self._take(datagram, port, now_s)
        return arrived is not None

    def _take(self, datagram: bytes, port: int, now_s: float) -> None:
        self.counts["datagrams"] += 1
        self.counts["bytes"] += len(datagram)
        try:
            content = read_datagram(datagram)
        except InputError:
            self.counts["malformed"] += 1
            return
        if isinstance(content, ReportSender):
            self._life(content)
        if not is_kept(content):
            self.counts["other"] += 1
            return
        self._keep(frame(int(now_s), port, datagram), now_s)
        note(self._numberings, content, int(now_s))
        self.counts["lost"] = self._numberings.n_lost

    def _keep(self, framed: bytes, now_s: float) -> None:
        self._is_full = not self._quota.admits(len(framed))
        if self._is_full:
            self.counts["over_quota"] += 1
        else:
            self._files.append(framed, now_s)

    def _count_held(self) -> None:
        self._quota.measure()
        self.counts["held_bytes"] = self._quota.held_bytes
        self.counts["quota_bytes"] = self._quota.quota_bytes

    def _count_dropped(self, n_unread: int = 0) -> None:
        memory = self._socket.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, _MEMINFO.size)
        self.counts["dropped"] = _MEMINFO.unpack(memory)[-1] + n_unread

    def _leave(self) -> None:
        """Count what was not read in time to be kept, as far as the kernel still holds it."""
        n_unread, until = 0, time.monotonic() + _COUNT_WITHIN_S
        self._socket.settimeout(0)
        with contextlib.suppress(BlockingIOError):
            while time.monotonic() < until:
                self._socket.recv(1)
                n_unread += 1
        self._count_dropped(n_unread)
        self._count_held()

    def _life(self, source: ReportSender) -> None:
        before = self._lives.get(source.server)
        if before == source.stod:
            return
        self.counts["caches" if before is None else "restarts"] += 1
        self._lives[source.server] = source.stod
        if len(self._lives) > MAX_SENDERS:
            del self._lives[next(iter(self._lives))]

    def _resume(self, newest: Path) -> None:
        """Take up the numbering where the last capture ends, so that what is missed meanwhile counts."""
        offset = max(0, newest.stat().st_size - _RESUME_BYTES)
        reader = CaptureReader(InputFile(newest.parent, newest.name), self._numberings, offset=offset)
        for _ in reader.poll():
            pass
        reader.close()
        self._numberings.n_lost = 0


@contextlib.contextmanager
def collecting(path: Path) -> Iterator[int]:
    """Append every datagram to `path` while the block runs; gives the port, any free one of 127.0.0.1.

    Each frame is written before the next datagram is received, so a crash of this process loses none it has
    received. For one cache on this machine: `Receiver` serves several, rolls its captures and counts what is
    missing. Raises ServiceError if the port or the file cannot be had, or if the capture is not whole.
    """
    try:
        file = path.open("ab", buffering=0)
    except OSError as error:
        raise ServiceError(f"cannot write g-stream capture {path}: {error.strerror}") from error
    stopping = threading.Event()
    with file, listening("127.0.0.1", 0) as listener, ThreadPoolExecutor(1) as pool:
        writing = pool.submit(_keep_all, listener, file.fileno(), stopping)
        try:
            yield listener.getsockname()[1]
        finally:
            stopping.set()
        try:
            writing.result()
        except OSError as error:
            raise ServiceError(f"g-stream capture {path} is not whole: {error.strerror}") from error


def _keep_all(listener: socket.socket, file: int, stopping: threading.Event) -> None:
    while True:
        try:
            datagram, sender = listener.recvfrom(MAX_DATAGRAM_BYTES)
        except TimeoutError:
            # Only a pause ends it: what had arrived by the end is kept.
            if stopping.is_set():
                return
            continue
        if fstream.stream_code(datagram) in (None, *BINARY):  # nobody reads the other streams
            append(file, frame(int(time.time()), sender[1], datagram))
