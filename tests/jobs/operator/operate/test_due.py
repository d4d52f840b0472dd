"""Which decision times are predicted and acted on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from features.common.errors import NotDueError
from features.common.times import parse_as_of
from features.results import PROMOTIONS, TRAININGS
from jobs.cli.main import NOT_DUE, main
from jobs.ground.settings.tree import Settings
from jobs.ground.store.commits import MomentKey
from jobs.ground.store.tables import Tables
from jobs.operator.operate import due

T0 = parse_as_of("2026-03-02T00:00:00Z")
HOUR_S = 3600


def site(folder: Path, *, serve: str = '["champion"]') -> Settings:
    return Settings.load(tables=str(folder), env={"CACHECAST_MLFLOW__SERVE": serve})


def trained(settings: Settings, at_s: int) -> None:
    row = {"model_version": "cachecast-default/1", "model_digest": "ab"}
    Tables(settings.tables.root).replace_rows(TRAININGS, [row], MomentKey.at(at_s, "default"))


def promoted(settings: Settings, at_s: int) -> None:
    row = {
        "action": "promote", "model_version": "cachecast-default/1", "champion": "cachecast-default/1",
        "champion_digest": "ab", "reasons": [], "comparisons": "[]",
    }  # fmt: skip
    Tables(settings.tables.root).replace_rows(PROMOTIONS, [row], MomentKey.at(at_s, "default"))


def featured(settings: Settings, at_s: int) -> None:
    table = settings.features.spec.features_table
    Tables(settings.tables.root).replace_rows(table, [], MomentKey.at(at_s, "default"))


def test_nothing_is_due_before_the_first_champion_unless_a_candidate_may_serve(tmp_path: Path) -> None:
    settings = site(tmp_path)
    with pytest.raises(NotDueError, match="has no champion yet"):
        due.run(settings, as_of_s=T0, now_s=T0)
    trained(settings, T0)
    with pytest.raises(NotDueError, match="has no champion yet"):
        due.run(settings, as_of_s=T0, now_s=T0)
    due.run(site(tmp_path, serve='["champion", "candidate"]'), as_of_s=T0, now_s=T0)
    promoted(settings, T0)
    due.run(settings, as_of_s=T0, now_s=T0)
    with pytest.raises(NotDueError, match="before the training"):
        due.run(settings, as_of_s=T0 - HOUR_S, now_s=T0)


def test_of_several_decision_times_that_wait_only_the_newest_is_due(tmp_path: Path) -> None:
    settings = site(tmp_path)
    for hour in (0, 1, 2, 9):
        featured(settings, T0 + hour * HOUR_S)
    now_s = T0 + 3 * HOUR_S  # features of 09:00 were made ahead of their time
    for hour in (0, 1):
        with pytest.raises(NotDueError, match=r"overtaken.*02:00:00Z"):
            due.check_current(settings, as_of_s=T0 + hour * HOUR_S, now_s=now_s)
    due.check_current(settings, as_of_s=T0 + 2 * HOUR_S, now_s=now_s)
    trained(settings, T0)
    promoted(settings, T0)
    due.run(settings, as_of_s=T0, now_s=None)


def test_a_decision_time_that_has_not_come_does_not_act(tmp_path: Path) -> None:
    settings = site(tmp_path)
    due.check_current(settings, as_of_s=T0, now_s=T0 - HOUR_S)  # clocks of two machines differ
    with pytest.raises(NotDueError, match=r"has not come: this machine's clock says"):
        due.check_current(settings, as_of_s=T0, now_s=T0 - HOUR_S - 1)


def test_the_commands_exit_with_a_code_of_their_own_which_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    metrics = tmp_path / "metrics"
    monkeypatch.setenv("CACHECAST_METRICS__FOLDER", str(metrics))
    tables = str(tmp_path / "tables")
    monkeypatch.setattr("sys.argv", ["cachecast", "due", "--as-of", "2026-03-02", "--tables", tables])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == NOT_DUE
    assert "no champion yet" in capsys.readouterr().err
    (left,) = metrics.glob("cachecast-due*.prom")
    assert 'cachecast_job_failed{cache="",command="due"} 0.0' in left.read_text()
    settings = site(tmp_path / "tables")
    featured(settings, T0)
    featured(settings, T0 + HOUR_S)
    words = ["push", "run", "--cache", "x", "--as-of", "2026-03-02", "--if-current", "--tables", tables]
    monkeypatch.setattr("sys.argv", ["cachecast", *words])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == NOT_DUE
    trained(settings, T0)
    promoted(settings, T0)
    monkeypatch.setattr(
        "sys.argv", ["cachecast", "due", "--as-of", "2026-03-02T01:00:00Z", "--json", "--tables", tables]
    )
    capsys.readouterr()
    with pytest.raises(SystemExit) as end:
        main()
    assert not end.value.code
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == {"due": "2026-03-02T01:00:00Z"}
