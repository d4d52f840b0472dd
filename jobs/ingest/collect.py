"""The daemon that keeps what caches send: from its first log line to its last file."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from features.errors import ServiceError
from features.times import as_of_label
from features.units import format_bytes
from jobs.store.locks import exclusive
from prefetch.xcache.quota import Quota
from prefetch.xcache.receiver import Receiver
from prefetch.xcache.rolling import RollingFiles

_LOCK = ".collect.lock"
_FOLDER_MODE = 0o750


def run(
    *,
    host: str,
    port: int,
    out: Path,
    roll_bytes: int,
    roll_s: int,
    quota_bytes: int,
    log_every_s: int,
    log: Callable[[str], None],
    now_s: Callable[[], float],
    figures: Callable[[Mapping[str, int]], None] = lambda _: None,
) -> dict[str, int]:
    """Keep what caches send to UDP `host`:`port` in folder `out` until SIGTERM or SIGINT.

    Gives the counts of `receiver.COUNTS`. `log` gets a line at the start, at the end, and every
    `log_every_s` between, `figures` the counts of then; a line of alarm where captures fill `quota_bytes`, as
    what comes then is counted and not kept. Raises ServiceError (port, disk), ConflictError
    (another one writes to `out`).
    """
    _make_writable(out)
    with exclusive(out / _LOCK, "collect"), _until_signalled() as stopping:
        with contextlib.closing(RollingFiles(out, roll_bytes=roll_bytes, roll_s=roll_s)) as files:
            quota = Quota(out, quota_bytes)
            receiver = Receiver(files, quota, host=host, port=port, now_s=now_s)
            n_told = 0

            def report(what: str = "received") -> None:
                counts = ", ".join(f"{name} {n}" for name, n in receiver.counts.items())
                log(f"{as_of_label(int(now_s()))} {what}: {counts}")
                figures(receiver.counts)
                nonlocal n_told
                if receiver.counts["over_quota"] > n_told:
                    n_told = receiver.counts["over_quota"]
                    log(f"{as_of_label(int(now_s()))} ALARM: {_full(out, quota_bytes, n_told)}")

            log(f"{as_of_label(int(now_s()))} listening on UDP {host}:{receiver.port}, writing to {out}")
            receiver.run(stopping, report_every_s=log_every_s, report=report)
        report("stopped")
        return dict(receiver.counts)


def _full(out: Path, quota_bytes: int, n_refused: int) -> str:
    return (
        f"captures in {out} fill their quota of {format_bytes(quota_bytes)}, {n_refused} datagrams were not "
        "kept; pull with --new-only, which deletes what is past [collect] keep, or raise [collect] quota"
    )


def _make_writable(folder: Path) -> None:
    try:
        folder.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
    except OSError as error:
        raise ServiceError(f"cannot make folder {folder}: {error.strerror}") from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ServiceError(f"cannot write to folder {folder}: run as its owner, or choose another")


@contextmanager
def _until_signalled() -> Iterator[Callable[[], bool]]:
    """Whether SIGTERM or SIGINT came since the block began."""
    came: list[int] = []
    before = {
        number: signal.signal(number, lambda number, _: came.append(number))
        for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        yield lambda: bool(came)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
