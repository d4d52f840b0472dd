"""An evaluation decides only with rows that `evaluate` writes."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from operator_site import row

from features.common.errors import StaleInputError
from features.common.times import DAY_S, as_of_label, day_label
from features.results import EVALUATIONS, LRU, S3FIFO, STEWARD
from jobs.ground.store.tables import Tables
from jobs.loop.evaluate.decisions import newest_evaluation

END_S = 20_000 * DAY_S
OURS = "cachecast-emea/2"


def evaluated(n_days: int = 28) -> list[dict[str, Any]]:
    """Rows of the days before `END_S`."""
    return [
        row(
            EVALUATIONS,
            model_version=OURS,
            policy=policy,
            capacity_fraction=0.1,
            on_day=day_label(END_S - ago * DAY_S),
            wan_bytes=100,
            requests=ago,
            core_hours=None,
        )
        for policy in (LRU, S3FIFO, STEWARD)
        for ago in range(n_days, 0, -1)
    ]


def recorded(folder: Path, rows: list[dict[str, Any]]) -> Tables:
    tables = Tables(str(folder))
    tables.replace_rows(EVALUATIONS, rows, (day_label(END_S), as_of_label(END_S), "emea"))
    return tables


@pytest.mark.parametrize("n_days", [1, 28])
def test_what_an_evaluation_writes_is_read_back(tmp_path: Path, n_days: int) -> None:
    as_of, rows = newest_evaluation(recorded(tmp_path, evaluated(n_days)), "emea")
    assert (as_of, len(rows)) == (as_of_label(END_S), 3 * n_days)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model_version": "cachecast-emea/1"}, "not of one version of the region"),
        ({"policy": LRU}, "two rows of one policy"),
        ({"capacity_fraction": math.inf}, "a capacity of inf"),
        ({"capacity_fraction": math.nan}, "a capacity of nan"),
        ({"capacity_fraction": -0.1}, "a capacity of -0.1"),
        ({"on_day": day_label(END_S)}, "not the days before its end"),
        ({"on_day": "yesterday"}, "not the days before its end"),
        ({"wan_bytes": -1}, "negative or not finite"),
        ({"core_hours": math.nan}, "negative or not finite"),
        ({"core_hours": math.inf}, "negative or not finite"),
        ({"requests": 7}, "replayed on different reads"),
    ],
)
def test_rows_that_no_evaluation_writes_decide_nothing(
    tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    rows = evaluated()
    rows[-1] |= changes
    recorded(tmp_path, rows)
    check_refused(tmp_path, words)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model_version": "cachecast-apac/2"}, "not of one version of the region"),
        ({"model_version": "nonsense"}, "not of one version of the region"),
    ],
)
def test_rows_of_another_region_decide_nothing(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    recorded(tmp_path, [one | changes for one in evaluated()])
    check_refused(tmp_path, words)


@pytest.mark.parametrize("missing", [0, 10])
def test_days_with_a_gap_decide_nothing(tmp_path: Path, missing: int) -> None:
    """Neither a day within, nor the last ones: those of another end."""
    days = {day_label(END_S - (1 + missing) * DAY_S)}
    recorded(tmp_path, [one for one in evaluated() if one["on_day"] not in days])
    check_refused(tmp_path, "not the days before its end")


def check_refused(folder: Path, words: str) -> None:
    with pytest.raises(StaleInputError, match=f"decides nothing: .*{words}.*; evaluate again$"):
        newest_evaluation(Tables(str(folder)), "emea")
