"""The made-up month: the same for a seed, and of the shape it claims."""

from __future__ import annotations

import dataclasses
import tomllib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from features.errors import ConfigError
from features.schema import FILES, arrow_schema
from replay.arrow import from_arrow
from replay.compare import compare
from replay.workload import WorkloadConfig, generate

DEMO = Path(__file__).parents[2] / "conf" / "workloads" / "demo.toml"


def demo_values():
    return tomllib.loads(DEMO.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def config():
    return WorkloadConfig.from_mapping(demo_values())


@pytest.fixture(scope="module")
def month(config):
    return generate(config)


def test_a_seed_decides_every_byte(config, month):
    again = generate(config)
    assert again.accesses.equals(month.accesses) and again.files.equals(month.files)
    other = generate(dataclasses.replace(config, seed=2))
    assert not other.accesses.equals(month.accesses) and not other.files.equals(month.files)


def test_tables_are_whole(config, month):
    accesses, files = month
    assert files.schema.equals(arrow_schema(FILES))
    assert 150_000 <= accesses.num_rows <= 200_000 and 25_000 <= files.num_rows <= 35_000
    assert pc.count_distinct(accesses["event_id"]).as_py() == accesses.num_rows
    assert pc.count_distinct(files["did"]).as_py() == files.num_rows
    assert all(column.null_count == 0 for column in accesses.columns)
    seconds = accesses["accessed_at"].cast(pa.int64()).to_numpy() // 10**6 - config.start_s
    assert (np.diff(seconds) >= 0).all() and seconds[0] >= 0 and seconds[-1] < config.days * 86400
    assert pc.all(pc.greater_equal(accesses["closed_at"], accesses["accessed_at"])).as_py()
    assert pc.all(pc.less_equal(accesses["read_bytes"], accesses["size_bytes"])).as_py()
    assert pc.min(files["size_bytes"]).as_py() >= config.min_size_bytes
    joined = accesses.select(["did", "accessed_at"]).join(files.select(["did", "created_at"]), "did")
    assert pc.all(pc.greater_equal(joined["accessed_at"], joined["created_at"])).as_py()


def test_names_are_those_of_cms(month):
    row = month.files.slice(0, 1).to_pylist()[0]
    _, store, kind, era, primary, tier, proc, _, _ = row["name"].split("/")
    assert (store, kind in ("data", "mc")) == ("store", True)
    assert row["did"] == f"cms:{row['name']}"
    assert row["dataset"] == f"cms:/{primary}/{era}-{proc}/{tier}"


def test_about_half_of_the_files_read_are_read_once(month):
    reads = month.accesses.group_by("did").aggregate([("event_id", "count")])["event_id_count"].to_numpy()
    assert 0.4 < (reads == 1).mean() < 0.65
    assert 0.05 < 1 - reads.size / month.files.num_rows < 0.5  # never read
    production = month.accesses.filter(pc.equal(month.accesses["activity"], "production"))
    assert pc.count_distinct(production["did"]).as_py() == production.num_rows


def test_nights_and_weekends_are_quieter(config, month):
    hour = month.accesses["accessed_at"].cast(pa.int64()).to_numpy() // 3_600_000_000
    of_day = np.bincount(hour % 24, minlength=24)
    assert of_day[11:17].sum() > 1.5 * of_day[[23, 0, 1, 2, 3, 4]].sum()
    weekend = np.isin(hour // 24 % 7, (2, 3))
    weeks = (hour - config.start_s // 3600) // 24 < 28
    assert (weekend & weeks).sum() / 2 < 0.8 * (~weekend & weeks).sum() / 5


def test_new_versions_take_over(month):
    table = month.accesses.select(["dataset", "accessed_at"]).to_pandas()
    table["line"] = table["dataset"].str.replace(r"-v\d/", "/", regex=True)
    second = table[table["dataset"].str.contains("-v2/")]
    assert second["line"].nunique() >= 5
    begins = second.groupby("line")["accessed_at"].min().rename("begins")
    first = table[~table["dataset"].str.contains("-v2/")].merge(begins, on="line")
    late = first["accessed_at"] > first["begins"] + np.timedelta64(7, "D")
    assert late.mean() < 0.15


def test_lru_has_something_to_lose_and_to_win(month):
    table = month.accesses.append_column("n_reads", pa.repeat(1, month.accesses.num_rows))
    trace, dropped = from_arrow(table, files=month.files)
    assert (dropped, trace.n_items) == (0, month.files.num_rows)
    capacities = [int(share * trace.footprint_bytes) for share in (0.05, 0.1, 0.2)]
    rows = compare(trace, capacities)
    lru = [row.result.byte_hit_ratio for row in rows if row.policy == "lru"]
    best = [row.result.byte_hit_ratio for row in rows if row.policy == "bound"]
    assert 0.15 < lru[0] < lru[1] < lru[2] < 0.65
    assert all(b > a + 0.05 for a, b in zip(lru, best, strict=True))


def test_wrong_keys_are_named():
    values = demo_values()
    with pytest.raises(ConfigError, match=r"tiers\[0\].*unknown key speed"):
        WorkloadConfig.from_mapping({**values, "tiers": [{**values["tiers"][0], "speed": 1}]})
    with pytest.raises(ConfigError, match="missing key seed"):
        WorkloadConfig.from_mapping({k: v for k, v in values.items() if k != "seed"})
    with pytest.raises(ConfigError, match="origins"):
        WorkloadConfig.from_mapping({**values, "origins": []})
