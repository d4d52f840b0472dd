"""The order of eviction that a training learns: from what, from how much, and from nothing later."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from local_engines import LOCAL
from planted_accesses import plant_accesses, small_models

from features.common.errors import StaleInputError
from features.schema import ACCESSES
from features.spec import COLUMNS, FeatureSpec
from jobs.ground.store.tables import Tables
from jobs.loop.train import training as order
from jobs.loop.train.engines import RegionData

HOUR, DAY = 3600, 86400
UNTIL_S = 3 * DAY


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    small_models(monkeypatch)


def learn(store: Tables, *, until_s: int = UNTIL_S, since_s: int = 0) -> order.RegionOrder:
    data = RegionData(LOCAL, store, FeatureSpec(HOUR, (HOUR,), DAY, DAY), "emea")
    return order.learn(data, since_s=since_s, until_s=until_s, on_progress=lambda *step: None)


def test_an_order_knows_what_it_was_made_of(tmp_path: Path) -> None:
    store = Tables(str(tmp_path))
    plant_accesses(store, until_s=UNTIL_S)
    model, trees = learn(store)
    assert model.horizons_s == trees.horizons_s
    assert model.horizons_s[-1] == 12 * HOUR
    assert (model.columns, model.until_s) == (COLUMNS, UNTIL_S)
    assert model.kinds == ("tar", "root")


def test_an_order_says_by_what_it_told_readers_apart(tmp_path: Path) -> None:
    store = Tables(str(tmp_path))
    plant_accesses(store, until_s=UNTIL_S)
    assert learn(store).model.readers == ()
    rows = store.read_arrow(ACCESSES)
    at = rows.column_names.index("user")
    store.replace_arrow(ACCESSES, rows.set_column(at, "user", pa.array(["somebody"] * rows.num_rows)))
    assert learn(store).model.readers == ("user",)


def test_nothing_is_used_that_was_known_later(tmp_path: Path) -> None:
    """Reads after the training, and reads before it that were published later, change nothing."""
    short, long = (Tables(str(tmp_path / name)) for name in ("short", "long"))
    plant_accesses(long, until_s=UNTIL_S + DAY)
    rows = long.read_arrow(ACCESSES)
    known = pc.less(rows["known_at"], pa.scalar(UNTIL_S * 10**6, pa.timestamp("us", tz="UTC")))
    short.replace_arrow(ACCESSES, rows.filter(known))
    assert rows.num_rows > short.read_arrow(ACCESSES).num_rows
    assert learn(long) == learn(short)


def test_the_newest_days_are_learned_from_where_there_are_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Tables(str(tmp_path))
    plant_accesses(store, until_s=UNTIL_S)
    last_two = learn(store, since_s=DAY)
    assert last_two != learn(store)
    days = {key[0]: part.n_rows for key, part in store.head(ACCESSES).partitions.items()}
    monkeypatch.setattr(order, "MOST_ACCESSES", sum(days.values()) - 1)
    assert learn(store) == last_two


def test_too_little_past_is_an_error_with_the_reason(tmp_path: Path) -> None:
    store = Tables(str(tmp_path))
    with pytest.raises(StaleInputError, match="accesses"):
        learn(store)
    plant_accesses(store, until_s=4 * HOUR)
    with pytest.raises(StaleInputError, match=r"are too few to learn from; pull more days"):
        learn(store, until_s=4 * HOUR)
