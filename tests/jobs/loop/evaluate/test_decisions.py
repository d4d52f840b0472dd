"""The decisions by which models serve, from the table alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from operator_site import row

from features.common.errors import StaleInputError
from features.results import PROMOTIONS
from jobs.ground.store.tables import Tables
from jobs.loop.evaluate.decisions import last_decision, serving


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
