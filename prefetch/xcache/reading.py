"""A process of clients that ask a server, or read its files: `python -m prefetch.xcache.reading`.

The XRootD client takes its settings (XRD_PARALLELEVTLOOP, logins) from the environment when it starts, and a
call of it that hangs cannot be ended: so what is measured runs in processes of its own. A process takes a job
as a line of JSON on stdin, answers `ready`, starts with the next line, answers with a line of JSON, and ends.
It also ends when stdin does, that is with the process that started it.
"""

import concurrent.futures
import dataclasses
import itertools
import json
import os
import re
import resource
import signal
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from features.common.errors import CachecastError, TargetUnavailable
from prefetch.xcache.session import RemoteFile, ThreadConnections, TimeOut, stat, version_of

READ_BYTES = 8 * 1024 * 1024
"""Of a request of a client that reads all."""
PART_BYTES = 64 * 1024
"""Of a part of a sparse read, about a basket of a branch of a ROOT file."""
PARTS_PER_REQUEST = 16
"""1 MiB: what a job of PIC's 2.4 MB per second asks for twice a second."""
_N_PINGS = 10
_LOGIN = re.compile(r"//\w+@")
_LEAST_MEMORY, _CLIENT_MEMORY = 2**29, 2**26
"""Bytes of a process, and of each of its clients: the library holds whatever a server says that it sends."""


@dataclasses.dataclass(frozen=True)
class Piece:
    """What a client reads of a file of `size_bytes`: the `share` of the bytes of [first, first + n_bytes)."""

    name: str
    size_bytes: int
    first: int
    n_bytes: int
    share: float = 1.0


@dataclasses.dataclass(frozen=True)
class PieceRead:
    """How a client read a piece: seconds until it was open, for the bytes, in all; adler32 of its bytes."""

    piece: Piece
    bytes: int = 0
    digest: int = 1
    open_s: float = 0.0
    read_s: float = 0.0
    seconds: float = 0.0
    error: str | None = None


def requests(piece: Piece) -> Iterator[list[tuple[int, int]]]:
    """The requests (offset, bytes) of a piece: of one part each for a whole read, else vectors of parts."""
    part, step, n_parts = PART_BYTES, round(PART_BYTES / piece.share), PARTS_PER_REQUEST
    if piece.share >= 1:
        part, step, n_parts = READ_BYTES, READ_BYTES, 1
    end = piece.first + piece.n_bytes
    parts = ((offset, min(part, end - offset)) for offset in range(piece.first, end, step))
    while some := list(itertools.islice(parts, n_parts)):
        yield some


def asked_bytes(piece: Piece) -> int:
    return sum(n_bytes for some in requests(piece) for _, n_bytes in some)


def read_piece(url: str, piece: Piece, deadline: float) -> PieceRead:
    """Open, read and close; `url`: of the server. `deadline`: of `time.monotonic`."""
    began, open_s, read_s, n_read, digest = time.monotonic(), 0.0, 0.0, 0, 1
    error = None
    try:
        with RemoteFile(f"{url}/{piece.name}", deadline) as remote:
            size = remote.size_bytes()
            open_s = time.monotonic() - began
            if size != piece.size_bytes:
                raise TargetUnavailable(f"{piece.name} has {size} bytes now, not {piece.size_bytes}")
            for some in requests(piece):
                parts = [remote.read_part(*some[0])] if len(some) == 1 else remote.read_parts(some)
                if [len(part) for part in parts] != [n_bytes for _, n_bytes in some]:
                    sizes = f"{sum(map(len, parts))} of {sum(n_bytes for _, n_bytes in some)} bytes came"
                    raise TargetUnavailable(f"{piece.name}: {sizes}: it shrank while it was read")
                for part in parts:
                    digest = zlib.adler32(part, digest)
                    n_read += len(part)
            read_s = time.monotonic() - began - open_s
    except TimeOut:
        error = f"{piece.name}: no answer in time"
    except CachecastError as fault:
        error = plain(str(fault))
    return PieceRead(piece, n_read, digest, open_s, read_s, time.monotonic() - began, error)


def plain(text: str) -> str:
    """An error's text without the names of connections; see `ThreadConnections`."""
    return _LOGIN.sub("//", text)


def _read(job: Mapping[str, Any]) -> dict[str, Any]:
    """Read the pieces of each client in turn, all clients at once, each on its connection."""
    clients = [[Piece(**piece) for piece in pieces] for pieces in job["clients"]]
    connections, deadline = ThreadConnections(job["url"]), time.monotonic() + job["timeout_s"]
    together = threading.Barrier(len(clients) + 1)

    def run(pieces: Sequence[Piece]) -> list[PieceRead]:
        url = connections.url()
        together.wait()
        reads = list[PieceRead]()
        for piece in pieces:
            reads.append(read_piece(url, piece, deadline))
            if reads[-1].error is not None:
                break
        return reads

    with concurrent.futures.ThreadPoolExecutor(len(clients)) as pool:
        running = [pool.submit(run, pieces) for pieces in clients]
        together.wait()
        began, cpu_s = time.monotonic(), time.process_time()
        reads = [[dataclasses.asdict(piece) for piece in client.result()] for client in running]
    # The clock is the machine's: the times of several processes can be compared.
    return {"began": began, "ended": time.monotonic(), "cpu_s": time.process_time() - cpu_s, "clients": reads}


def _ping(job: Mapping[str, Any]) -> dict[str, Any]:
    """Seconds of round trips: of the first, with login, and of those after it; none: no answer came."""
    seconds = list[float]()
    url = ThreadConnections(job["url"]).url()
    for _ in range(_N_PINGS + 1):
        began = time.monotonic()
        if version_of(url) is None:
            break
        seconds.append(time.monotonic() - began)
    return {"connect_s": seconds[0] if seconds else None, "round_trips_s": seconds[1:]}


def _stat(job: Mapping[str, Any]) -> dict[str, Any]:
    """Size of each file, and whether the server holds a part of it, and the seconds of the answer."""
    url, files = ThreadConnections(job["url"]).url(), list[Any]()
    for name in job["names"]:
        began = time.monotonic()
        answer = stat(url, name)
        seconds = time.monotonic() - began
        files.append(None if answer is None else [answer.size_bytes, answer.is_held, seconds])
    return {"files": files}


_KINDS: Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "ping": _ping,
    "stat": _stat,
    "read": _read,
}


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started it, which ends it
    job = json.loads(sys.stdin.readline())
    most = _LEAST_MEMORY + _CLIENT_MEMORY * len(job.get("clients", ()))
    for what, limit in ((resource.RLIMIT_DATA, most), (resource.RLIMIT_CORE, 0)):
        _, hard = resource.getrlimit(what)
        resource.setrlimit(what, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))
    RemoteFile(job["url"], 0.0)  # loads the client library, which takes longer than a read
    _say("ready")
    sys.stdin.readline()
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    try:
        answer = _KINDS[job["kind"]](job)
    except CachecastError as error:
        answer = {"error": str(error)}
    _say(json.dumps(answer))
    os._exit(0)  # the client library's threads outlive the main thread


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _end_with_stdin() -> None:
    sys.stdin.read()
    os._exit(1)


if __name__ == "__main__":
    main()
