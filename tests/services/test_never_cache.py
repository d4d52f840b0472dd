"""A real XCache with our blacklist: what is on it is served, not cached; it is read at the start."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import xcache_server
from daemons import needed
from XRootD.client.file import File

from jobs.ground.settings.tree import Settings
from jobs.local_site.local.xrootd import Loopback
from jobs.loop.plan.plan import NeverCache, never_cache

pytestmark = [pytest.mark.service, pytest.mark.xrootd, pytest.mark.usefixtures("xrootd")]
AOD = "/store/mc/Run3/TT/AODSIM/v1/0/f.root"
USER = "/store/user/alice/deep/er/f.root"
ODD = "/store/test/[1] odd.root"
KEPT = ("/store/mc/Run3/TT/MINIAODSIM/v1/0/f.root", "/store/user/bob/f.root", "/store/test/1 odd.root")


@pytest.fixture
def site(xrootd: str) -> Iterator[Loopback]:
    for running, _ in needed("a real XCache", xcache_server.running()):
        yield running


def written(site: Loopback, out: Path, rules: str) -> NeverCache:
    conf = site.folder / "site.toml"
    conf.write_text(
        f'[plan]\nrules = [{rules}]\n[caches.xc]\nname = "xc"\nkind = "xcache"\n'
        f'url = "{site.cache_url}"\ncapacity = "1GB"\n'
    )
    return never_cache(Settings.load(conf, env={}), cache="xc", out=out)


def cached(site: Loopback, *names: str) -> set[str]:
    """Which of `names` are in the cache after each was read whole through it, rightly."""
    for name in names:
        content = name.encode() * 1000
        site.add_file(name, content)
        file = File()
        assert file.open(f"{site.cache_url}/{name}", timeout=90)[0].ok
        assert file.read(0, len(content), timeout=90)[1] == content
        status, _ = file.read(len(content) - 1, 2, timeout=90)
        # A read past the cache fails if it asks for more than there is, on 5.5.3 as on 6.2.1.
        assert status.ok or "bad message" in status.message or "Invalid response" in status.message
        file.close()
    time.sleep(0.5)
    return {name for name in names if (site.namespace / f"{name[1:]}.cinfo").exists()}


def test_what_is_blacklisted_is_served_and_not_cached(site: Loopback) -> None:
    out = site.folder / "never.txt"
    told = written(
        site,
        out,
        '{ action = "never", tiers = ["AODSIM"] }, { action = "never", users = ["alice"] }, '
        '{ action = "never", names = ["/store/test/[1]*"] }',
    )
    assert told.rules == 3 and "restart" in told.takes_effect
    names = (AOD, USER, ODD, *KEPT)
    with (site.folder / "cache.cfg").open("a") as config:
        config.write(f"{told.configure}\n")
    # Not before the server has started again.
    assert cached(site, "/store/mc/Run3/TT/AODSIM/v1/0/before.root")
    site.restart_cache()
    assert cached(site, *names) == set(KEPT)
    written(site, out, '{ action = "never", users = ["bob"] }')
    late = [name.replace(".root", "2.root") for name in names]
    assert cached(site, *late) == {name.replace(".root", "2.root") for name in KEPT}
    site.restart_cache()
    again = [name.replace(".root", "3.root") for name in names]
    assert set(again) - cached(site, *again) == {"/store/user/bob/f3.root"}
