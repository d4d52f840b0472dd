"""Pulls of an input, as tests make them."""

import bz2
import datetime as dt
import functools
import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import raw_records

from jobs.ground.store.tables import Tables
from jobs.loop.ingest import pull_input
from jobs.loop.ingest.local_engine import LocalEngine
from jobs.loop.ingest.pull_input import Engine, PullSummary

DAY = dt.date(2026, 3, 5)
LOCAL: Engine = LocalEngine()
PACKED: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "zst": functools.partial(pa.compress, codec="zstd", asbytes=True),
}
"""How inputs are packed, by their suffix."""


def pulled(
    tables: Tables, source: str, path: str | Path, *, engine: Engine = LOCAL, day: dt.date = DAY, **more: Any
) -> PullSummary:
    """Pull what is at `path` on `day`; `more`: other values of `pull_input.pull`."""
    return pull_input.pull(engine, tables, source=source, path=str(path), day=day, **more)


def pulled_text(
    tables: Tables, folder: Path, source: str, text: str, *, day: dt.date = raw_records.DAY, **more: Any
) -> PullSummary:
    """Pull a file of `text` in `folder`; see `pulled`."""
    path = folder / f"in-{abs(hash(text))}.capture"
    path.write_text(text)
    return pulled(tables, source, path, day=day, **more)
