"""The table trainings: what is kept of trainings that end at the same time, or bear an earlier one's name."""

from pathlib import Path
from typing import Any

import pytest

from features.results import TRAININGS
from jobs.ground.store.tables import Tables
from jobs.loop.trainings import TrainedVersion, keep_training, trained_versions


def test_two_trainings_of_one_time_that_end_at_once_are_both_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables, stage = Tables(str(tmp_path)), Tables.stage

    def keep(version: int, *, until_s: int = 0, digest: str) -> None:
        keep_training(
            tables, region="emea", until_s=until_s, version=f"cachecast-emea/{version}", digest=digest
        )

    with monkeypatch.context() as patch:

        def late(*args: Any, **options: Any) -> Any:
            patch.undo()
            keep(2, digest="b")
            return stage(*args, **options)

        patch.setattr(Tables, "stage", late)
        keep(1, digest="a")
    first, second = "cachecast-emea/1", "cachecast-emea/2"
    known = {first: TrainedVersion("a", 0), second: TrainedVersion("b", 0)}
    assert trained_versions(tables, region="emea") == known
    keep(1, until_s=86400, digest="c")
    assert trained_versions(tables, region="emea") == known | {first: TrainedVersion("c", 86400)}
    assert tables.head(TRAININGS).number == 3, "the earlier one goes with the commit that brings the new one"
