"""`worth-it`: its figures are those of plain replays, its bounds decide, and nothing is made up."""

import dataclasses
import math
import re
from pathlib import Path
from typing import Any

import cachecast_main
import numpy as np
import pytest

from features.common.errors import InputError
from features.common.times import DAY_S, parse_day
from features.common.units import parse_bytes
from jobs.ground.settings.tree import Settings
from jobs.studies.simulate import worth
from models.evaluation.metrics import mean_interval
from replay.comparison import Row
from replay.curve import lru_curve
from replay.policies import run_policy
from replay.read import read_trace
from replay.study.benefit import BenefitModel, BytesRead, cost
from replay.trace import Trace

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
    same = CAPACITY + 1.01 * parse_bytes(finding.split(": ")[1].split(" (")[0].rstrip("."))  # it is rounded
    again = run_policy("lru", reads, int(same) + 100, count_from_s=from_s)
    assert again.wan_bytes <= round(options["a steward"]["wan_bytes_per_day"] * n_days)


def test_what_saves_nothing_needs_no_more_disk() -> None:
    """A file larger than the cache is read past it; of so small a cache the curve is no replay."""
    reads = Trace(np.arange(3), np.array([0, 1, 0]), np.array([10, 30]))
    row = Row(20, "lru", run_policy("lru", reads, 20), 0.0)
    case = worth._Case(20, 40, {"lru": row}, row, lru_curve(reads))
    assert [case.same_as(saved) for saved in (None, -1.0, 0.0, 1.0)] == [None, 0.0, 0.0, math.inf]


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
    saved = cost(BytesRead(np.array([150.0]), np.array([10**12]), np.array([0])), model)
    hit = cost(BytesRead(np.array([150.0]), np.array([0]), np.array([10**12])), model)
    assert far.hours(1e12) == pytest.approx(saved.core_hours - hit.core_hours)
    assert 0 < near.hours(1e12) < far.hours(1e12)
    assert far.money(1e12) == pytest.approx(365 * 2 * far.hours(1e12))
    assert worth.Value(model, worth.SiteFacts(core_hour=2)).money(1e12) is None
    disks = Settings.load(env={"CACHECAST_BENEFIT__MEDIUM": "hdd"}).benefit.model
    assert worth.Value(disks, worth.SiteFacts(rtt_ms=150)).hours(1e12) == pytest.approx(
        far.hours(1e12) - 1e12 / 3600 * (1 / 13.9e6 - 1 / 986e6)
    )


def test_too_little_past_to_learn_from_is_told_with_what_can_be_asked(tmp_path: Path) -> None:
    short = tmp_path / "short.csv"
    short.write_text("time,path,size\n" + "".join(f"{day * DAY_S},f{day % 3},9\n" for day in range(20)))
    with pytest.raises(InputError, match=r"too few for a steward .* `cachecast curve`"):
        answer_of(short)


@pytest.mark.parametrize(
    "words",
    [("--more", "inf"), ("--more", "1e300"), ("--capacity", "0"), ("--price-wan", "inf")],
    ids=" ".join,
)
def test_what_no_sum_can_be_made_of_is_refused(trace: Path, words: tuple[str, str]) -> None:
    with pytest.raises(InputError, match=r"is no larger cache|are from 0 to"):
        answer_of(trace, *words)


@pytest.mark.parametrize("amount", [-1.0, math.nan, math.inf, 1e300])
@pytest.mark.parametrize("fact", ["rtt_ms", "wan_tb", "core_hour", "disk_tb_year", "run_year"])
def test_a_fact_is_a_number_that_sums_can_be_made_of(fact: str, amount: float) -> None:
    with pytest.raises(InputError, match="prices and the round trip are from 0 to"):
        worth.SiteFacts(**{fact: amount})


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
    saved: tuple[float, float, float], money: float | None, words: str
) -> None:
    option = dataclasses.replace(interval(*saved), money_per_year=money)
    figures = worth.SiteFacts(run_year=None if money is None else 100)
    verdict = worth.verdict(CAPACITY, 30, option, figures)
    assert re.search(words.replace("(", r"\(").replace(")", r"\)"), verdict)


def test_too_few_days_are_no_verdict(trace: Path) -> None:
    answer = answer_of(trace, "--from", "1970-01-25")
    assert "unknown, too few days to tell: 8 count" in answer["verdict"]
    day = re.search(r"give --from (1970-01-\d\d)\.", answer["verdict"])
    assert day is not None and "unknown" not in answer_of(trace, "--from", day[1])["verdict"]
    with pytest.raises(InputError, match=r"is after the last access"):
        answer_of(trace, "--from", "1971-01-01")


def test_a_steward_that_fetches_more_is_no_disk() -> None:
    more = [worth.as_more_disk(interval(mean, -9, 2), lambda _: 0.0) for mean in (5, -5)]
    assert [sentence.partition(" ")[0] for sentence in more] == ["More", "LRU"] and "0 B" not in more[1]
