"""Accesses with a rhythm that an order of eviction can learn: some datasets come back, most do not."""

import numpy as np
import pyarrow as pa
import pytest
from table_rows import filled

from features.common.times import day_label
from features.schema import ACCESSES
from jobs.ground.store.tables import Tables
from models.learning import order
from models.learning.learners import LightGBM

N_FILES, FILE_BYTES = 25, 1_000_000


def small_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """Orders of few trees from few rows, in a second."""
    monkeypatch.setattr(order, "LEARNER", LightGBM(trees=5))
    monkeypatch.setattr(order, "MOST_ROWS", 8000)


def plant_accesses(store: Tables, *, until_s: int) -> None:
    """Passes through datasets from 1970 to `until_s`, each known an hour after its read."""
    draw = np.random.default_rng(1)
    times, names, sets = [], [], []
    for d in range(40):
        period_s = (4 if d % 4 == 0 else 1000) * 3600.0
        at = draw.random() * min(period_s, until_s)
        while at < until_s:
            times += [int(at) + 10 * f for f in range(N_FILES)]
            names += [f"set{d}/f{f:03}.{'root' if f else 'tar'}" for f in range(N_FILES)]
            sets += [f"s:set{d}"] * N_FILES
            at += period_s * (0.8 + 0.4 * draw.random())
    n, at_us = len(times), np.array(times) * 1_000_000
    utc = pa.timestamp("us", tz="UTC")
    columns = {
        "did": [f"s:{name}" for name in names],
        "scope": "s",
        "name": names,
        "dataset": sets,
        "accessed_at": pa.array(at_us, utc),
        "known_at": pa.array(at_us + 3_600_000_000, utc),
        "size_bytes": FILE_BYTES,
        "n_reads": 1,
        "source": "test",
        "event_id": [f"1-{i}" for i in range(n)],
        "day": [day_label(at) for at in times],
    }
    store.replace_arrow(ACCESSES, filled(ACCESSES, n, columns))
