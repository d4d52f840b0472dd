"""The daemon that writes the monitoring datagrams of caches into captures."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from features.common.errors import ServiceError
from features.common.times import as_of_label
from features.common.units import format_bytes
from jobs.signals import until_signalled
from jobs.store.locks import exclusive
from prefetch.xcache.receiver import Receiver
from prefetch.xcache.rolling import Quota, RollingFiles

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
    """Write the datagrams sent to UDP `host`:`port` into folder `out` until SIGTERM or SIGINT.

    Returns the counts of `receiver.COUNTS`. `log` gets a line at the start, at the end, and every
    `log_every_s` in between, `figures` the counts at the same times. When captures fill `quota_bytes`,
    further datagrams are counted and dropped, and `log` gets an alarm. Raises ServiceError (port, disk),
    ConflictError (another collector writes to `out`).
    """
    _make_writable(out)
    with exclusive(out / _LOCK, "collect"), until_signalled() as stopping:
        with contextlib.closing(RollingFiles(out, roll_bytes=roll_bytes, roll_s=roll_s)) as files:
            quota = Quota(out, quota_bytes)
            receiver = Receiver(files, quota, host=host, port=port, now_s=now_s)
            n_reported = 0

            def report(event: str = "received") -> None:
                counts = ", ".join(f"{name} {n}" for name, n in receiver.counts.items())
                log(f"{as_of_label(int(now_s()))} {event}: {counts}")
                figures(receiver.counts)
                nonlocal n_reported
                if receiver.counts["over_quota"] > n_reported:
                    n_reported = receiver.counts["over_quota"]
                    log(f"{as_of_label(int(now_s()))} ALARM: {_full(out, quota_bytes, n_reported)}")

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
