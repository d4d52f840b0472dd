"""The demo's month: the same for a seed, and of the shape it claims."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from published import trace_of
from scenarios import values_of

from features.common.errors import ConfigError
from replay.bounds import byte_bound
from replay.policies import run_policy
from replay.workload import Workload, WorkloadConfig, generate


@pytest.fixture(scope="module")
def config() -> WorkloadConfig:
    return WorkloadConfig.from_mapping(values_of("demo"))


@pytest.fixture(scope="module")
def month(config: WorkloadConfig) -> Workload:
    return generate(config)


@pytest.fixture(scope="module")
def accesses(month: Workload) -> pa.Table:
    return month.accesses(raw=True)


@pytest.fixture(scope="module")
def files(month: Workload) -> pa.Table:
    return month.files()


def test_tables_are_whole(config: WorkloadConfig, accesses: pa.Table, files: pa.Table) -> None:
    assert 150_000 <= accesses.num_rows <= 200_000 and 25_000 <= files.num_rows <= 35_000
    assert pc.count_distinct(accesses["event_id"]).as_py() == accesses.num_rows
    assert pc.count_distinct(files["did"]).as_py() == files.num_rows
    assert all(column.null_count == 0 for table in (accesses, files) for column in table.columns)
    seconds = accesses["accessed_at"].cast(pa.int64()).to_numpy() // 10**6 - config.start_s
    assert (np.diff(seconds) >= 0).all() and seconds[0] >= 0 and seconds[-1] < config.days * 86400
    assert pc.all(pc.greater_equal(accesses["closed_at"], accesses["accessed_at"])).as_py()
    assert pc.all(pc.less_equal(accesses["read_bytes"], accesses["size_bytes"])).as_py()
    assert pc.min(files["size_bytes"]).as_py() >= config.min_size_bytes


def test_accesses_are_of_files_of_the_catalogue_that_exist_by_then(
    accesses: pa.Table, files: pa.Table
) -> None:
    place = pc.index_in(plain(accesses["did"]), value_set=plain(files["did"]))
    assert place.null_count == 0
    for column in ("dataset", "category", "tier", "origin", "size_bytes", "scope", "name"):
        assert plain(files[column]).take(place).equals(plain(accesses[column])), column
    assert pc.all(pc.greater_equal(accesses["accessed_at"], files["created_at"].take(place))).as_py()


def plain(column: pa.ChunkedArray) -> pa.Array:
    """A column's values, without dictionaries and chunks."""
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    return column.cast(kind).combine_chunks()


def test_about_half_of_the_files_read_are_read_once(month: Workload, accesses: pa.Table) -> None:
    reads = np.bincount(trace_of(month).item, minlength=month.n_files)
    assert 0.4 < (reads == 1).sum() / (reads > 0).sum() < 0.65
    assert 0.05 < (reads == 0).mean() < 0.5  # never read
    production = accesses.filter(pc.equal(plain(accesses["activity"]), "production"))
    assert pc.count_distinct(plain(production["did"])).as_py() == production.num_rows > 1000


def test_nights_and_weekends_are_quieter(config: WorkloadConfig, accesses: pa.Table) -> None:
    hour = accesses["accessed_at"].cast(pa.int64()).to_numpy() // 3_600_000_000
    of_day = np.bincount(hour % 24, minlength=24)
    assert of_day[11:17].sum() > 1.5 * of_day[[23, 0, 1, 2, 3, 4]].sum()
    weekend = np.isin(hour // 24 % 7, (2, 3))
    weeks = (hour - config.start_s // 3600) // 24 < 28
    assert (weekend & weeks).sum() / 2 < 0.8 * (~weekend & weeks).sum() / 5


def test_passes_go_through_whole_datasets(accesses: pa.Table, files: pa.Table) -> None:
    """Most tasks read every file of their dataset, once each."""
    reads = accesses.select(["task", "dataset", "did"]).to_pandas().astype(str)
    of_task = reads.groupby("task").agg(dataset=("dataset", "first"), n=("did", "size"), d=("did", "nunique"))
    assert (of_task["n"] == of_task["d"]).all()
    whole = of_task["n"] == of_task["dataset"].map(files["dataset"].to_pandas().astype(str).value_counts())
    assert 0.6 < whole.mean() < 0.9


def test_lru_has_something_to_lose_and_to_win(month: Workload) -> None:
    trace = trace_of(month)
    capacities = [int(share * trace.footprint_bytes) for share in (0.05, 0.1, 0.2)]
    lru = [run_policy("lru", trace, capacity).byte_hit_ratio for capacity in capacities]
    best = [byte_bound(trace, capacity).byte_hit_ratio for capacity in capacities]
    assert 0.15 < lru[0] < lru[1] < lru[2] < 0.65
    assert all(b > a + 0.05 for a, b in zip(lru, best, strict=True))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"origins": []}, "origins: .*at least 1"),
        ({"days": 0}, "days: 0 should be greater than 0"),
        ({"days": 1_000_000_000}, "days: 1000000000 should be less"),
        ({"scale": 999_999.0}, "scale: .*lower days or scale"),
        ({"seed": -1}, "seed: -1 should be greater"),
        ({"n_users": "many"}, "n_users: .*valid integer"),
        ({"fresh_share": 2}, "fresh_share: 2 should be less"),
        ({"categories": [1]}, r"categories\.0: must be a table; write it as \[\[categories\]\]"),
        ({"speed": 1}, "unknown key speed"),
    ],
    ids=str,
)
def test_a_wrong_key_is_named(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        WorkloadConfig.from_mapping(values_of("demo", **change))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"speed": 1}, r"unknown key categories\.0\.speed"),
        ({"files": 10**9}, r"categories\.0: .*read at least once"),
        ({"activity": "play"}, "activity: 'play' should be 'production' or 'analysis'"),
        ({"unread_share": 1}, "unread_share: 1 should be less than 1"),
        ({"files_median": 0}, "files_median: 0 should be greater than 0"),
    ],
    ids=str,
)
def test_a_categorys_wrong_key_is_named(change: dict[str, Any], words: str) -> None:
    values = values_of("demo")
    with pytest.raises(ConfigError, match=words):
        WorkloadConfig.from_mapping({**values, "categories": [{**values["categories"][0], **change}]})


def test_names_of_unknown_experiments_and_categories_are_refused() -> None:
    with pytest.raises(ConfigError, match="no names here; known: HITS"):
        generate(WorkloadConfig.from_mapping(values_of("demo", experiment="atlas")))
    with pytest.raises(ConfigError, match="known: atlas, cms"):
        generate(WorkloadConfig.from_mapping(values_of("demo", experiment="na62")))
