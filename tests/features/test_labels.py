"""Labels against plain loops, and the job that writes features and labels."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from features.spark.features import features
from features.spark.labels import labels
from pyspark.sql import functions as F

from features.schema import ACCESSES, FILES
from features.spark.grid import as_of_text, day_text, hour_of_day, instant_of_text, weekday
from features.units import duration_label
from jobs.spark.table_io import read, replace
from jobs.store.tables import Tables
from jobs.train import features as job

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

US = 1_000_000
Hits = dict[tuple[str, int], bool]


def text(instant_s: int) -> str:
    return f"{dt.datetime.fromtimestamp(instant_s, dt.UTC):%Y-%m-%dT%H:%M:%SZ}"


def expected(worlds: Any, did: str, as_of: int, until_s: int, hits: Hits | None = None) -> dict[str, Any]:
    spec = worlds.spec
    seen = [r for r in worlds.reads if r.did == did and r.known < until_s * US and r.at >= as_of * US]
    row: dict[str, Any] = {"day": text(as_of)[:10]}
    for h in spec.horizons_s:
        n = sum(r.n for r in seen if r.at < (as_of + h) * US)
        days = {r.at // (86400 * US) for r in seen if r.at < (as_of + h) * US}
        row[f"n_access_within_{duration_label(h)}"] = n if as_of + h <= until_s else None
        row[f"n_days_within_{duration_label(h)}"] = len(days) if as_of + h <= until_s else None
    longest = as_of + max(spec.horizons_s)
    next_at = min((r.at // US for r in seen if r.at < longest * US), default=None)
    if hits is None:
        kept = None
    elif next_at is None:
        kept = False if longest <= until_s else None
    else:
        kept = hits[did, next_at]
    return row | {"next_access_s": None if next_at is None else next_at - as_of, "kept": kept}


def rows_of(frame: DataFrame) -> dict[tuple[str, str], dict[str, Any]]:
    rows = [row.asDict() for row in frame.drop("region").collect()]
    return {(row.pop("did"), row.pop("as_of")): row for row in rows}


def test_labels_equal_plain_loops(
    spark: SparkSession, make_worlds: Callable[..., Any], frames: Callable[..., Any]
) -> None:
    worlds = make_worlds(3, n_worlds=40)
    spec = worlds.spec
    accesses, _ = frames(worlds)
    as_ofs = [worlds.start + k * spec.cycle_s for k in (0, 1, 7, 14, 15, 16)]
    until_s = worlds.start + 16 * spec.cycle_s + 1800
    dids = sorted({r.did for r in worlds.reads} | {"w0:unread"})
    pairs = [(did, "r", as_of) for did in dids for as_of in as_ofs]
    frame = spark.createDataFrame(pairs, "did string, region string, as_of long")
    hits = {(r.did, r.at // US): (r.at // US + len(r.did)) % 3 == 0 for r in worlds.reads}
    clairvoyant_hits = spark.createDataFrame([key for key, hit in hits.items() if hit], "did string, at long")
    with_hits = labels(accesses, frame, spec=spec, until_s=until_s, clairvoyant_hits=clairvoyant_hits)
    assert rows_of(with_hits) == {
        (did, text(as_of)): expected(worlds, did, as_of, until_s, hits) for did, _, as_of in pairs
    }
    found = labels(accesses, frame, spec=spec, until_s=until_s)
    assert found.columns == [*spec.labels_table.column_names, *spec.labels_table.partition]
    assert rows_of(found) == {
        (did, text(as_of)): expected(worlds, did, as_of, until_s) for did, _, as_of in pairs
    }


def test_the_job_writes_what_the_transforms_give_and_a_second_run_changes_nothing(
    spark: SparkSession, tmp_path: Path, make_worlds: Callable[..., Any], frames: Callable[..., Any]
) -> None:
    worlds = make_worlds(4, n_worlds=6)
    spec, tables = worlds.spec, Tables(str(tmp_path))
    accesses, files = frames(worlds)
    replace(accesses, tables, ACCESSES)
    replace(files, tables, FILES)
    as_ofs = [worlds.start + 8 * spec.cycle_s, worlds.start + 9 * spec.cycle_s, worlds.start + 400 * 86400]
    first = job.compute(spark, tables, spec=spec, region="r", as_ofs=as_ofs)
    assert first.partitions[text(as_ofs[2])[:10], text(as_ofs[2]), "r"].n_rows == 0
    assert job.compute(spark, tables, spec=spec, region="r", as_ofs=as_ofs[:2]).id == first.id
    stored = rows_of(read(spark, tables, spec.features_table))
    assert stored == rows_of(features(accesses, files, as_ofs, spec=spec, region="r"))
    until_s = as_ofs[1] + max(spec.horizons_s)
    job.label(spark, tables, spec=spec, until_s=until_s)
    seconds = {text(as_of): as_of for as_of in as_ofs}
    assert rows_of(read(spark, tables, spec.labels_table)) == {
        (did, as_of): expected(worlds, did, seconds[as_of], until_s) for did, as_of in stored
    }


def test_instants_as_text(spark: SparkSession) -> None:
    instants = [0, 1_772_323_200, 1_772_323_200 + 4 * 3600, 951_782_400 - 1]
    frame = spark.createDataFrame([(i,) for i in instants], "at long")
    at = F.col("at")
    columns = [as_of_text(at), day_text(at), hour_of_day(at), weekday(at), instant_of_text(as_of_text(at))]
    for instant, row in zip(instants, frame.select(*columns).collect(), strict=True):
        time = dt.datetime.fromtimestamp(instant, dt.UTC)
        assert list(row) == [text(instant), text(instant)[:10], time.hour, time.weekday(), instant]
