"""Made-up workloads say so; and what a steward is worth, by plain replays."""

import dataclasses
import datetime as dt
import re
from pathlib import Path
from typing import Any

import cachecast_main
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from cachecast_main import cachecast

from features.common.errors import ConfigError, InputError
from features.common.times import DAY_S, parse_day
from features.common.units import parse_bytes
from features.schema import ACCESSES, FILES
from jobs.ground.store.tables import Tables
from jobs.loop.ingest import pull_input
from jobs.loop.ingest.local_engine import LocalEngine
from jobs.studies.simulate import workload, worth
from models.evaluation.metrics import mean_interval
from replay.policies import run_policy
from replay.read import read_trace
from replay.study.benefit import BenefitModel, BytesRead, cost

START = parse_day("2026-03-01")


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_raw_files_are_pulled_back_whole(tmp_path: Path) -> None:
    config = workload.load("demo", start_s=START, seed=3, days=2)
    raw = workload.write(config, out=tmp_path / "raw", raw=True)
    tables, day = Tables(str(tmp_path / "tables")), dt.date(2026, 3, 3)
    reads = pull_input.pull(LocalEngine(), tables, source="rucio_traces", path=raw.traces, day=day, salt="s")
    files = pull_input.pull(LocalEngine(), tables, source="rucio_files", path=raw.catalogue, day=day)
    assert (reads.n_new, dict(reads.n_rejected)) == (raw.accesses, {})
    assert reads.days == ("2026-03-01", "2026-03-02")
    assert (files.n_new, dict(files.n_rejected)) == (raw.files, {})
    accesses = tables.read_arrow(ACCESSES).to_pandas()
    assert (accesses["known_at"] > accesses["closed_at"]).all()
    assert accesses["user"].str.fullmatch("[0-9a-f]{16}").all()
    assert set(accesses["did"]) <= set(tables.read_arrow(FILES, columns=["did"])["did"].to_pylist())
    assert set(accesses["activity"]) == {"analysis", "production"}


def test_a_trace_is_two_parquet_files(tmp_path: Path) -> None:
    written = workload.write(workload.load("mwt2", seed=1, scale=0.01), out=tmp_path / "t")
    assert sorted(contents(tmp_path / "t")) == ["accesses.parquet", "files.parquet"]
    accesses, files = pq.read_table(written.traces), pq.read_table(written.catalogue)
    assert (accesses.num_rows, files.num_rows) == (written.accesses, written.files)
    assert written.size_bytes == pc.sum(files["size_bytes"]).as_py()
    assert accesses.column_names == [
        *("accessed_at", "closed_at", "did", "dataset", "category", "tier", "size_bytes", "read_bytes"),
        *("origin", "site", "user", "task", "activity"),
    ]
    known = {"did", "scope", "name", "dataset", "tier", "category", "size_bytes", "created_at", "origin"}
    assert known <= set(files.column_names)
    assert accesses.schema.field("accessed_at").type == pa.timestamp("us", tz="UTC")
    for name in ("did", "dataset", "category", "tier", "origin", "site", "user", "task", "activity"):
        assert pa.types.is_dictionary(accesses.schema.field(name).type), name
    assert pc.any(pc.invert(pc.is_in(files["did"], pc.unique(accesses["did"].cast(pa.string()))))).as_py()
    trace = read_trace(tmp_path / "t").trace
    assert (trace.n_accesses, trace.n_items) == (written.accesses, written.files)


def test_generated_data_says_so_everywhere_and_never_joins_real_records(tmp_path: Path) -> None:
    workload.write(workload.load("mwt2", seed=7, scale=0.001), out=tmp_path / "t")
    (note,) = read_trace(tmp_path / "t").notes
    assert note.startswith("Generated data, not a site's: reads of MWT2") and note.endswith("seed 7")

    words = ("workload", "--out", tmp_path / "raw", "--days", "1", "--tables", tmp_path / "own")
    assert cachecast(*words).returncode == 0
    arrived = cachecast("arrivals", "--as-of", "2026-03-01", "--tables", tmp_path / "own")
    assert "note: Generated data, not a site's: reads of" in arrived.stderr
    assert "note: Generated" in cachecast(*words).stderr
    (tmp_path / "own" / "GENERATED.txt").unlink()
    assert "accesses that were not generated" in cachecast(*words).stderr


def test_a_scenario_of_ones_own_is_a_file_and_a_bad_one_is_told(tmp_path: Path) -> None:
    own = tmp_path / "mine.toml"
    own.write_text("days = 3\n")
    with pytest.raises(ConfigError, match=r"period_days, .* are missing"):
        workload.load(str(own), start_s=START, seed=1)
    with pytest.raises(ConfigError, match="there is no"):
        workload.load("../base", start_s=START, seed=1)
    with pytest.raises(InputError, match="cannot write"):
        workload.write(workload.load("demo", seed=1, days=1), out=own)


CAPACITY = 3000
N_DAYS = 32


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Passes over a few datasets that return, and a stream of files that are read once."""
    rng = np.random.default_rng(3)
    rows = []
    for day in range(N_DAYS):
        for _ in range(2):
            begin = day * DAY_S + int(rng.integers(0, DAY_S // 2))
            dataset = int(rng.zipf(1.6)) % 12
            rows += [(begin + 60 * i, f"/hot{dataset}/f{i}.root", 100) for i in range(20)]
        once = sorted(rng.integers(0, DAY_S, 60).tolist())
        rows += [(day * DAY_S + at, f"/once/{day}-{i}.log", 100) for i, at in enumerate(once)]
    path = tmp_path_factory.mktemp("worth") / "t.csv"
    path.write_text("time,path,size\n" + "".join(f"{t},{name},{size}\n" for t, name, size in sorted(rows)))
    return path


def answer_of(trace: Path, *words: str) -> Any:
    return cachecast_main.asked("worth-it", "--trace", trace, "--capacity", f"{CAPACITY}B", *words)


@pytest.fixture(scope="module")
def plain(trace: Path) -> Any:
    return answer_of(trace)


def test_the_figures_are_those_of_plain_replays(trace: Path, plain: Any) -> None:
    options = {option["option"]: option for option in plain["options"]}
    reads = read_trace(trace).trace
    from_s = parse_day(plain["first_day"])
    n_days = N_DAYS - from_s // DAY_S
    lru = run_policy("lru", reads, CAPACITY, count_from_s=from_s)
    assert options["LRU"]["wan_bytes_per_day"] == lru.wan_bytes / n_days
    assert options["no cache"]["wan_bytes_per_day"] == lru.bytes_requested / n_days
    more = run_policy("lru", reads, 2 * CAPACITY, count_from_s=from_s)
    saved = mean_interval(lru.daily.wan_bytes - more.daily.wan_bytes)
    larger = options["LRU, more disk"]
    assert larger["saved_bytes_per_day"] == saved.mean
    assert (larger["lower_bytes_per_day"], larger["upper_bytes_per_day"]) == (saved.lower, saved.upper)
    assert options["the bound"]["wan_bytes_per_day"] <= options["a steward"]["wan_bytes_per_day"]
    # What a steward saves, LRU saves with so much more disk: a replay at that capacity agrees.
    (finding,) = (line for line in plain["findings"] if line.startswith("More disk"))
    if "reach" not in finding:
        same = CAPACITY + parse_bytes(finding.split(": ")[1].split(" (")[0].rstrip("."))
        again = run_policy("lru", reads, same + 100, count_from_s=from_s)
        assert again.wan_bytes <= options["a steward"]["wan_bytes_per_day"] * n_days


def test_hours_and_money_only_by_figures_that_are_given(trace: Path, plain: Any, tmp_path: Path) -> None:
    assert all(row["core_hours_per_day"] is row["money_per_year"] is None for row in plain["options"])
    assert "no CPU hours: the round trip to the origins is not given" in str(plain["assumptions"])
    prices = ("--price-wan", "2e9", "--price-disk", "1e9", "--price-steward", "100")
    priced = answer_of(trace, *prices, "--out", str(tmp_path / "page.html"))
    options = {row["option"]: row for row in priced["options"]}
    steward = options["a steward"]
    assert steward["money_per_year"] == pytest.approx(365 * steward["saved_bytes_per_day"] / 1e12 * 2e9 - 100)
    larger = options["LRU, more disk"]
    costs = CAPACITY / 1e12 * 1e9
    assert larger["money_per_year"] == pytest.approx(365 * larger["saved_bytes_per_day"] / 1e12 * 2e9 - costs)
    assert steward["core_hours_per_day"] is None
    page = (tmp_path / "page.html").read_text()
    assert "Is it worth it?" in page and "--price-steward" in page


def test_hours_grow_with_the_distance_and_have_a_price_of_their_own() -> None:
    model = BenefitModel()
    near, far = (worth.Value(model, worth.SiteFacts(rtt_ms=rtt, core_hour=2)) for rtt in (9.4, 150))
    saved = cost(BytesRead(np.array([150.0]), np.array([10**12]), np.zeros((1, 1), np.int64)), model)
    hit = cost(BytesRead(np.array([150.0]), np.array([0]), np.full((1, 1), 10**12)), model)
    assert far.hours(1e12) == pytest.approx(saved.core_hours - hit.core_hours)
    assert 0 < near.hours(1e12) < far.hours(1e12)
    assert far.money(1e12) == pytest.approx(365 * 2 * far.hours(1e12))
    assert worth.Value(model, worth.SiteFacts(core_hour=2)).money(1e12) is None


def interval(mean: float, lower: float | None, upper: float | None) -> worth.Option:
    return worth.Option("a steward", CAPACITY, 0.5, 1.0, mean, lower, upper, None, None)


@pytest.mark.parametrize(
    ("saved", "money", "words"),
    [
        ((5, 2, 8), None, "saves 5 B of WAN traffic per day against LRU (bounds 2 B to 8 B): more than ch"),
        ((5, -1, 8), None, "Not shown: .* may be chance"),
        ((-5, -8, -2), None, "No: .* costs 5 B per day more than LRU"),
        ((5, 2, 8), 40.0, "Yes: .* worth 40 per year more than it costs"),
        ((5, 2, 8), -40.0, "No: .* worth 40 per year less than it costs"),
    ],
)
def test_the_verdict_follows_the_bounds_and_the_prices(
    trace: Path, saved: tuple[float, float, float], money: float | None, words: str
) -> None:
    option = dataclasses.replace(interval(*saved), money_per_year=money)
    figures = worth.SiteFacts(run_year=None if money is None else 100)
    verdict = worth.verdict(CAPACITY, 30, option, figures)
    assert re.search(words.replace("(", r"\(").replace(")", r"\)"), verdict)
