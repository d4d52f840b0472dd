"""Several caches from a TOML file."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from features.common.errors import ConfigError
from jobs.studies.simulate.fleet import load_fleet, load_levels, replay_fleet, replay_levels
from replay.read import LoadedTrace
from replay.trace import Trace


def write(folder: Path, text: str) -> Path:
    path = folder / "fleet.toml"
    path.write_text(text)
    return path


def test_the_shipped_fleet_is_socals() -> None:
    federation = load_fleet(Path(str(resources.files("conf").joinpath("fleets", "socal.toml"))))
    assert len(federation) == 24
    assert sum(cache.capacity_bytes for cache in federation.values()) == pytest.approx(2.5e15, rel=0.01)


def test_every_key_reaches_the_cache(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        """
        [defaults]
        watermarks = [0.5, 0.6]
        [[caches]]
        name = "a"
        capacity = "10TB"
        purge_interval = "1m"
        cold_age = "30d"
        cold_every = 6
        block_size = "1MB"
        ssd = "1TB"
        never_cache = ["*panda.um*"]
        """,
    )
    config = load_fleet(path)["a"]
    assert (config.low_watermark, config.high_watermark, config.purge_interval_s) == (0.5, 0.6, 60)
    assert (config.cold_age_s, config.cold_every) == (30 * 86400, 6)
    assert (config.block_bytes, config.ssd_bytes, config.never_cache) == (10**6, 10**12, ("*panda.um*",))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("caches = 7", "fleet.toml"),
        ("[[caches]]\nname = 'a'", "capacity"),
        ("[[caches]]\nname = 'a/b'\ncapacity = '1TB'", "name"),
        ("[[caches]]\nname = 'a'\ncapacity = '1TB'\nsize = 3", "size"),
        ("wan_per_s = '5GB'\n[[caches]]\nname = 'a'\ncapacity = '1TB'", "wan_per_s"),
        ("[[caches]]\nname = 'a'\ncapacity = '1TB'\n[[caches]]\nname = 'a'\ncapacity = '1TB'", "same name"),
        ("[[caches]]\nname = 'a'\ncapacity = '1TB'\nwatermarks = [0.9, 0.8]", "watermarks"),
        ("", "caches"),
        ("[[", "not TOML"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        load_fleet(write(tmp_path, text))


def test_rows_are_of_all_and_of_each(tmp_path: Path) -> None:
    path = write(tmp_path, "[[caches]]\nname = 'n'\ncount = 2\ncapacity = '1000'\nssd = '300'")
    rng = np.random.default_rng(1)
    trace = Trace(
        np.sort(rng.integers(0, 90_000, 3000)),
        rng.integers(0, 100, 3000, dtype=np.int32),
        rng.integers(1, 60, 100),
        names=pa.array([f"x:f{i}" for i in range(100)]),
    )
    loaded = LoadedTrace(trace, pa.table({}), ())
    rows: Any = replay_fleet(
        loaded, load_fleet(path), count_from_s=None, read_rates={"ssd": 100, "hdd": 10}
    ).rows
    assert [row["cache"] for row in rows] == ["all", "n-1", "n-2"]
    for key in ("requests", "hits", "bytes_requested", "wan_bytes", "capacity_bytes"):
        assert rows[0][key] == rows[1][key] + rows[2][key]
    assert rows[0]["requests"] == 3000
    hit_bytes = rows[0]["bytes_requested"] * rows[0]["byte_hit_ratio"]
    ssd = rows[0]["ssd_hit_bytes"]
    assert 0 < ssd < hit_bytes
    assert rows[0]["read_wait_s"] == pytest.approx(ssd / 100 + (hit_bytes - ssd) / 10)


LEVELS = """
[[levels]]
name = "node"
by = "reader"
count = 2
capacity = "10B"
[[levels]]
name = "site"
capacity = "{capacity}"
link = "1B"
"""


def test_levels_of_a_file_are_replayed_for_the_users_of_a_trace(tmp_path: Path) -> None:
    levels = load_levels(write(tmp_path, LEVELS.format(capacity="1kB")))
    assert levels is not None
    reads = Trace(np.array([0, 100, 200, 300]), np.zeros(4, np.int32), np.array([5]))
    users = pa.table({"user": ["ann", "bob", "ann", "bob"]})
    answer = replay_levels(LoadedTrace(reads, users, ()), levels, count_from_s=None)
    assert [(row["cache"], row["hits"]) for row in answer.rows] == [
        ("node", 2),
        ("site", 1),
        ("origin", 1),
        ("all", 3),
    ]
    assert (answer.rows[-1]["in_bytes"], answer.rows[-1]["mean_wait_s"]) == (5, 1.25)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (LEVELS.format(capacity="none"), "capacity"),
        (LEVELS.format(capacity="1kB").replace("node", "site"), "names of their own"),
        (LEVELS.format(capacity="1kB").replace("node", "origin"), "names of their own"),
        (LEVELS.format(capacity="1kB").replace('"reader"', '"luck"'), "by"),
        ("levels = []", "levels"),
    ],
)
def test_a_wrong_level_is_told(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        load_levels(write(tmp_path, text))
