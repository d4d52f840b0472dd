"""Logins by X.509 proxies at a real XCache that asks for a VO; each in a process of its own."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import cache_client
import pytest
import voms_site
from daemons import needed
from voms_site import Authority

from jobs.local_site.local.xrootd import Loopback

pytestmark = [pytest.mark.service, pytest.mark.xrootd]
_SCRIPT = """
    fetch("f")
    print(told(lambda: at.evict("/store/f", timeout_s=20)), flush=True)
    sys.exit(0)
"""


@pytest.fixture(scope="module")
def site() -> Iterator[tuple[Loopback, Authority]]:
    for running in needed("an XCache with xrootd-voms-plugins, and voms-clients", voms_site.running()):
        running[0].add_file("/store/f", b"x" * 300_000)
        yield running


def answers(site: tuple[Loopback, Authority], proxy: Path) -> list[str]:
    url = f"root://localhost:{site[0].cache.port}"
    words = cache_client.words(_SCRIPT, url=url, namespace=str(site[0].namespace), proxy=str(proxy))
    env = {"PATH": "/usr/bin:/bin", "HOME": str(proxy.parent)} | site[1].env
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=180, check=True)
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
