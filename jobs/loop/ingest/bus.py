"""Keeps a site's broker messages as captures and lines, and acknowledges them once they are on the disk."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import stat
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from features.common.errors import ServiceError
from features.common.times import as_of_label
from jobs.ground.settings.tree import CollectSettings
from prefetch.rucio.broker import Broker, BrokerUnavailable, Subscription
from prefetch.rucio.connection import AT_ONCE, Message
from prefetch.xcache.gstream import Numberings, note
from prefetch.xcache.messages import FORMS, CaptureRecord, read
from prefetch.xcache.rolling import BEAT_EVERY_S, Heartbeat, Quota, RollingFiles

COUNTS: Final = (
    *("messages", "bytes", *FORMS, "lost", "other", "malformed", "too_large", "again", "connected"),
    *("failures", "files_recovered", "last_s", "held_bytes", "quota_bytes"),
)
"""What is counted since the start. messages, bytes: received and acknowledged; again: those of them that the
broker sent once more. gstream, fstream, closes: records kept in files of that kind. lost: missing in the
servers' numbering. Not kept: other, records that no source reads; malformed, what is no record; too_large,
messages over `MOST_BYTES`. connected: 1 while subscribed; failures: how often that ended; last_s: when the
last message came, since 1970. held_bytes, quota_bytes: what the files hold, and may hold."""

MOST_BYTES: Final = 2**20  # of one message: the longest datagram in base64 is a tenth of it
_WAIT_S: Final = 0.2
_SETTLE_S: Final = 0.5
_PAUSES_S: Final = (1.0, 60.0)
_OLDEST_S: Final = 30 * 86400
_FOLDER_MODE: Final = 0o750


@dataclasses.dataclass(frozen=True)
class Collecting:
    """How datagrams and messages are collected. `settings` name the broker, if any.

    `log` gets a line at the start, at the end, and every `log_every_s`, `figures` the counts at the same
    times. `concerns`: of which RSEs messages of Rucio are kept.
    """

    settings: CollectSettings
    roll_bytes: int
    roll_s: int
    log_every_s: int
    log: Callable[[str], None]
    now_s: Callable[[], float]
    figures: Callable[[str, Mapping[str, int]], None]  # of `collect` (UDP) and `collect_bus`
    concerns: Callable[[str], bool]

    def say(self, text: str) -> None:
        self.log(f"{as_of_label(int(self.now_s()))} {text}")

    def report(self, service: str, counts: Mapping[str, int], event: str, alarm: str) -> None:
        self.say(f"{event}: {', '.join(f'{name} {n}' for name, n in counts.items())}")
        self.figures(service, counts)
        if alarm:
            self.say(f"ALARM: {alarm}")


class Bus:
    """Follows what a site subscribes to at a broker, and keeps it in folders below `folder`.

    Use it as a context manager. A message is acknowledged after its records were brought to the disk. One
    that was not is sent again, to this process or the next, and gives the same rows. While the files fill
    their quota no message is taken. Raises ServiceError if the disk fails.
    """

    def __init__(self, folder: Path, broker: Broker, how: Collecting) -> None:
        self.counts: Counter[str] = Counter(dict.fromkeys(COUNTS, 0))
        self._folder, self._broker, self._how = folder, broker, how
        self._numberings = Numberings()
        self._beat_at, self._pause_s, self._failure = 0.0, _PAUSES_S[0], ""
        with ExitStack() as opened:
            self._files = {
                kind: opened.enter_context(
                    contextlib.closing(
                        RollingFiles(
                            _made_as(folder.parent, folder / kind),
                            roll_bytes=how.roll_bytes,
                            roll_s=how.roll_s,
                            form=form,
                        )
                    )
                )
                for kind, form in FORMS.items()
            }
            self._closing = opened.pop_all()
        self.counts["files_recovered"] = sum(files.n_recovered for files in self._files.values())
        self._quota = Quota(folder, how.settings.quota, pattern="*/*-*.[cj]")

    def __enter__(self) -> Bus:
        return self

    def __exit__(self, *_: object) -> None:
        """Finish the files. Raises ServiceError."""
        Heartbeat.end(self._folder / "gstream")
        self._closing.close()

    def run(self, stopping: Callable[[], bool], report: Callable[[], None]) -> None:
        """Follow the broker until `stopping`, trying ever less often; call `report` now and then."""
        self._report, self._report_at = report, time.monotonic() + self._how.log_every_s
        while not stopping():
            try:
                if self._quota.has_room():
                    self._follow_broker(stopping)
            except BrokerUnavailable as error:
                self.counts["failures"] += 1
                if str(error) != self._failure:
                    self._how.say(str(error))
                self._failure = str(error)
            finally:
                self.counts["connected"] = 0
            until = time.monotonic() + self._pause_s
            while time.monotonic() < until and not stopping():
                self._tend()
                time.sleep(_WAIT_S)
            self._pause_s = min(2 * self._pause_s, _PAUSES_S[1])

    def measure(self) -> None:
        self._quota.measure()
        self.counts["held_bytes"] = self._quota.held_bytes
        self.counts["quota_bytes"] = self._quota.quota_bytes

    def is_full(self) -> bool:
        return not self._quota.has_room()

    def _follow_broker(self, stopping: Callable[[], bool]) -> None:
        settings = self._how.settings
        with self._broker.subscribed(
            settings.subscribe, client=settings.client, most_bytes=MOST_BYTES
        ) as subscription:
            self.counts["connected"] = 1
            self._how.say(f"subscribed to {', '.join(settings.subscribe)}")
            taken: list[Message] = []
            since = time.monotonic()
            while not stopping() and self._quota.has_room():
                message = subscription.next(0 if taken else _WAIT_S)
                if message is not None:
                    self._take(message)
                    taken.append(message._replace(body=None))
                if taken and (
                    message is None or len(taken) >= AT_ONCE or time.monotonic() - since > _SETTLE_S
                ):
                    self._settle(subscription, taken)
                if not taken:
                    since = time.monotonic()
                self._tend()
                # The heartbeat says that records of caches come.
                if time.monotonic() >= self._beat_at:
                    Heartbeat(0, 0, is_full=False).write(self._folder / "gstream")
                    self._beat_at = time.monotonic() + BEAT_EVERY_S
            self._settle(subscription, taken)

    def _settle(self, subscription: Subscription, taken: list[Message]) -> None:
        """Bring what was taken to the disk, then acknowledge it."""
        for files in self._files.values():
            files.sync()
        subscription.acknowledge(taken)
        self.counts["messages"] += len(taken)
        self.counts["bytes"] += sum(message.size_bytes for message in taken)
        self.counts["again"] += sum(message.is_again for message in taken)
        taken.clear()
        self._pause_s, self._failure = _PAUSES_S[0], ""

    def _take(self, message: Message) -> None:
        now_s = self._how.now_s()
        self.counts["last_s"] = int(now_s)
        if message.body is None:
            self.counts["too_large"] += 1
            return
        # When it was published, so that it is the same record when it comes again; a clock may be wrong.
        published_s = message.published_ms / 1000
        at_s = int(published_s if now_s - _OLDEST_S < published_s <= now_s else now_s)
        for record in read(message.body, at_s, self._how.concerns):
            if not isinstance(record, CaptureRecord):
                self.counts[record.reason] += 1
                continue
            self._quota.held_bytes += len(record.content)
            self._files[record.kind].append(record.content, now_s)
            self.counts[record.kind] += 1
            if record.datagram is not None and not message.is_again:
                note(self._numberings, record.datagram, at_s)
                self.counts["lost"] = self._numberings.n_lost

    def _tend(self) -> None:
        """Finish the files whose time is over, and report if it is time."""
        for files in self._files.values():
            files.roll(self._how.now_s())
        if time.monotonic() >= self._report_at:
            self._report_at += self._how.log_every_s
            self._report()


def _made_as(above: Path, folder: Path) -> Path:
    """`folder`; if it is made now, the group of pulls may delete there what it may delete in `above`."""
    is_new = not folder.exists()
    made_writable(folder)
    if is_new and above.stat().st_mode & stat.S_IWGRP:
        with contextlib.suppress(PermissionError):  # then pulls count what stays
            folder.chmod(stat.S_IMODE(folder.stat().st_mode) | stat.S_IWGRP)
    return folder


def made_writable(folder: Path) -> Path:
    """`folder`, made if it is not there. Raises ServiceError if this account cannot write to it."""
    try:
        folder.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
    except OSError as error:
        raise ServiceError(f"cannot make folder {folder}: {error.strerror}") from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ServiceError(f"cannot write to folder {folder}: run as its owner, or choose another")
    return folder
