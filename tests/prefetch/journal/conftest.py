"""The journal under test, on each database in turn."""

import pytest

from prefetch.journal.journal import Journal


@pytest.fixture
def journal(any_journal: Journal) -> Journal:
    return any_journal
