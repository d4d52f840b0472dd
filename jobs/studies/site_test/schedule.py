"""What a test measures, in which order, and the bytes that it takes.

Processes of clients: started, given the same moment to begin, and ended in any case.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from features.common.errors import InputError, ServiceError, TargetUnavailable
from prefetch.xcache.reading import PART_BYTES, Piece

COLD, WARM = "cold", "warm"  # through the cache without the file, and with it; others are origins
SHARES: Final = (0.05, 0.35, 1.0)  # of a file, as the analysis benchmarks of CERN's study read, and all of it
_MOST_CLIENTS = 256
LEAST_BYTES = 2**20  # of a file: less says nothing of a rate


@dataclasses.dataclass(frozen=True)
class Limits:
    """Bounds of a test. `n_bytes`: read by clients, and fetched by the cache, together; `repeat`: rounds."""

    n_bytes: int
    seconds: int
    repeat: int = 3
    clients: tuple[int, ...] = (1, 4, 16, 64)
    files: int = 24

    def checked(self) -> Limits:
        """The same, with the numbers of clients rising. Raises InputError."""
        if not self.clients or min(self.clients) < 1 or max(self.clients) > _MOST_CLIENTS:
            raise InputError(f"--clients must be whole numbers from 1 to {_MOST_CLIENTS}, for example 1,4")
        if self.seconds < 10 or self.n_bytes < 20 * LEAST_BYTES:
            raise InputError("--time must be at least 10s, and --bytes at least 21MB")
        return dataclasses.replace(self, clients=tuple(sorted(set(self.clients))))


@dataclasses.dataclass(frozen=True)
class Kind:
    """One way of reading: `clients` at once, each the `share` of its bytes on a connection of its own."""

    place: str
    share: float
    clients: int

    @property
    def reading(self) -> str:
        return "whole" if self.share >= 1 else f"{100 * self.share:g} %"


@dataclasses.dataclass(frozen=True)
class Span:
    """The first `n_bytes` of a file of `size_bytes`: what is read of it, at most."""

    name: str
    size_bytes: int
    n_bytes: int


def kinds(origins: Sequence[str], limits: Limits) -> list[Kind]:
    """Everything that is measured, in the order of the report."""
    places = [*origins, COLD, WARM]
    parts = [Kind(place, share, limits.clients[0]) for place in places for share in SHARES]
    return parts + [Kind(place, 1.0, n) for place in places for n in limits.clients[1:]]


def rounds(tested: Sequence[Kind], repeat: int) -> Iterator[Kind]:
    """Each kind once per round, so that what changes meanwhile meets all kinds alike.

    In a round the cold reads come before the warm ones, and the last of them fetches all that those find.
    """
    cold = _cold(tested)
    warm = [kind for kind in tested if kind.place == WARM]
    direct = [kind for kind in tested if kind.place not in (COLD, WARM)]
    for number in range(repeat):
        turn = -1 if number % 2 else 1
        yield from [*direct[::turn], *cold, *warm[::turn]]


def groups(files: Sequence[Span], tested: Sequence[Kind]) -> dict[Kind, list[Span]]:
    """What each kind reads: no cold read of a round has another's files, as far as there are files.

    A cache may keep a file open after it was read. Direct reads have the cold files, warm ones the last.
    """
    cold = _cold(tested)
    n_groups = min(len(cold), len(files))
    parts = [list(files[number % n_groups :: n_groups]) for number in range(len(cold))]
    alike = {(kind.share, kind.clients): part for kind, part in zip(cold, parts, strict=True)}
    return {kind: parts[-1] if kind.place == WARM else alike[kind.share, kind.clients] for kind in tested}


def _cold(tested: Sequence[Kind]) -> list[Kind]:
    return sorted(
        (kind for kind in tested if kind.place == COLD), key=lambda kind: (kind.share, kind.clients)
    )


def weight(tested: Sequence[Kind]) -> float:
    """Bytes that one round takes, in bytes that a kind reads of: a cold read is also fetched by the cache."""
    return sum(kind.share + (kind.place == COLD) for kind in tested)


def spans(files: Sequence[tuple[str, int]], total_bytes: int) -> list[Span]:
    """What is read of `files` (name, size) so that it is at most `total_bytes`. Raises InputError.

    The files that need less than their part leave it to the others.
    """
    parts, left = list[Span](), total_bytes
    rising = sorted(files, key=lambda file: file[1])
    for number, (name, size) in enumerate(rising):
        n_bytes = min(size, left // (len(rising) - number))
        parts.append(Span(name, size, n_bytes))
        left -= n_bytes
    if sum(span.n_bytes for span in parts) < LEAST_BYTES:
        raise InputError(
            "less than 1 MiB of files is left for a read: give more --bytes or --time, or larger files"
        )
    return [span for span in parts if span.n_bytes]


def pieces(files: Sequence[Span], kind: Kind) -> list[list[Piece]]:
    """What each client reads: together all spans once. More clients than files share them, part by part."""
    n_parts = -(-kind.clients // len(files))
    parts = list[Piece]()
    for part in range(n_parts):
        for span in files:
            # At multiples of what sparse reads ask for.
            begin, end = (span.n_bytes * k // n_parts // PART_BYTES * PART_BYTES for k in (part, part + 1))
            end = span.n_bytes if part + 1 == n_parts else end
            if end > begin:
                parts.append(Piece(span.name, span.size_bytes, begin, end - begin, kind.share))
    return [some for number in range(kind.clients) if (some := parts[number :: kind.clients])]


_COMMAND = (sys.executable, "-m", "prefetch.xcache.reading")
_CLIENT = {"XRD_PARALLELEVTLOOP": "10", "XRD_SUBSTREAMSPERCHANNEL": "1"}
"""One event loop is less than many clients need; with several streams reads from XCache 5.5.3 hang."""
_START_S = 30.0  # for a process to load the client library
_GRACE_S = 5.0  # the client looks at its own time limits once a second, and then closes the file
_MOST_BYTES = 2**24
_PIECE_BYTES = 2**16


@dataclasses.dataclass(frozen=True)
class Server:
    """A server to ask: its `url`, and the `environment` of processes that log in to it."""

    url: str
    environment: Mapping[str, str]


def ask(server: Server, kind: str, *, timeout_s: float, **job: Any) -> dict[str, Any]:
    """The answer of one process to a job. Raises TargetUnavailable without one in time."""
    (answer,) = ask_at_once(server, kind, [job], timeout_s=timeout_s)
    return answer


def ask_at_once(
    server: Server, kind: str, jobs: Sequence[Mapping[str, Any]], *, timeout_s: float
) -> list[dict[str, Any]]:
    """The answers of a process per job, which begin together. Raises TargetUnavailable.

    The processes have ended when this returns or raises.
    """
    with contextlib.ExitStack() as stack:
        running = [stack.enter_context(_process(server.environment)) for _ in jobs]
        for process, job in zip(running, jobs, strict=True):
            _tell(process, json.dumps({"kind": kind, "url": server.url, "timeout_s": timeout_s, **job}))
        started = time.monotonic()
        for process in running:
            if _line(process, started + _START_S) != "ready":
                raise ServiceError(f"a process of clients did not start within {_START_S:.0f} s")
        for process in running:
            _tell(process, "go")
        deadline = time.monotonic() + timeout_s + _GRACE_S
        return [_answer(server, process, deadline, timeout_s) for process in running]


@contextlib.contextmanager
def _process(environment: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        _COMMAND,
        env={**environment, **_CLIENT},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            with contextlib.suppress(OSError):
                pipe.close()


def _tell(process: subprocess.Popen[bytes], line: str) -> None:
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # it has ended; its missing answer says so
        process.stdin.write(f"{line}\n".encode())
        process.stdin.flush()


def _line(process: subprocess.Popen[bytes], deadline: float) -> str | None:
    """The next line that it says until `deadline`; None: it says none."""
    assert process.stdout is not None
    content = b""
    while b"\n" not in content and len(content) < _MOST_BYTES:
        ready, _, _ = select.select([process.stdout], [], [], max(0.0, deadline - time.monotonic()))
        part = os.read(process.stdout.fileno(), _PIECE_BYTES) if ready else b""
        if not part:
            return None
        content += part
    return content.decode().rstrip("\n")


def _answer(
    server: Server, process: subprocess.Popen[bytes], deadline: float, timeout_s: float
) -> dict[str, Any]:
    line = _line(process, deadline)
    if line is None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            # So the client library ends where its process may have no more memory.
            if process.wait(0.5) == -signal.SIGABRT:
                why = "it sends so much at once that the client ran out of memory"
                raise TargetUnavailable(f"{server.url}: {why}")
        raise TargetUnavailable(f"{server.url}: no answer within {timeout_s:.0f} s")
    answer: dict[str, Any] = json.loads(line)
    if "error" in answer:
        raise TargetUnavailable(answer["error"])
    return answer
