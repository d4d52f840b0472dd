"""Processes of clients: started, given the same moment to begin, and ended in any case."""

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
from typing import Any

from features.common.errors import ServiceError, TargetUnavailable

_COMMAND = (sys.executable, "-m", "prefetch.xcache.reading")
_START_S = 30.0
"""For a process to load the client library."""
_GRACE_S = 5.0
"""The client looks at its own time limits once a second, and then closes the file."""
_MOST_BYTES = 2**24
_PIECE_BYTES = 2**16


@dataclasses.dataclass(frozen=True)
class Server:
    """A server to ask: its `url`, and the `environment` of processes that log in to it."""

    url: str
    environment: Mapping[str, str]

    def with_client(self, loops: int, streams: int) -> Server:
        """The same with these numbers of event loops, and of streams per connection, of the client."""
        client = {"XRD_PARALLELEVTLOOP": str(loops), "XRD_SUBSTREAMSPERCHANNEL": str(streams)}
        return dataclasses.replace(self, environment={**self.environment, **client})


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
        env=environment,
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
    if line is None and _is_out_of_memory(process):
        raise TargetUnavailable(f"{server.url}: it sends so much at once that the client ran out of memory")
    if line is None:
        raise TargetUnavailable(f"{server.url}: no answer within {timeout_s:.0f} s")
    answer: dict[str, Any] = json.loads(line)
    if "error" in answer:
        raise TargetUnavailable(answer["error"])
    return answer


def _is_out_of_memory(process: subprocess.Popen[bytes]) -> bool:
    """Whether it was aborted: so the client library ends where its process may have no more memory."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        return process.wait(0.5) == -signal.SIGABRT
    return False
