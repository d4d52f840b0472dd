"""`cachecast init`: what it writes is valid, the doctor finds it green, and nothing is overwritten."""

import dataclasses
import shlex
import tempfile
from pathlib import Path
from typing import Any

import pytest

from features.common.errors import CachecastError
from jobs.ground.settings.tree import Settings
from jobs.operator.operate import doctor
from jobs.operator.operate.new_site import run
from jobs.operator.operate.site_facts import NewSite

NOW_S = 1772323200  # 2026-03-01


def test_a_directory_cache_is_green_at_once(tmp_path: Path) -> None:
    (tmp_path / "origin").mkdir()
    (tmp_path / "traces.jsonl").touch()
    paths = {"cache": "cache", "origin": "origin", "records": "traces*"}
    below: dict[str, Any] = {name: f"{tmp_path}/{path}" for name, path in paths.items()}
    site = NewSite(name="edge.1", capacity="10GB", **below)
    new = run(site, out=tmp_path / "site.toml", force=False, now_s=NOW_S)
    settings = Settings.load(Path(new.settings), env={"CACHECAST_SERVE__PORT": "9"})
    cache = settings.cache("edge.1")
    assert (cache.kind, cache.capacity, cache.origin) == ("directory", 10**10, tmp_path / "origin")
    assert settings.tables.root == new.tables == str(tmp_path / "tables")
    assert settings.airflow.pull == {"rucio_traces": f"{tmp_path}/traces*"}
    assert not [check for check in doctor.run(settings) if check.state == "bad"]
    command = f"cachecast pull --source rucio_traces --input '{tmp_path}/traces*' --day 2026-03-01"
    assert new.next[-1] == command


def test_paths_are_written_without_dots_and_links_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here" / "below").mkdir(parents=True)
    (tmp_path / "2026-03").mkdir()
    (tmp_path / "latest").symlink_to(tmp_path / "2026-03")
    (tmp_path / "2026-03" / "traces-1").touch()
    monkeypatch.chdir(tmp_path / "here" / "below")
    site = NewSite(
        cache="../cache", capacity="1GB", origin="../../latest", records="../../latest/traces*", tables="../t"
    )
    new = run(site, out=Path("../site/../site.toml"), force=False, now_s=NOW_S)
    text = Path(new.settings).read_text()
    assert new.settings == f"{tmp_path}/here/site.toml" and ".." not in text
    assert f'"{tmp_path}/here/cache"' in text and f'"{tmp_path}/latest/traces*"' in text
    assert new.tables == f"{tmp_path}/here/t"


def test_an_xcache_with_rucio_and_tables_elsewhere(tmp_path: Path) -> None:
    site = NewSite(cache="root://xc1.example.org:1094", capacity="50TB", tables="hdfs://nn/tables")
    site = dataclasses.replace(site, rucio="https://rucio.example.org", rucio_account="cachecast")
    files: dict[str, Any] = {
        "namespace": "/xcache/ns",
        "gstream": "/var/captures",
        "source": "xcache_gstream",
    }
    site = dataclasses.replace(site, **files)
    new = run(site, out=tmp_path / "site.toml", force=False, now_s=NOW_S)
    settings = Settings.load(Path(new.settings), env={})
    cache = settings.cache("xc1")
    assert (cache.kind, cache.namespace) == ("xcache", Path("/xcache/ns"))
    assert cache.gstream == Path("/var/captures")
    assert settings.sources.demand == {"*": "xcache_gstream"}
    assert (settings.rucio.url, settings.rucio.account) == ("https://rucio.example.org", "cachecast")
    assert settings.tables.root == "hdfs://nn/tables"
    own, generated, demand = new.next[-3:]
    (name, _, value) = shlex.split(demand, comments=True)[1].partition("=")
    generated_only = Settings.load(Path(new.settings), env={name: value})
    assert generated_only.sources.demand == {"*": "rucio_traces"}  # else no generated read counts
    assert "--input PATH" in own
    assert f"--tables {tmp_path}/generated/tables" in generated  # never into the site's own


@pytest.mark.parametrize(
    ("site", "words"),
    [
        (NewSite(cache="root://xc1"), "give --capacity"),
        (NewSite(capacity="5TB"), "give --cache, for example root://"),
        (NewSite(cache="xc1:1094", capacity="5TB"), "'xc1:1094' is no root:// address"),
        (NewSite(cache="root://xc1", capacity="much"), "--capacity: .* for example --capacity 50TB"),
        (NewSite(cache="http://xc1", capacity="1TB"), "for example --cache root://"),
        (NewSite(cache="root:/xc1", capacity="1TB"), "for example --cache root://xc1"),
        (NewSite(cache="root://xc1:port", capacity="1TB"), "for example --cache root://xc1"),
        (NewSite(cache="root://xc1", name='x"]', capacity="1TB"), "--name: .* --name xc1"),
        (NewSite(cache="cache", capacity="1TB", origin="/nowhere"), "--origin"),
        (NewSite(source="rumours"), "rucio_traces"),
        (NewSite(source="rucio_files"), "no source of accesses"),
        (NewSite(records="/nowhere/traces*"), "nothing is at /nowhere"),
        (NewSite(records="/data/reads.CSV.gz"), "CSV, which rucio_traces does not read; .*report --trace"),
        (NewSite(rucio="rucio.example.org"), "--rucio: must start with http.* --rucio https"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_answer_that_cannot_be_is_refused_and_nothing_is_written(
    tmp_path: Path, site: NewSite, words: str
) -> None:
    with pytest.raises(CachecastError, match=words) as error:
        run(site, out=tmp_path / "site.toml", force=False, now_s=NOW_S)
    assert str(Path(tempfile.gettempdir(), "tmp")) not in str(error.value)
    assert not list(tmp_path.iterdir())


def test_a_file_that_is_there_is_kept_without_force(tmp_path: Path) -> None:
    site = tmp_path / "site.toml"
    site.write_text("mine")
    with pytest.raises(CachecastError, match="--force"):
        run(NewSite(), out=site, force=False, now_s=NOW_S)
    assert site.read_text() == "mine"
    run(NewSite(), out=site, force=True, now_s=NOW_S)
    assert Settings.load(site, env={}).tables.root == str(tmp_path / "tables")


def test_a_new_site_knows_watermarks_and_a_steward(tmp_path: Path) -> None:
    site = NewSite(cache="root://x:1094", capacity="1TB", watermarks="0.8,0.9", steward=True)
    written = run(site, out=tmp_path / "site.toml", force=False, now_s=0)
    cache = Settings.load(tmp_path / "site.toml").caches["x"]
    assert (cache.watermarks, cache.steward) == ((0.8, 0.9), True)
    assert any(line.startswith("cachecast steward --cache x") for line in written.next)
