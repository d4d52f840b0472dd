"""Claims of papers beside the rows of a leaderboard: checked when read, and measured as they say."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from features.common.arrays import IntArray
from features.common.errors import ConfigError
from features.common.times import DAY_S
from jobs.studies.leaderboard.claims import Claim, compared, read_claims
from jobs.studies.leaderboard.entries import FORM, BoardTrace, Entry, opened
from jobs.studies.leaderboard.parts import Errors, cuts, errors_of, series_of

HOUR_S = 3600
CLAIM = {
    "paper": "p",
    "source": "s",
    "workload": "w",
    "measure": "byte_hit_ratio",
    "value": 0.5,
    "differs": "d",
}


def claim(**changes: object) -> Claim:
    return Claim.model_validate(CLAIM | changes)


def row(policy: str, fraction: float, hit_ratio: float, byte_hit_ratio: float) -> dict[str, Any]:
    return {
        "trace": "t",
        "capacity_fraction": fraction,
        "policy": policy,
        "hit_ratio": hit_ratio,
        "byte_hit_ratio": byte_hit_ratio,
    }


ROWS = [
    row("lru", 0.1, 0.4, 0.5),
    row("s3fifo", 0.1, 0.55, 0.6),
    row("clairvoyant", 0.1, 0.9, 0.9),
    row("lru", 0.2, 0.6, 0.75),
    row("lru", 0.4, 0.7, 0.8),
]
ERRORS = {"t": Errors(FORM, "", 0.9, 0.7)}


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"ours": "lru"}, "50 % to 80 %"),
        ({}, "–"),
        ({"measure": "wan_reduction", "value": 3, "ours": "lru"}, "2.00 to 5.00"),
        ({"measure": "misses_saved", "ours": "best"}, "0 % to 25 %"),
        ({"measure": "hit_ratio_doubled", "before": 0.55, "ours": "lru"}, "60 % → 70 %"),
        ({"measure": "hit_ratio_doubled", "before": 0.2, "ours": "lru"}, "40 % → 60 %"),
        ({"measure": "daily_relative_error", "ours": "forecast"}, "0.70"),
        ({"measure": "hourly_relative_error", "ours": "forecast"}, "0.90"),
    ],
)
def test_ours_is_measured_as_theirs(changes: dict[str, object], wanted: str) -> None:
    (found,) = compared([claim(**changes)], ROWS, ERRORS)
    assert found["t"] == wanted
    assert found["differs"] == "d"


@pytest.mark.parametrize("measure", ["hit_ratio_doubled", "daily_relative_error", "wan_reduction"])
def test_what_was_not_measured_is_a_dash(measure: str) -> None:
    before = {"before": 0.5} if measure == "hit_ratio_doubled" else {}
    ours = "forecast" if measure == "daily_relative_error" else "lru"
    (found,) = compared([claim(measure=measure, ours=ours, **before)], [row("s3fifo", 0.1, 0.5, 0.5)], {})
    assert found["t"] == "–"


def test_the_shipped_claims_say_their_source_and_what_differs() -> None:
    claims = read_claims()
    assert {"byte_hit_ratio", "wan_reduction", "hourly_relative_error"} <= {one.measure for one in claims}
    assert any(one.ours is None for one in claims)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("value = 1.5", "at most 1"),
        ('measure = "speed"', "measure"),
        ("before = 0.5", "hit_ratio_doubled"),
        ('ours = "forecast"', "is of lru"),
        ('differs = ""', "differs"),
        ('colour = "red"', "colour"),
    ],
)
def test_a_wrong_claim_is_one_line(tmp_path: Path, line: str, words: str) -> None:
    key = line.partition(" ")[0]
    lines = {name: f"{name} = {value!r}".replace("'", '"') for name, value in CLAIM.items()} | {key: line}
    path = tmp_path / "claims.toml"
    path.write_text("\n".join(["[[claim]]", *lines.values()]))
    with pytest.raises(ConfigError, match=words) as caught:
        read_claims(path)
    assert str(path) in str(caught.value)


def board(folder: Path, time_s: IntArray, dataset: IntArray) -> BoardTrace:
    """A trace that counts from its later half on, from accesses of one file per dataset."""
    lines = [f"{t},d{n},1,d{n}" for t, n in zip(time_s.tolist(), dataset.tolist(), strict=True)]
    path = folder / "t.csv"
    path.write_text("\n".join(["time,item,size,dataset", *lines]))
    roles = {name: name for name in ("time", "item", "size", "dataset")}
    return opened(Entry(name="t", path=path, columns=roles), folder)


def test_the_series_of_a_trace_counts_its_accesses(tmp_path: Path) -> None:
    draw = np.random.default_rng(1)
    time_s = np.sort(draw.integers(1_000_000, 1_000_000 + 20 * DAY_S, 500))
    one = board(tmp_path, time_s, draw.integers(0, 9, 500))
    series = series_of(one, DAY_S)
    days = time_s // DAY_S - time_s[0] // DAY_S + 1
    dataset = one.story.files.dataset[one.trace.item]
    whole = days < days[-1]
    wanted = Counter(zip(dataset[whole].tolist(), days[whole].tolist(), strict=True))
    names = [int(name) for name in series.names]
    found = zip(series.code.tolist(), series.unit.tolist(), series.reads.tolist(), strict=True)
    assert {(names[code], unit): reads for code, unit, reads in found} == wanted
    first_day = int(time_s[0]) // DAY_S
    assert (first_day + cuts(one, series).min()) * DAY_S == one.from_s


def test_accesses_that_repeat_have_the_smaller_error(tmp_path: Path) -> None:
    draw = np.random.default_rng(1)
    hours = np.repeat(np.arange(8 * 24), 20) * HOUR_S
    steady = np.tile(np.repeat(np.arange(5), 4), 8 * 24)
    steady[0] = 5  # read once: where all datasets are read, there is nothing to foresee
    rare = np.where(draw.random(steady.size) < 0.5, steady, draw.permutation(steady.size) % 300)
    errors = []
    for dataset in (steady, rare):
        error = errors_of(board(tmp_path, hours, dataset)).hourly
        assert error is not None
        errors.append(error)
    assert errors[0] < 0.05 < errors[1]


def test_a_trace_of_one_unit_has_no_error(tmp_path: Path) -> None:
    two_days = np.array([DAY_S - 1, DAY_S, DAY_S + 1], np.int64)
    assert errors_of(board(tmp_path, two_days, np.zeros(3, np.int64))).daily is None
