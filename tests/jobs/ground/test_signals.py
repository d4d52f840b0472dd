"""Signals that end a service."""

import contextlib
import os
import signal
import threading
import time

import pytest

from jobs.ground.signals import Stopped, until_signalled


class SignalledInFinalizer:
    """An object during whose finalizer a signal comes."""

    def __del__(self) -> None:
        signal.raise_signal(signal.SIGTERM)


def test_a_signal_that_comes_in_a_finalizer_ends_what_may_be_ended() -> None:
    start_s = time.monotonic()
    with until_signalled() as stopping, pytest.raises(Stopped), stopping.at_once():
        SignalledInFinalizer()
        time.sleep(20)
    assert stopping() and time.monotonic() - start_s < 10


def test_a_second_signal_while_the_first_is_sent_again_loses_neither(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hurried(threading.Timer):
        def start(self) -> None:
            os.kill(os.getpid(), signal.SIGINT)
            super().start()

    monkeypatch.setattr("jobs.ground.signals.threading.Timer", Hurried)
    start_s = time.monotonic()
    with until_signalled() as stopping, pytest.raises(Stopped), stopping.at_once():
        SignalledInFinalizer()
        SignalledInFinalizer()
        time.sleep(20)
    assert stopping() and time.monotonic() - start_s < 10


def test_a_signal_in_a_finalizer_at_the_end_of_the_block_is_remembered() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with until_signalled() as stopping:
        with contextlib.suppress(Stopped), stopping.at_once():
            SignalledInFinalizer()
        time.sleep(0.05)
        assert stopping()
    assert signal.getsignal(signal.SIGTERM) is before
