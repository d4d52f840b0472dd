"""The study's page: answers first, the numbers of the study in its tables, harmless whatever the names."""

import dataclasses
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cachecast_main import asked
from html_page import Page
from typer.testing import CliRunner

from jobs.cli.main import app
from jobs.ground.settings.tree import Settings
from jobs.studies.simulate.study import answers, study_page, write_study
from replay.config import CacheConfig
from replay.read import LoadedTrace
from replay.study.benefit import BenefitModel, Region
from replay.study.categories import Thresholds
from replay.study.study import Study, StudyConfig, study
from replay.trace import Trace

EVIL = "<script>alert(1)</script>"
DAY = 86400
TITLES = [
    *("What to cache", "Categories", "File sizes", "Hotness", "Hits by age"),
    *("Hit rate against capacity", "Fill level", "Hits and misses per day", "Origins"),
    "Activities",
    "WAN traffic and CPU time saved",
]


SIZE: dict[str, Any] = {"capacity_bytes": 10**9, "capacity_fraction": None, "watermarks": None}
SIZE |= {"what": "x", "on_progress": lambda done, total, last: None}


def accesses(n: int = 3000) -> pa.Table:
    """Three weeks: `AOD` is re-read, the evil category is read once."""
    rng = np.random.default_rng(4)
    hot = rng.integers(0, 40, n)
    file = np.where(rng.random(n) < 0.5, hot, 1000 + np.arange(n))
    return pa.table(
        {
            "t": 1_754_000_000 + np.arange(n) * (21 * DAY // n),
            "id": pa.array([f"f{k}" for k in file]),
            "size": np.where(file < 1000, 10**9 + file, 3 * 10**9),
            "category": pa.array(["AOD" if k < 1000 else EVIL for k in file]).dictionary_encode(),
            "origin": pa.array(["eos.cern.ch" if k % 2 else "x.fnal.gov:1094" for k in file]),
            "activity": pa.array(["analysis" if k < 1000 else None for k in file]),
        }
    )


@pytest.fixture(scope="module")
def loaded() -> LoadedTrace:
    rows = accesses()
    ids = rows["id"].combine_chunks().dictionary_encode()
    item = ids.indices.to_numpy()
    size = np.zeros(len(ids.dictionary), np.int64)
    size[item] = rows["size"].to_numpy()
    trace = Trace(rows["t"].to_numpy(), item, size, names=ids.dictionary)
    return LoadedTrace(trace, rows.select(["category", "origin", "activity"]), ("rows left out: 7",))


@pytest.fixture(scope="module")
def three_weeks(loaded: LoadedTrace) -> Study:
    cache = CacheConfig(60 * 10**9, 0.85, 0.95)
    regions = [Region("europe", ("*.ch",), 16.0), Region("america", ("*.gov",), 150.0)]
    config = StudyConfig(cache, Thresholds(), regions, BenefitModel())
    return study(loaded.trace, loaded.details, config)


def test_the_page_has_every_part_and_harmless_names(three_weeks: Study) -> None:
    text = study_page(three_weeks, what="a.parquet", notes=["rows left out: 7"])
    page = Page(text)
    assert page.open == []
    assert page.headings == TITLES
    assert page.answers == list(answers(three_weeks))
    assert text.count('class="plot"') == 10
    assert page.seen.count("script") == 10 + 1  # the points of each plot, and ours
    assert EVIL not in text
    assert EVIL in page.cells
    assert "rows left out: 7" in text
    assert "src=" not in text
    assert not [link for link in text.split('href="')[1:] if not link.startswith(("#", "data:,"))]


def test_the_tables_hold_the_studys_numbers(three_weeks: Study) -> None:
    cells = Page(study_page(three_weeks, what="a")).cells
    for row in three_weeks.categories:
        assert row.reason in cells
        assert f"{row.sums.accesses:,}".replace(",", " ") in cells
        assert f"{100 * row.sums.hits / row.sums.accesses:.1f} %" in cells
    saved = three_weeks.benefit.direct.hs06_hours - three_weeks.benefit.cached.hs06_hours
    assert f"{round(saved):,}".replace(",", " ") in cells
    assert {"europe", "america"} <= set(cells)


def test_traces_at_the_edge_have_a_page_too(tmp_path: Path) -> None:
    """One access; and a trace that hits always once it is warm, without origins."""
    for item, size in (([0], 10), ([0, 0, 0], 10), ([0, 0], 0)):
        trace = Trace(np.arange(len(item)) * DAY, np.array(item), np.array([size]))
        loaded = LoadedTrace(trace, pa.table({"site": ["x"] * len(item)}), ())
        small = SIZE | {"capacity_bytes": 100}
        summary = write_study(loaded, Settings.load(env={}), out=tmp_path / "edge.html", **small)
        without = [title for title in TITLES if title != "Activities"]
        assert Page((tmp_path / "edge.html").read_text()).headings == without
        assert summary.verdicts == {"all": "cache" if len(item) == 3 else "do not cache"}
        assert summary.lru_age_s is None
        assert summary.hs06_hours_saved is None


def test_cpu_hours_are_of_origins_of_known_distance_alone(loaded: LoadedTrace, three_weeks: Study) -> None:
    def studied(*regions: Region) -> Study:
        config = dataclasses.replace(three_weeks.config, regions=regions)
        return study(loaded.trace, loaded.details, config)

    nowhere = studied()
    assert nowhere.benefit is None
    page = study_page(nowhere, what="a")
    assert "No CPU hours: the distance of no origin is known" in page
    assert not re.search("HS06-hours|CPU efficiency", " ".join(Page(page).answers))
    near = studied(Region("europe", ("*.ch",), 16.0))
    assert near.benefit is not None
    by_region = {part.label: part.requested_bytes for part in near.origins}
    share = by_region["europe"] / sum(by_region.values())
    assert near.benefit.known_share == pytest.approx(share)
    assert near.benefit.direct.cpu_efficiency == pytest.approx(0.8)
    assert f"Of the {100 * share:.1f} % of the bytes" in list(answers(near))[-1]


def test_the_command_studies_a_file_with_its_own_column_names_and_days_of_it(tmp_path: Path) -> None:
    pq.write_table(accesses(), tmp_path / "t.parquet")
    words = ["report", "--trace", str(tmp_path / "t.parquet"), "--columns", "time=t,item=id,size=size"]
    more = ["--capacity", "60GB", "--watermarks", "0.85,0.95", "--out", str(tmp_path / "out.html")]
    answer = asked(*words, *more)
    assert answer["accesses"] == 3000
    assert answer["verdicts"] == {EVIL: "do not cache", "AOD": "cache"}
    assert 0 < answer["byte_hit_ratio"] < answer["chosen_byte_hit_ratio"]
    assert answer["page_bytes"] == len((tmp_path / "out.html").read_bytes())
    more = ["--from", "2025-08-02", "--to", "2025-08-03", "--capacity-fraction", "0.1"]
    of_days = asked(*words, *more, "--out", str(tmp_path / "out.html"))
    times = accesses()["t"].to_numpy()
    first = 1_754_092_800  # 2025-08-02T00:00:00Z
    assert of_days["accesses"] == ((times >= first) & (times < first + 2 * DAY)).sum()


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--capacity", "1TB"], "give --trace"),
        (["--trace", "nowhere.parquet"], "nowhere.parquet"),
        (["--trace", "nowhere.parquet", "--watermarks", "0.9"], "0.85,0.95"),
        (["--trace", "nowhere.parquet", "--watermarks", "0.95,0.85"], "0.85,0.95"),
        (["--trace", "nowhere.parquet", "--columns", "time"], "time=t,item=id"),
        (["--trace", "nowhere.parquet", "--capacity-fraction", "0.1,0.2"], "not one share"),
        (["--trace", "nowhere.parquet", "--capacity-fraction", "0.1", "--capacity", "1TB"], "either"),
    ],
)
def test_a_mistake_is_told_with_its_remedy(words: list[str], error: str) -> None:
    answer = CliRunner().invoke(app, ["report", *words])
    assert answer.exit_code != 0
    assert error in str(answer.exception)
