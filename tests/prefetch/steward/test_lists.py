"""When a steward reads what plans ask for, and that a journal which hangs does not hold it up."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

import pytest

from features.common.errors import ServiceError
from prefetch.steward import lists
from prefetch.steward.lists import ListReader, Lists

NONE = Lists((), ())


class Journal:
    """Counts its readers, who wait until it `answers`."""

    def __init__(self) -> None:
        self.n_read, self.fault = 0, ""
        self.answers = threading.Event()
        self.answers.set()

    def lists(self, _times_s: Sequence[float]) -> Lists:
        self.n_read += 1
        self.answers.wait(60)
        if self.fault:
            raise ServiceError(self.fault)
        return NONE


def test_lists_are_read_when_due_and_soon_while_files_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists, "FRESH_S", 0.1)
    journal = Journal()
    reader = ListReader(journal.lists, 3600.0)
    assert reader.read([0.0], files_go=False) == NONE
    time.sleep(0.2)
    assert reader.read([0.0], files_go=False) is None
    assert reader.read([0.0], files_go=True) == NONE
    assert reader.read([0.0], files_go=True) is None
    assert journal.n_read == 2


def test_a_fault_is_told_and_the_journal_asked_again_at_once() -> None:
    journal = Journal()
    journal.fault = "no journal"
    reader = ListReader(journal.lists, 3600.0)
    with pytest.raises(ServiceError, match="no journal"):
        reader.read([0.0], files_go=False)
    journal.fault = ""
    assert reader.read([0.0], files_go=False) == NONE


def test_a_journal_that_hangs_is_asked_once_and_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists, "SILENT_S", 0.5)
    journal = Journal()
    journal.answers.clear()
    reader = ListReader(journal.lists, 0.0)
    began = time.monotonic()
    assert reader.read([0.0], files_go=True) is None
    assert time.monotonic() - began < 5
    time.sleep(0.6)
    with pytest.raises(ServiceError, match="has not answered"):
        reader.read([0.0], files_go=True)
    journal.answers.set()
    time.sleep(0.1)
    assert reader.read([0.0], files_go=True) == NONE
    assert journal.n_read == 1
