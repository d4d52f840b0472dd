"""Which decision times are predicted and acted on, and which caches tasks are mapped over."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from folder_site import folder_site

from features.common.errors import NotDueError
from features.common.times import parse_as_of, parse_day
from features.results import PROMOTIONS, TRAININGS, WORTH
from features.schema import RECEIPTS
from jobs.cli.main import NOT_DUE, main
from jobs.ground.settings.tree import Settings
from jobs.ground.store.commits import MomentKey
from jobs.ground.store.tables import Tables
from jobs.operator.operate import due
from jobs.operator.operate.due import CacheFilter, listed

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
    monkeypatch.setenv("CACHECAST_CONF", str(folder_site(tmp_path, cache="x")))
    tables = str(tmp_path / "tables")

    def code(*words: str) -> object:
        monkeypatch.setattr("sys.argv", ["cachecast", *words, "--tables", tables])
        with pytest.raises(SystemExit) as end:
            main()
        return end.value.code

    assert code("due", "--as-of", "2026-03-02") == NOT_DUE
    assert "no champion yet" in capsys.readouterr().err
    (left,) = metrics.glob("cachecast-default-due*.prom")
    assert 'cachecast_job_failed{cache="",command="due",region="default"} 0.0' in left.read_text()
    # What another source delivers does not end the alert of one that failed.
    for source in ("rucio_traces", "wmarchive"):
        assert code("pull", "--source", source, "--input", str(tmp_path / "none")) == 1
        (left,) = metrics.glob(f"cachecast-default-pull-{source}*.prom")
        assert f'command="pull {source}",region="default"}} 1.0' in left.read_text()
    settings = site(tmp_path / "tables")
    featured(settings, T0)
    featured(settings, T0 + HOUR_S)
    for words in (["push", "run", "--cache", "x"], ["place"]):
        assert code(*words, "--as-of", "2026-03-02", "--if-current") == NOT_DUE
    trained(settings, T0)
    promoted(settings, T0)
    capsys.readouterr()
    assert not code("due", "--as-of", "2026-03-02T01:00:00Z", "--json")
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == {"due": "2026-03-02T01:00:00Z"}


AT, DAY = "2026-03-01T04:00:00Z", "2026-03-01"
GSTREAM = '{ xcache_gstream = "/gstream/" }'


def caches(folder: Path, pull: str = GSTREAM) -> Settings:
    """Two XCaches, the first with an RSE, and a folder that stands in for a cache."""
    (folder / "caches").mkdir()
    xcache = 'kind = "xcache"\nurl = "root://x:1"\ncapacity = "1GB"\n'
    for name, more in (("xc1", 'rse = "XC1"\n'), ("xc2", "")):
        (folder / "caches" / f"{name}.toml").write_text(f'name = "{name}"\n{xcache}{more}')
    (folder / "caches" / "folder.toml").write_text(
        'name = "folder"\nkind = "directory"\nurl = "/c"\norigin = "/o"\ncapacity = "1GB"\n'
    )
    env = {"CACHECAST_AIRFLOW__PULL": pull}
    loaded = Settings.load(folder, tables=str(folder / "tables"), env=env)
    tables = Tables(loaded.tables.root)
    for cache in ("xc1", "folder"):
        tables.replace_rows(RECEIPTS, [], (DAY, AT, cache))
    return loaded


def names(settings: Settings, filters: CacheFilter) -> Sequence[str]:
    return [cache.name for cache in listed(settings, filters)]


def test_all_caches_those_with_an_rse_and_those_pushed_to(tmp_path: Path) -> None:
    settings = caches(tmp_path)
    assert names(settings, CacheFilter()) == ["folder", "xc1", "xc2"]
    assert [(cache.name, cache.rse) for cache in listed(settings, CacheFilter(with_rse=True))] == [
        ("xc1", "XC1")
    ]
    assert names(settings, CacheFilter(pushed_at_s=parse_as_of(AT))) == ["folder", "xc1"]
    assert names(settings, CacheFilter(pushed_at_s=parse_as_of(AT), with_rse=True)) == ["xc1"]
    assert not names(settings, CacheFilter(pushed_at_s=parse_as_of("2026-03-01T05:00:00Z")))


def test_a_day_wants_a_verdict_of_each_xcache_pushed_to_once(tmp_path: Path) -> None:
    settings = caches(tmp_path)
    unjudged = CacheFilter(unjudged_s=parse_day(DAY))
    assert names(settings, unjudged) == ["xc1"]
    assert not names(settings, CacheFilter(unjudged_s=parse_day("2026-03-02")))
    more = CacheFilter(unjudged_s=parse_day("2026-02-27"), unjudged_to_s=parse_day("2026-03-02"))
    Tables(settings.tables.root).replace_rows(RECEIPTS, [], ("2026-02-28", "2026-02-28T04:00:00Z", "xc2"))
    assert [(cache.name, cache.day) for cache in listed(settings, more)] == [
        ("xc2", "2026-02-28"),
        ("xc1", DAY),
    ]
    Tables(settings.tables.root).replace_rows(WORTH, [], (DAY, "xc1"))
    assert not names(settings, unjudged)


@pytest.mark.parametrize("pull", ["{}", '{ rucio_traces = "/traces/" }'])
def test_without_records_of_the_caches_own_no_day_is_judged(tmp_path: Path, pull: str) -> None:
    assert not names(caches(tmp_path, pull), CacheFilter(unjudged_s=parse_day(DAY)))
