"""What tests of jobs begin with: tables without a row."""

from pathlib import Path

import pytest

from jobs.ground.store.tables import Tables


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    return Tables(str(tmp_path / "tables"))
