"""Signals that end a service."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Stopped(BaseException):
    """A signal ended what may be ended at any point."""


class Stopping:
    """Whether SIGTERM or SIGINT came."""

    def __init__(self) -> None:
        self._came = self._at_once = False

    def __call__(self) -> bool:
        """Whether one came since the block began."""
        return self._came

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Let a signal raise Stopped in the block, also one that came before."""
        self._at_once = True
        try:
            if self._came:
                raise Stopped
            yield
        finally:
            self._at_once = False

    def take(self, *_: object) -> None:
        """Take a signal."""
        self._came = True
        if self._at_once:
            self._at_once = False
            raise Stopped

    def raise_again(self) -> None:
        """Let the next signal in the block raise Stopped once more."""
        self._at_once = True


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
    report, main = sys.unraisablehook, threading.main_thread().ident
    timers = list[threading.Timer]()

    def send_again(unraisable: sys.UnraisableHookArgs) -> None:
        if main is None or not issubclass(unraisable.exc_type, Stopped):
            report(unraisable)
            return
        stopping.raise_again()
        timers.append(threading.Timer(0.01, signal.pthread_kill, (main, signal.SIGTERM)))
        timers[-1].start()

    sys.unraisablehook = send_again
    try:
        yield
    finally:
        sys.unraisablehook = report
        for timer in timers:
            timer.cancel()
            timer.join()
