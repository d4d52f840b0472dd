"""What a training and predictions need is checked at once; the order of eviction that a training learns."""

import datetime as dt
import sqlite3
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from access_rows import accesses
from local_engines import LOCAL
from planted_accesses import plant_accesses, small_models

from features.common.errors import InputError, StaleInputError
from features.common.times import DAY_S, parse_as_of, parse_day
from features.schema import ACCESSES
from features.spec import COLUMNS, FeatureSpec
from jobs.ground.settings.tree import Settings
from jobs.ground.store.commits import MomentKey
from jobs.ground.store.tables import Tables
from jobs.loop.train import ready
from jobs.loop.train import training as order
from jobs.loop.train.engines import RegionData
from models.learning.order import HorizonTrees
from models.serving.bundle import OrderModel

AT = parse_as_of("2026-03-05")


def settings(folder: Path, **env: str) -> Settings:
    return Settings.load(
        env={"CACHECAST_MLFLOW__URI": f"sqlite:///{folder}/mlflow.db"} | env, tables=str(folder / "t")
    )


def tables(folder: Path, *days: str) -> Tables:
    """Tables with an access on each of `days`."""
    store = Tables(str(folder / "t"))
    at = [dt.datetime.fromtimestamp(parse_day(day), dt.UTC) for day in days]
    store.replace_arrow(ACCESSES, accesses([{"accessed_at": day} for day in at], source="rucio_traces"))
    return store


def features(store: Tables, at: Settings, *as_ofs: int) -> None:
    for as_of_s in as_ofs:
        row = {"did": "x:f"}
        store.replace_rows(at.features.spec.features_table, [row], MomentKey.at(as_of_s, at.region.name))


def test_features_of_a_day_that_no_access_is_near_are_refused(tmp_path: Path) -> None:
    tables(tmp_path, "2026-03-01", "2026-03-02")
    words = r"no access on 2026-05-01, nor in the 14d before; there are accesses of 2026-03-01 to 2026-03-02"
    with pytest.raises(StaleInputError, match=words):
        ready.to_compute(settings(tmp_path), as_ofs=[parse_day("2026-05-01")])
    ready.to_compute(settings(tmp_path), as_ofs=[AT])
    with pytest.raises(InputError, match="not on the grid"):
        ready.to_compute(settings(tmp_path), as_ofs=[AT + 60])


def test_a_training_without_features_or_known_labels_is_refused(tmp_path: Path) -> None:
    store, at = tables(tmp_path, "2026-03-01"), settings(tmp_path)
    with pytest.raises(StaleInputError, match=r"no table features at .*; run `cachecast features` first"):
        ready.to_train(at, until_s=AT)
    features(store, at, AT)
    with pytest.raises(StaleInputError, match=r"no label is known by 2026-03-05.*, not even within 1h: the"):
        ready.to_train(at, until_s=AT)
    features(store, at, AT - DAY_S)
    ready.to_train(at, until_s=AT)
    other = settings(tmp_path, CACHECAST_REGION__NAME="emea")
    with pytest.raises(StaleInputError, match="no features of region 'emea'"):
        ready.to_train(other, until_s=AT)


def test_predictions_without_features_or_models_are_refused(tmp_path: Path) -> None:
    store, at = tables(tmp_path, "2026-03-01"), settings(tmp_path)
    features(store, at, AT)
    with pytest.raises(
        StaleInputError, match=r"no features at 2026-03-06.*; the latest are at 2026-03-05T00"
    ):
        ready.to_predict(at, as_ofs=[AT + DAY_S])
    with pytest.raises(StaleInputError, match=r"no model cachecast-default@candidate; run `cachecast train`"):
        ready.to_predict(at, as_ofs=[AT], alias="candidate")
    with pytest.raises(StaleInputError, match=r"no model cachecast-default@champion; train, evaluate and"):
        ready.to_predict(at, as_ofs=[AT])
    with sqlite3.connect(tmp_path / "mlflow.db") as database:
        database.execute("CREATE TABLE registered_model_aliases (alias, version, name)")
        database.execute("INSERT INTO registered_model_aliases VALUES ('candidate', 1, 'cachecast-default')")
    with pytest.raises(StaleInputError, match="cachecast-default@champion"):
        ready.to_predict(at, as_ofs=[AT])
    ready.to_predict(at, as_ofs=[AT], alias="candidate")


def test_what_is_unclear_is_left_to_mlflow(tmp_path: Path) -> None:
    store, at = tables(tmp_path, "2026-03-01"), settings(tmp_path)
    features(store, at, AT)
    (tmp_path / "mlflow.db").write_text("no database")
    ready.to_predict(at, as_ofs=[AT])
    folder = settings(tmp_path, CACHECAST_MLFLOW__URI=f"sqlite:///{tmp_path}")  # not to be opened
    ready.to_predict(folder, as_ofs=[AT])
    ready.to_predict(settings(tmp_path, CACHECAST_MLFLOW__URI="http://mlflow.example.org"), as_ofs=[AT])


def test_the_check_loads_neither_spark_nor_mlflow() -> None:
    heavy = ("pyspark", "mlflow", "pandas")
    code = f"import sys, jobs.loop.train.ready; sys.exit(any(m in sys.modules for m in {heavy}))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


HOUR, DAY = 3600, 86400
UNTIL_S = 3 * DAY


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    small_models(monkeypatch)


def learn(store: Tables, *, until_s: int = UNTIL_S, since_s: int = 0) -> tuple[OrderModel, HorizonTrees]:
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
    assert learn(store)[0].readers == ()
    rows = store.read_arrow(ACCESSES)
    at = rows.column_names.index("user")
    store.replace_arrow(ACCESSES, rows.set_column(at, "user", pa.array(["somebody"] * rows.num_rows)))
    assert learn(store)[0].readers == ("user",)


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
