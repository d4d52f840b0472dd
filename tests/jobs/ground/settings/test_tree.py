"""Settings: defaults, overrides in their order, and errors that name file, key and remedy."""

from pathlib import Path

import pytest

from features.common.errors import ConfigError
from jobs.ground.settings.sections import scheduling
from jobs.ground.settings.tree import Settings

HOUR = 3600
CACHE = 'kind = "directory"\nurl = "/c"\norigin = "/o"\ncapacity = "1TB"\n'
A, B = (f'[caches.{name}]\nname = "{name}"\n' for name in "ab")
XCACHE = 'kind = "xcache"\nurl = "root://x:1094"\ncapacity = "1TB"\nsite = "E"\n'


def load(conf: Path | None = None, tables: str | None = None, **env: str) -> Settings:
    return Settings.load(conf, tables=tables, env=env)


def test_the_shipped_defaults_are_complete_and_on_the_grid() -> None:
    settings = load()
    spec = settings.features.spec
    assert spec.cycle_s == HOUR
    assert settings.plan.horizon in spec.horizons_s
    assert not settings.caches


def test_the_environment_wins_over_the_site_and_the_site_over_the_defaults(tmp_path: Path) -> None:
    site = tmp_path / "site.toml"
    site.write_text('[plan]\nhorizon = "12h"\nread_once_below = 0.5\n')
    settings = load(site, CACHECAST_PLAN__READ_ONCE_BELOW="0.25")
    assert (settings.plan.horizon, settings.plan.read_once_below, settings.plan.hysteresis) == (
        12 * HOUR,
        0.25,
        load().plan.hysteresis,
    )


def test_a_site_is_laid_over_its_base(tmp_path: Path) -> None:
    base, site = tmp_path / "base.toml", tmp_path / "site.toml"
    base.write_text('[plan]\nread_once_below = 0.1\n[region]\nname = "emea"\n')
    site.write_text("[plan]\nread_once_below = 0.2\n")
    settings = Settings.load(site, base=base, env={})
    assert (settings.plan.read_once_below, settings.region.name) == (0.2, "emea")


def test_a_folder_holds_one_file_per_cache(tmp_path: Path) -> None:
    (tmp_path / "caches").mkdir()
    (tmp_path / "caches" / "xc1.toml").write_text(
        'name = "xc1"\nkind = "xcache"\nurl = "root://xc1:1094"\ncapacity = "50TB"\npurge_interval = "1m"\n'
    )
    cache = load(tmp_path).cache("xc1")
    assert (cache.capacity, cache.purge_interval, cache.watermarks) == (50 * 10**12, 60, (0.90, 0.95))


@pytest.mark.parametrize(
    ("text", "key", "words"),
    [
        ('[plan]\nhorizon = "3h"\n', "plan.horizon", "3h is none of features.horizons (1h, 6h, 12h, 1d,"),
        ('[features]\nhorizons = ["1h", "6h"]\n', "plan.horizon", "2d is none of features.horizons (1h, 6h)"),
        ('[plan]\nhorizon = "soon"\n', "plan.horizon", "not a duration"),
        (
            "[plan]\nread_once_belw = 0.5\n",
            "unknown key plan.read_once_belw",
            "did you mean read_once_below?",
        ),
        ('[[plan]]\nhorizon = "2d"\n', "plan", "must be a table; write it once, as [plan]"),
        ('[[caches]]\nname = "x"\n', "caches", "as [caches] or [caches.NAME]"),
        ('"[[" = 1\n', "unknown key [[", "write one of"),
        ("[queue]\nxyz = 1\n", "unknown key queue.xyz", "write one of sites, stale, timeout, token"),
        ("[serve.sites.A]\nslotz = 1\n", "unknown key serve.sites.A.slotz", "did you mean slots?"),
        ("[plan]\nread_once_below = 2\n", "plan.read_once_below", "2 should be less than or equal to 1"),
        (
            '[plan]\nobjective = "byte"\n',
            "plan.objective",
            "'byte' should be 'bytes', 'requests' or 'cpu_hours'",
        ),
        ('[training]\nlearners = ["forest"]\n', "training.learners", "only their models serve"),
        ("[rucio]\npassword = 1234\n", "rucio.password", "valid string; see conf/base.toml"),
        (
            '[caches.x]\nname = "x"\nkind = "xcache"\n',
            "caches.x.url, caches.x.capacity are missing",
            ".sample",
        ),
        ('[rucio]\nurl = "rucio.example.org"\n', "rucio.url", "http:// or https://"),
        ('[rucio]\nin_use = "25h"\n', "rucio.in_use", "whole days"),
        ('[airflow]\nurl = "https://u@h"\n', "airflow.url", "without a user"),
        ('[airflow.pull]\nrumours = "/x"\n', "airflow.pull.rumours", "rucio_traces"),
        ('[sources]\ndemand = { "*" = "rumours" }\n', "sources.demand", "rucio_traces"),
        ('[plan]\ntest_files = ["/*/"]\n', "plan.test_files", "means every name"),
        ("[replay]\nwatermarks = [0.9, 0.8]\n", "replay.watermarks", "low <= high"),
        ('[features]\nhorizons = ["100m", "30d"]\n', "features", "multiples of cycle"),
        ("[plan\n", "site.toml", "not TOML"),
        ('[caches.x]\nname = "x"\nkind = "xcache"\nurl = "http://x"\ncapacity = 1\n', "caches.x", "root://"),
        ('[caches.x]\nname = "x"\nkind = "xcache"\nurl = "root://x:y"\ncapacity = 1\n', "caches.x", "Port"),
        (
            '[caches.x]\nname = "x"\nkind = "xcache"\nurl = "root://x"\ncapacity = 9\n'
            "watermarks = [0.9, 0.8]\n",
            "caches.x",
            "low <= high",
        ),
        (f'{A}{XCACHE}redirector = "http://r"\n', "caches.a", "redirector"),
        (f'{A}{XCACHE}redirector = "root://x:1094"\n', "caches.a", "without the redirector"),
        (f'{A}{XCACHE}redirector = "root://r:1094/path"\n', "caches.a", "redirector"),
        (
            f'{A}{XCACHE}redirector = "root://r:1"\n{B}{XCACHE}redirector = "root://s:1"\n',
            "caches",
            "caches of one site have one redirector: a has root://r:1",
        ),
        (f'{A}{CACHE}hosts = ["H"]\n{B}{CACHE}hosts = ["H"]\n', "caches", "H is a host of b too"),
        (
            f'{A}{CACHE}hosts = ["[2001:db8::8]"]\n{B}{CACHE}hosts = ["2001:db8:0::8"]\n',
            "caches",
            "[2001:db8::8] is a host of b too",
        ),
        (f'{A}{CACHE}rse = "XC"\n{B}{CACHE}rse = "XC"\n', "caches.b", "XC is the RSE of a too"),
        ('[benefit]\nmedium = "tape"\n', "medium", "must be one of"),
        ('[study]\nsmall_file = "tiny"\n', "study.small_file", "tiny"),
        (f'[caches.a]\nname = "x"\n{CACHE}{B}{CACHE}', "caches.a", "must be 'a'"),
        ('[tables]\nroot = "/x\\u0000y"', "", "NUL"),
        ("[" + ".".join(["a"] * 20_000) + "]", "", "nested too deep"),
        ("[plan]\nprefetch_share = inf", "plan.prefetch_share", ""),
        ("[benefit]\ncache_rtt_ms = inf", "benefit.cache_rtt_ms", ""),
        ("#" * (1 << 20) + "#", "", "larger than"),
        ("a = " + "9" * 5000, "", "not TOML"),
        (f'[caches.a]\nname = "a"\n{CACHE}'.replace("1TB", "9" * 400), "capacity", ""),
        ('[push]\ntimeout = "9999999999d"', "push.timeout", ""),
    ],
    ids=lambda text: text[:40],
)
def test_an_error_names_file_key_and_remedy(tmp_path: Path, text: str, key: str, words: str) -> None:
    site = tmp_path / "site.toml"
    site.write_text(text)
    with pytest.raises(ConfigError) as error:
        load(site)
    assert str(site) in str(error.value)
    assert key in str(error.value)
    assert words in str(error.value)


def test_a_cache_in_two_files_of_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "caches").mkdir()
    (tmp_path / "base.toml").write_text(f'[caches.a]\nname = "a"\n{CACHE}')
    (tmp_path / "caches" / "a.toml").write_text(f'name = "a"\n{CACHE}')
    with pytest.raises(ConfigError, match=r"caches/a\.toml.*base\.toml"):
        load(tmp_path)


def test_a_folder_whose_settings_have_another_name_than_base_toml_is_refused(tmp_path: Path) -> None:
    (tmp_path / "site.toml").write_text('[region]\nname = "emea"\n')
    with pytest.raises(ConfigError, match=r"has no base\.toml, and site\.toml is not read"):
        load(tmp_path)


def test_an_error_names_the_layer_that_has_the_key(tmp_path: Path) -> None:
    (tmp_path / "caches").mkdir()
    (tmp_path / "base.toml").write_text("[plan]\nread_once_below = 0.5\n")
    (tmp_path / "caches" / "xc1.toml").write_text('name = "xc1"\nkind = "xcache"\n')
    with pytest.raises(ConfigError, match=r"xc1\.toml: caches\.xc1\.url, caches\.xc1\.capacity are missing"):
        load(tmp_path)
    with pytest.raises(ConfigError, match=r"^CACHECAST_PLAN__HORZON: unknown key plan\.horzon"):
        load(CACHECAST_PLAN__HORZON="1d")
    with pytest.raises(ConfigError, match=r"^--tables: tables\.root"):
        load(tables="")


def test_the_keys_of_the_dags_are_checked_alike() -> None:
    with pytest.raises(
        ConfigError, match=r"^CACHECAST_AIRFLOW__RETRYS: unknown key airflow\.retrys; .* retries"
    ):
        scheduling(env={"CACHECAST_AIRFLOW__RETRYS": "3"})


@pytest.mark.parametrize("conf", [".", "site.toml"], ids=["folder", "file"])
def test_secrets_are_in_a_private_file_beside_the_settings(tmp_path: Path, conf: str) -> None:
    for name in ("base.toml", "site.toml"):
        (tmp_path / name).write_text('[region]\nname = "emea"\n')
    secrets = tmp_path / "secrets.toml"
    secrets.touch(mode=0o600)
    secrets.write_text('[users]\nsalt = "hunter2-salt"\n')
    settings = load(tmp_path / conf)
    assert (settings.users.salt.get_secret_value(), settings.region.name) == ("hunter2-salt", "emea")
    assert load(tmp_path / conf, CACHECAST_USERS__SALT="x").users.salt.get_secret_value() == "x"
    secrets.chmod(0o640)
    with pytest.raises(ConfigError, match=r"secrets.toml.*chmod 0600"):
        load(tmp_path / conf)


def test_a_mistake_in_the_secrets_names_their_file_and_not_their_value(tmp_path: Path) -> None:
    secrets = tmp_path / "secrets.toml"
    secrets.touch(mode=0o600)
    secrets.write_text('[users]\nsallt = "hunter2-salt"\n')
    with pytest.raises(ConfigError, match=r"secrets.toml.*sallt") as error:
        load(tmp_path)
    assert "hunter2" not in str(error.value)
