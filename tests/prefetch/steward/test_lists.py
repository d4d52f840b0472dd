"""When a steward reads what plans ask for, and that a journal which hangs does not hold it up."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

import pytest
from ladders import DAY_S, one_split

from features.common.errors import ServiceError
from prefetch.steward import lists
from prefetch.steward.book import Book, Datasets
from prefetch.steward.lists import ListReader, Lists, QueuedReads
from replay.policies.learned import Order
from replay.steward import Steward, new_order

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
    monkeypatch.setattr(lists, "_PAUSES", 0)  # on a busy machine the first answer takes long
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


def test_what_queues_name_is_told_as_it_changes() -> None:
    """The model values the smaller file less, so without a queue that one goes."""
    order = new_order("learned", 1000, [Order(0.0, one_split("size_bytes", 15.0, -9.0, 0.0))])
    steward = Steward(order, capacity_bytes=1000)
    book = Book(steward, Datasets())
    for at_s, size in enumerate((10, 20)):
        file = book.number(f"/f/{at_s}", size)
        steward.read(file, 0, float(at_s))
        steward.stored(file, size, float(at_s))
    queued = QueuedReads(book)
    for due_s, goes in (({"/f/0": DAY_S, "/f/none": DAY_S}, 1), ({"/f/1": DAY_S}, 0), ({}, 0)):
        queued.expect(due_s)
        assert steward.victims(10, DAY_S - 3600) == [goes]
