"""The decisions by which models serve, from the table alone, and the rows that may decide."""

import math
from pathlib import Path
from typing import Any

import pytest
from operator_site import row

from features.common.errors import ServiceError, StaleInputError
from features.common.times import DAY_S, as_of_label, day_label
from features.results import EVALUATIONS, LRU, PROMOTIONS, S3FIFO, STEWARD
from jobs.ground.store.tables import Tables
from jobs.loop.evaluate.decisions import decisions, last_decision, newest_evaluation, served_versions, serving
from jobs.loop.trainings import promoted_models


def decided(tables: Tables, day: str, **values: Any) -> None:
    decision = {"action": "refuse", "may_evict": False, "comparisons": "[]"}
    decision |= {"champion": None, "steward": None}
    key = (day, f"{day}T00:00:00Z", "emea")
    tables.replace_rows(PROMOTIONS, [row(PROMOTIONS, **(decision | values))], key)


def test_what_serves_is_told_by_the_decision_that_made_it_so(tables: Tables) -> None:
    assert serving(tables, region="emea") is None
    with pytest.raises(StaleInputError):
        last_decision(tables, region="emea")
    first = {"model_version": "m/1", "trained_until": "2026-02-01T00:00:00Z"}
    decided(tables, "2026-03-01", action="promote", champion="m/1", **first)
    second = {"model_version": "m/2", "trained_until": "2026-02-02T00:00:00Z"}
    decided(tables, "2026-03-02", may_evict=True, champion="m/1", steward="m/2", **second)
    decided(tables, "2026-03-03", model_version="m/3", champion="m/1", steward="m/2", trained_until=None)
    serves = serving(tables, region="emea")
    assert serves is not None and serves.last.model_version == "m/3"
    assert serves.champion_by.trained_until == "2026-02-01T00:00:00Z"
    assert serves.champion_by.decided_at == "2026-03-01T00:00:00Z"
    assert serves.steward_by.decided_at == "2026-03-02T00:00:00Z"
    decided(tables, "2026-03-04", action="rollback", model_version="m/1", may_evict=None)
    serves = serving(tables, region="emea")
    assert serves is not None and serves.champion_by is None and serves.steward_by is None
    assert serving(tables, region="apac") is None


@pytest.mark.parametrize(
    "crafted",
    [
        {"comparisons": "{"},
        {"comparisons": "7"},
        {"comparisons": "[" * 100_000},
        {"comparisons": '[{"against": "lru"}]'},
        {"champion": "../../x/1"},
        {"champion": ""},
        {"champion": "m\x1b[31m/1"},
        {"steward": "x" * 1_000_000 + "/1"},
        {"evaluated_as_of": "soon"},
        {"action": "rollback"},
        {"action": "crown"},
    ],
    ids=str,
)
def test_a_row_that_no_decision_wrote_is_one_line_and_lets_nothing_act(
    tables: Tables, crafted: dict[str, Any]
) -> None:
    decided(tables, "2026-03-01", **({"model_version": "m/1", "champion": "m/1"} | crafted))
    with pytest.raises(ServiceError, match="the table promotions holds what no `promote` wrote") as error:
        served_versions(decisions(tables, region="emea"))
    assert len(str(error.value)) < 300 and str(error.value).isprintable()
    if {"champion", "steward"} & set(crafted):
        with pytest.raises(ServiceError, match="no `promote` wrote"):
            promoted_models(tables, region="emea")


def test_two_decisions_at_one_time_let_nothing_act(tables: Tables) -> None:
    two = [
        row(PROMOTIONS, action="promote", comparisons="[]", model_version=name, champion=name, steward=None)
        for name in ("m/1", "m/2")
    ]
    tables.replace_rows(PROMOTIONS, two, ("2026-03-01", "2026-03-01T00:00:00Z", "emea"))
    with pytest.raises(ServiceError, match="2 decisions at one time"):
        promoted_models(tables, region="emea")


END_S = 20_000 * DAY_S
OURS = "cachecast-emea/2"


def evaluated(n_days: int = 28) -> list[dict[str, Any]]:
    """Rows of the days before `END_S`."""
    same: dict[str, Any] = {"model_version": OURS, "capacity_fraction": 0.1, "wan_bytes": 100}
    same |= {"core_hours": None}
    return [
        row(EVALUATIONS, policy=policy, on_day=day_label(END_S - ago * DAY_S), requests=ago, **same)
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


@pytest.mark.parametrize("version", ["cachecast-apac/2", "nonsense"])
def test_rows_of_another_region_decide_nothing(tmp_path: Path, version: str) -> None:
    recorded(tmp_path, [row | {"model_version": version} for row in evaluated()])
    check_refused(tmp_path, "not of one version of the region")


@pytest.mark.parametrize("missing", [0, 10])
def test_days_with_a_gap_decide_nothing(tmp_path: Path, missing: int) -> None:
    """Neither a day within, nor the last ones: those of another end."""
    days = {day_label(END_S - (1 + missing) * DAY_S)}
    recorded(tmp_path, [row for row in evaluated() if row["on_day"] not in days])
    check_refused(tmp_path, "not the days before its end")


def check_refused(folder: Path, words: str) -> None:
    with pytest.raises(StaleInputError, match=f"decides nothing: .*{words}.*; evaluate again$"):
        newest_evaluation(Tables(str(folder)), "emea")
