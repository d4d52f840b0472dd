"""Traces written to files."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write text or a table; the path."""

    def to(what: pa.Table | bytes | str, name: str = "t.csv") -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(what, pa.Table):
            pq.write_table(what, path)
        elif isinstance(what, bytes):
            path.write_bytes(what)
        else:
            path.write_text(what)
        return path

    return to
