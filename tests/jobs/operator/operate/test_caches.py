"""Which caches tasks are mapped over."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from features.common.times import parse_as_of, parse_day
from features.results import WORTH
from features.schema import RECEIPTS
from jobs.ground.settings.tree import Settings
from jobs.ground.store.tables import Tables
from jobs.operator.operate.due import CacheFilter, listed

AT, DAY = "2026-03-01T04:00:00Z", "2026-03-01"
GSTREAM = '{ xcache_gstream = "/gstream/" }'


def site(folder: Path, pull: str = GSTREAM) -> Settings:
    """Two XCaches, the first with an RSE, and a folder that stands in for a cache."""
    (folder / "caches").mkdir()
    xcache = 'kind = "xcache"\nurl = "root://x:1"\ncapacity = "1GB"\n'
    for name, more in (("xc1", 'rse = "XC1"\n'), ("xc2", "")):
        (folder / "caches" / f"{name}.toml").write_text(f'name = "{name}"\n{xcache}{more}')
    (folder / "caches" / "folder.toml").write_text(
        'name = "folder"\nkind = "directory"\nurl = "/c"\norigin = "/o"\ncapacity = "1GB"\n'
    )
    env = {"CACHECAST_AIRFLOW__PULL": pull}
    made = Settings.load(folder, tables=str(folder / "tables"), env=env)
    tables = Tables(made.tables.root)
    for cache in ("xc1", "folder"):
        tables.replace_rows(RECEIPTS, [], (DAY, AT, cache))
    return made


def names(settings: Settings, wanted: CacheFilter) -> Sequence[str]:
    return [cache.name for cache in listed(settings, wanted)]


def test_all_caches_those_with_an_rse_and_those_pushed_to(tmp_path: Path) -> None:
    settings = site(tmp_path)
    assert names(settings, CacheFilter()) == ["folder", "xc1", "xc2"]
    assert [(cache.name, cache.rse) for cache in listed(settings, CacheFilter(with_rse=True))] == [
        ("xc1", "XC1")
    ]
    assert names(settings, CacheFilter(pushed_at_s=parse_as_of(AT))) == ["folder", "xc1"]
    assert names(settings, CacheFilter(pushed_at_s=parse_as_of(AT), with_rse=True)) == ["xc1"]
    assert not names(settings, CacheFilter(pushed_at_s=parse_as_of("2026-03-01T05:00:00Z")))


def test_a_day_wants_a_verdict_of_each_xcache_pushed_to_once(tmp_path: Path) -> None:
    settings = site(tmp_path)
    wanted = CacheFilter(unjudged_s=parse_day(DAY))
    assert names(settings, wanted) == ["xc1"]
    assert not names(settings, CacheFilter(unjudged_s=parse_day("2026-03-02")))
    more = CacheFilter(unjudged_s=parse_day("2026-02-27"), unjudged_to_s=parse_day("2026-03-02"))
    Tables(settings.tables.root).replace_rows(RECEIPTS, [], ("2026-02-28", "2026-02-28T04:00:00Z", "xc2"))
    assert [(one.name, one.day) for one in listed(settings, more)] == [("xc2", "2026-02-28"), ("xc1", DAY)]
    Tables(settings.tables.root).replace_rows(WORTH, [], (DAY, "xc1"))
    assert not names(settings, wanted)


@pytest.mark.parametrize("pull", ["{}", '{ rucio_traces = "/traces/" }'])
def test_without_records_of_the_caches_own_no_day_is_judged(tmp_path: Path, pull: str) -> None:
    assert not names(site(tmp_path, pull), CacheFilter(unjudged_s=parse_day(DAY)))
