from __future__ import annotations

from pathlib import Path

import pytest
from job_records import PIC, plant

from features.common.errors import StaleInputError
from jobs.efficiency import efficiency
from jobs.efficiency.reads import Chosen
from jobs.settings.tree import Settings
from jobs.store.tables import Tables

DAYS = Chosen("2026-03-01", "2026-03-14")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings.load(tables=str(tmp_path / "tables"), env={})


def test_pics_planted_efficiencies_are_recovered(settings: Settings, tmp_path: Path) -> None:
    plant(Tables(settings.tables.root))
    found = efficiency.run(settings, DAYS, out=tmp_path / "page.html")
    assert (found.jobs, found.found_share, found.shared_reads) == (4000, 1.0, 0)
    places = {group.place: group for group in found.by_place}
    assert set(places) == {one.place for one in PIC}
    for one in PIC:
        group = places[one.place]
        assert group.jobs == one.jobs
        assert group.tasks == 50
        assert group.cpu_efficiency_share == pytest.approx(one.efficiency, abs=0.02)
        assert group.cpu_efficiency_lower_share is not None and group.cpu_efficiency_upper_share is not None
        assert group.cpu_efficiency_lower_share < one.efficiency < group.cpu_efficiency_upper_share
        assert 0.003 < group.cpu_efficiency_upper_share - group.cpu_efficiency_lower_share < 0.04
        assert group.failed_share == pytest.approx(one.failed, abs=0.02)
    assert "a CPU efficiency of 9" in (tmp_path / "page.html").read_text()


def test_without_job_records_there_is_an_error_that_says_what_to_pull(settings: Settings) -> None:
    with pytest.raises(StaleInputError, match="pull --source htcondor_history"):
        efficiency.run(settings, DAYS)
