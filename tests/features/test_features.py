"""Every feature against plain loops over the records, written from the docstrings; and no leak from later."""

from __future__ import annotations

import dataclasses
import datetime as dt
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from features_oracle import US, Rows, expected, known
from pyspark.sql import functions as F

from features.spark.features import features

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def collected(frame: DataFrame) -> Rows:
    rows = [row.asDict() for row in frame.collect()]
    found = {(row.pop("did"), row.pop("as_of")): row for row in rows}
    assert len(found) == len(rows), "(did, as_of) is not unique"
    assert all(row.pop("day") == as_of[:10] and row.pop("region") == "r" for (_, as_of), row in found.items())
    return found


def assert_equal(found: Rows, wanted: Rows) -> None:
    assert found.keys() == wanted.keys()
    assert wanted, "the worlds are empty"
    for key, row in wanted.items():
        assert found[key].keys() == row.keys()
        for name, value in row.items():
            inexact = isinstance(value, float)
            assert found[key][name] == (pytest.approx(value, rel=1e-9) if inexact else value), (key, name)


def instants(worlds: Any) -> list[int]:
    return [worlds.start + k * worlds.spec.cycle_s for k in (1, 5, 6, 11, 15, 16, 24)]


@pytest.fixture(scope="module")
def worlds(make_worlds: Callable[..., Any]) -> Any:
    return make_worlds(1, n_worlds=60)


@pytest.fixture(scope="module")
def found(worlds: Any, frames: Callable[..., Any]) -> Rows:
    accesses, files = frames(worlds)
    return collected(features(accesses, files, instants(worlds), spec=worlds.spec, region="r"))


def test_every_feature_equals_plain_loops(worlds: Any, found: Rows) -> None:
    wanted = expected(worlds, instants(worlds))
    assert_equal(found, wanted)
    for name in worlds.spec.numeric_columns:
        if name.endswith("n_same_weekday"):
            continue  # test_weekly_datasets has these: a history of two days holds none
        assert len({row[name] for row in wanted.values()}) > 1, f"{name} is never tried"


def test_without_a_catalogue_only_read_files_are_candidates(worlds: Any, frames: Callable[..., Any]) -> None:
    accesses, _ = frames(worlds)
    rows = collected(features(accesses, None, instants(worlds), spec=worlds.spec, region="r"))
    assert_equal(rows, expected(worlds, instants(worlds), catalogue=False))


def test_nothing_known_at_as_of_or_later_changes_a_feature(
    worlds: Any, found: Rows, frames: Callable[..., Any]
) -> None:
    as_of, rng = instants(worlds)[4], random.Random(5)
    past, future = known(worlds.reads, as_of), [r for r in worlds.reads if r.known >= as_of * US]
    assert future
    changed = [dataclasses.replace(r, n=r.n + 7, user="spy", known=as_of * US) for r in future]
    doubled = [dataclasses.replace(r, known=as_of * US, bytes=1, dataset=None) for r in past]
    files = known(worlds.files, as_of) + [
        dataclasses.replace(f, did=f"{f.did}-new", known=as_of * US) for f in worlds.files
    ]
    reads = [*past, *changed[::2], *doubled]
    rng.shuffle(reads)
    accesses, catalogue = frames(dataclasses.replace(worlds, reads=reads, files=files))
    again = collected(features(accesses, catalogue, [as_of], spec=worlds.spec, region="r"))
    text = f"{dt.datetime.fromtimestamp(as_of, dt.UTC):%Y-%m-%dT%H:%M:%SZ}"
    assert again == {key: row for key, row in found.items() if key[1] == text}  # bit by bit


def test_bytes_told_after_a_read_was_known_change_no_feature(worlds: Any, frames: Callable[..., Any]) -> None:
    """Its end and its bytes come with the close: a read that counts from its open counts its file's size."""
    accesses, catalogue = frames(worlds)
    later = F.col("known_at") + F.make_dt_interval(secs=F.lit(1))
    ended = accesses.withColumn("closed_at", later)
    found, bare = (
        collected(features(rows, catalogue, instants(worlds)[-2:], spec=worlds.spec, region="r"))
        for rows in (ended, accesses.withColumn("read_bytes", F.lit(None).cast("long")))
    )
    assert found == bare


def test_a_sample_holds_some_candidates_as_they_are(
    worlds: Any, found: Rows, frames: Callable[..., Any]
) -> None:
    """Of unread files it may hold others: it takes its share of the first by name among what is sampled."""
    accesses, files = frames(worlds)
    spec = dataclasses.replace(worlds.spec, sample_share=0.3)
    rows = collected(features(accesses, files, instants(worlds), spec=spec, region="r"))
    read = {key: row for key, row in rows.items() if row["recency_s"] is not None}
    assert read == {key: found[key] for key in read}
    both = rows.keys() & found.keys()
    assert {key: rows[key] for key in both} == {key: found[key] for key in both}
    assert len(rows) == pytest.approx(0.3 * len(found), rel=0.2)
    assert {key[1] for key in rows} == {key[1] for key in found}


def test_weekly_datasets(make_worlds: Callable[..., Any], frames: Callable[..., Any]) -> None:
    worlds = make_worlds(2, n_worlds=20, cycle_s=7 * 86400, datasets=False)
    accesses, _ = frames(worlds)
    rows = collected(features(accesses, None, instants(worlds), spec=worlds.spec, region="r"))
    assert_equal(rows, expected(worlds, instants(worlds), catalogue=False))
    assert {row["dataset_n_access_7d"] for row in rows.values()} == {None}
    assert len({row["n_same_weekday"] for row in rows.values()}) > 1


@pytest.mark.parametrize("as_ofs", [[], [1_772_323_201]])
def test_as_ofs_must_be_on_the_grid(worlds: Any, frames: Callable[..., Any], as_ofs: list[int]) -> None:
    accesses, files = frames(worlds)
    with pytest.raises(ValueError, match="as_of"):
        features(accesses, files, as_ofs, spec=worlds.spec, region="r")


def test_columns_are_the_tables(worlds: Any, frames: Callable[..., Any]) -> None:
    accesses, files = frames(worlds)
    table = worlds.spec.features_table
    frame = features(accesses, files, instants(worlds), spec=worlds.spec, region="r")
    assert frame.columns == [*table.column_names, *table.partition]
    kinds = {field.name: field.dataType.simpleString() for field in frame.schema}
    assert {kinds[name] for name in worlds.spec.numeric_columns} == {"double"}
