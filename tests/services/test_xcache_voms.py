"""Logins by X.509 proxies at a real XCache that asks for a VO; each in a process of its own."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import voms_site
from daemons import needed
from voms_site import Authority

from jobs.local_site.local.xrootd import Loopback

pytestmark = [pytest.mark.service, pytest.mark.xrootd]
_SCRIPT = """
import sys
from pathlib import Path
from features.common.errors import CachecastError
from jobs.ground.caches.inventory import target
from jobs.ground.settings.tree import CacheSettings
url, namespace, proxy = sys.argv[1:]
cache = CacheSettings(name="x", kind="xcache", url=url, capacity=10**9, namespace=Path(namespace),
                      proxy=Path(proxy))
at = target(cache)
for do in (lambda: at.prefetch("/store/f", timeout_s=20), lambda: at.evict("/store/f", timeout_s=20)):
    try:
        print(f"done {do()}")
    except CachecastError as error:
        print(f"{type(error).__name__}: {error}")
sys.stdout.flush()
sys.exit(0)
"""


@pytest.fixture(scope="module")
def site() -> Iterator[tuple[Loopback, Authority]]:
    for running in needed("an XCache with xrootd-voms-plugins, and voms-clients", voms_site.running()):
        running[0].add_file("/store/f", b"x" * 300_000)
        yield running


def answers(site: tuple[Loopback, Authority], proxy: Path) -> list[str]:
    url = f"root://localhost:{site[0].cache.port}"
    words = [sys.executable, "-c", _SCRIPT, url, str(site[0].namespace), str(proxy)]
    env = {"PATH": "/usr/bin:/bin", "HOME": str(proxy.parent)} | site[1].env
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.strip().splitlines()


def test_a_member_of_the_vo_fetches_and_evicts(site: tuple[Loopback, Authority], tmp_path: Path) -> None:
    site[1].proxy(tmp_path / "proxy", is_member=True)
    assert answers(site, tmp_path / "proxy") == ["done 300000", "done None"]


def test_others_do_not(site: tuple[Loopback, Authority], tmp_path: Path) -> None:
    site[1].proxy(tmp_path / "proxy", is_member=False)
    lines = answers(site, tmp_path / "proxy")
    assert [line.startswith("PushRejected: ") and "not authorised" in line for line in lines] == [True, True]
    (tmp_path / "none").touch(mode=0o600)
    lines = answers(site, tmp_path / "none")
    assert all(line.startswith("TargetUnavailable: ") and "does not know us" in line for line in lines)
