"""The decisions by which models serve, from the table alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from operator_site import row

from features.common.errors import ServiceError, StaleInputError
from features.results import PROMOTIONS
from jobs.ground.store.tables import Tables
from jobs.loop.evaluate.decisions import decisions, last_decision, served_versions, serving
from jobs.loop.trainings import promoted_models


def decided(tables: Tables, day: str, **values: Any) -> None:
    told = {"action": "refuse", "may_evict": False, "comparisons": "[]", "champion": None, "steward": None}
    key = (day, f"{day}T00:00:00Z", "emea")
    tables.replace_rows(PROMOTIONS, [row(PROMOTIONS, **(told | values))], key)


def test_what_serves_is_told_by_the_decision_that_made_it_so(tmp_path: Path) -> None:
    tables = Tables(str(tmp_path))
    assert serving(tables, region="emea") is None
    with pytest.raises(StaleInputError):
        last_decision(tables, region="emea")
    first = {"model_version": "m/1", "trained_until": "2026-02-01T00:00:00Z"}
    decided(tables, "2026-03-01", action="promote", champion="m/1", **first)
    second = {"model_version": "m/2", "trained_until": "2026-02-02T00:00:00Z"}
    decided(tables, "2026-03-02", may_evict=True, champion="m/1", steward="m/2", **second)
    decided(tables, "2026-03-03", model_version="m/3", champion="m/1", steward="m/2", trained_until=None)
    found = serving(tables, region="emea")
    assert found is not None and found.last.model_version == "m/3"
    assert found.champion_by.trained_until == "2026-02-01T00:00:00Z"
    assert found.champion_by.decided_at == "2026-03-01T00:00:00Z"
    assert found.steward_by.decided_at == "2026-03-02T00:00:00Z"
    decided(tables, "2026-03-04", action="rollback", model_version="m/1", may_evict=None)
    found = serving(tables, region="emea")
    assert found is not None and found.champion_by is None and found.steward_by is None
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
    tmp_path: Path, crafted: dict[str, Any]
) -> None:
    tables = Tables(str(tmp_path))
    decided(tables, "2026-03-01", **({"model_version": "m/1", "champion": "m/1"} | crafted))
    with pytest.raises(ServiceError, match="the table promotions holds what no `promote` wrote") as told:
        served_versions(decisions(tables, region="emea"))
    assert len(str(told.value)) < 300 and str(told.value).isprintable()
    if {"champion", "steward"} & set(crafted):
        with pytest.raises(ServiceError, match="no `promote` wrote"):
            promoted_models(tables, region="emea")


def test_two_decisions_at_one_time_let_nothing_act(tmp_path: Path) -> None:
    tables = Tables(str(tmp_path))
    two = [
        row(PROMOTIONS, action="promote", comparisons="[]", model_version=one, champion=one, steward=None)
        for one in ("m/1", "m/2")
    ]
    tables.replace_rows(PROMOTIONS, two, ("2026-03-01", "2026-03-01T00:00:00Z", "emea"))
    with pytest.raises(ServiceError, match="2 decisions at one time"):
        promoted_models(tables, region="emea")
