"""Signals that end a service."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager


class Stopped(BaseException):
    """A signal ended what may be ended at any point."""


class Stopping:
    """Whether a signal came. `is_reporting`: Python reports a Stopped that it dropped, and raises none."""

    def __init__(self) -> None:
        self._came = self._at_once = self._has_raised = self.is_reporting = False

    def __call__(self) -> bool:
        """Whether one came since the block began."""
        return self._came

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Let a signal raise Stopped in the block, also one that came before."""
        self._at_once, self._has_raised = True, False
        try:
            if self._came:
                raise Stopped
            yield
        finally:
            self._at_once = False

    def take(self, *_: object) -> None:
        self._came = True
        if self._at_once and not self._has_raised and not self.is_reporting:
            self._has_raised = True
            raise Stopped

    def send_again(self) -> None:
        """Send the main thread a signal that raises Stopped once more if the block still goes on."""
        while self.is_reporting:
            time.sleep(0.01)
        self._has_raised = False
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)


@contextmanager
def until_signalled() -> Iterator[Stopping]:
    """Take SIGTERM and SIGINT in the block."""
    stopping = Stopping()
    before = {number: signal.signal(number, stopping.take) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        with _sent_again(stopping):
            yield stopping
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _sent_again(stopping: Stopping) -> Iterator[None]:
    """Send a signal again whose Stopped Python dropped, as it came in a finalizer."""
    report, timers = sys.unraisablehook, list[threading.Timer]()

    def send_again(unraisable: sys.UnraisableHookArgs) -> None:
        if not issubclass(unraisable.exc_type, Stopped):
            report(unraisable)
            return
        stopping.is_reporting = True  # a Stopped raised in here would be dropped, too
        try:
            timer = threading.Timer(0.01, stopping.send_again)
            timer.start()
            timers.append(timer)
        finally:
            stopping.is_reporting = False

    sys.unraisablehook = send_again
    try:
        yield
    finally:
        sys.unraisablehook = report
        for timer in timers:
            timer.cancel()
            timer.join()
