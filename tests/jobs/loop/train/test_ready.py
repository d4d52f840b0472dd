"""What features, a training and predictions need is checked at once, without Spark and MLflow."""

from __future__ import annotations

import datetime as dt
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from access_rows import accesses

from features.common.errors import CachecastError, InputError, StaleInputError
from features.common.times import DAY_S, parse_as_of, parse_day
from features.schema import ACCESSES
from jobs.ground.settings.tree import Settings
from jobs.ground.store.commits import MomentKey
from jobs.ground.store.tables import Tables
from jobs.loop.train import ready

AT = parse_as_of("2026-03-05")


def settings(folder: Path, **env: str) -> Settings:
    return Settings.load(
        env={"CACHECAST_MLFLOW__URI": f"sqlite:///{folder}/mlflow.db"} | env, tables=str(folder / "t")
    )


def tables(folder: Path, *days: str) -> Tables:
    """Tables with an access on each of `days`."""
    made = Tables(str(folder / "t"))
    at = [dt.datetime.fromtimestamp(parse_day(day), dt.UTC) for day in days]
    made.replace_arrow(ACCESSES, accesses([{"accessed_at": day} for day in at], source="rucio_traces"))
    return made


def features(made: Tables, at: Settings, *as_ofs: int) -> None:
    for as_of_s in as_ofs:
        row = {"did": "x:f"}
        made.replace_rows(at.features.spec.features_table, [row], MomentKey.at(as_of_s, at.region.name))


def test_features_of_a_day_that_no_access_is_near_are_refused(tmp_path: Path) -> None:
    tables(tmp_path, "2026-03-01", "2026-03-02")
    words = r"no access on 2026-05-01, nor in the 14d before; there are accesses of 2026-03-01 to 2026-03-02"
    with pytest.raises(StaleInputError, match=words):
        ready.to_compute(settings(tmp_path), as_ofs=[parse_day("2026-05-01")])
    ready.to_compute(settings(tmp_path), as_ofs=[AT])
    with pytest.raises(InputError, match="not on the grid"):
        ready.to_compute(settings(tmp_path), as_ofs=[AT + 60])


def test_a_training_without_features_or_known_labels_is_refused(tmp_path: Path) -> None:
    made, at = tables(tmp_path, "2026-03-01"), settings(tmp_path)
    with pytest.raises(StaleInputError, match=r"no table features at .*; run `cachecast features` first"):
        ready.to_train(at, until_s=AT)
    features(made, at, AT)
    with pytest.raises(StaleInputError, match=r"no label is known by 2026-03-05.*, not even within 1h: the"):
        ready.to_train(at, until_s=AT)
    features(made, at, AT - DAY_S)
    ready.to_train(at, until_s=AT)
    other = settings(tmp_path, CACHECAST_REGION__NAME="emea")
    with pytest.raises(StaleInputError, match="no features of region 'emea'"):
        ready.to_train(other, until_s=AT)


def test_predictions_without_features_or_models_are_refused(tmp_path: Path) -> None:
    made, at = tables(tmp_path, "2026-03-01"), settings(tmp_path)
    features(made, at, AT)
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
    made, at = tables(tmp_path, "2026-03-01"), settings(tmp_path)
    features(made, at, AT)
    (tmp_path / "mlflow.db").write_text("no database")
    ready.to_predict(at, as_ofs=[AT])
    ready.to_predict(settings(tmp_path, CACHECAST_MLFLOW__URI="http://mlflow.example.org"), as_ofs=[AT])


def test_tables_that_cannot_be_written_are_refused(tmp_path: Path) -> None:
    (tmp_path / "t").touch()
    with pytest.raises(CachecastError, match="/t is no folder; mend that, or name other tables by --tables"):
        ready.to_compute(settings(tmp_path), as_ofs=[AT])


def test_the_check_loads_neither_spark_nor_mlflow() -> None:
    heavy = ("pyspark", "mlflow", "pandas")
    code = f"import sys, jobs.loop.train.ready; sys.exit(any(m in sys.modules for m in {heavy}))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
