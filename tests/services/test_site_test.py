"""`cachecast site-test` against a real cache and its origin: what it leaves behind, and what it refuses."""

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from commands import COMMAND
from waiting import eventually

from features.common.errors import InputError, PushRejected
from jobs.ground.settings.tree import Settings
from jobs.local_site.local.xrootd import Loopback
from jobs.studies.site_test import run as job
from jobs.studies.site_test import site_page
from jobs.studies.site_test.measure import Measuring
from jobs.studies.site_test.schedule import Kind, Limits, Span
from prefetch.xcache.client import XCacheTarget

pytestmark = [pytest.mark.service, pytest.mark.xrootd, pytest.mark.usefixtures("xrootd")]
SIZE = 2 * 2**20
LIMITS = Limits(n_bytes=10**8, seconds=60, repeat=1, clients=(1,))


def new_files(xcache: Loopback, what: str, n_files: int = 2) -> list[str]:
    names = [f"/store/mc/{what}{number}.root" for number in range(n_files)]
    for name in names:
        xcache.add_file(name, os.urandom(SIZE))
    return names


def settings(xcache: Loopback, folder: Path) -> Path:
    conf = folder / "site.toml"
    conf.write_text(
        f'[tables]\nroot = "{folder}/tables"\n[caches.xc]\nname = "xc"\nkind = "xcache"\ncapacity = "1GB"\n'
        f'url = "{xcache.cache_url}"\nnamespace = "{xcache.namespace}"\n'
    )
    return conf


def origin(xcache: Loopback) -> str:
    return f"root://127.0.0.1:{xcache.origin.port}"


def measured(xcache: Loopback, folder: Path, names: list[str], limits: Limits = LIMITS) -> job.SiteTest:
    request = job.Request("xc", [origin(xcache)], names, limits)
    loaded = Settings.load(settings(xcache, folder), env={})
    return job.run(loaded, request, say=lambda _: None, on_progress=lambda *_: None)


def holds(xcache: Loopback, *names: str) -> list[bool]:
    target = XCacheTarget("xc", xcache.cache_url, xcache.namespace)
    return [target.server_holds(name) for name in names]


def test_all_is_measured_and_only_what_it_fetched_is_evicted(
    xcache: Loopback, tmp_path: Path, browser: Any
) -> None:
    own, *names = new_files(xcache, "all", 3)
    XCacheTarget("xc", xcache.cache_url, xcache.namespace).prefetch(own, timeout_s=20)
    result = measured(xcache, tmp_path, [own, *names])
    assert holds(xcache, own, *names) == [True, False, False]
    assert set(result.files) == set(names) and own in " ".join(result.notes)
    assert {(rate.place, rate.reading) for rate in result.rates if rate.rate_bytes_per_s} == {
        (place, reading) for place in ("127.0.0.1", "cold", "warm") for reading in ("whole", "35 %", "5 %")
    }
    assert (result.failures, result.read_bytes) == ((), 2 * SIZE)
    new, page = tmp_path / "new.toml", tmp_path / "page.html"
    site_page.write(result, settings_to=new, page_to=page)
    assert [browser.faults(page, width=width) for width in (390, 1400)] == [[], []]
    assert Settings.load(new, env={}).regions["127.0.0.1"].rtt_ms > 0
    with pytest.raises(InputError, match="holds it already"):
        measured(xcache, tmp_path, [own])


def test_bytes_that_differ_end_it_and_nothing_stays(
    xcache: Loopback, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names, read = new_files(xcache, "lie"), Measuring._read

    def changed_first(self: Measuring, kind: Kind, spans: list[Span], timeout_s: float) -> object:
        if kind.share == 1 and kind.place == "warm":
            for name in names:
                (xcache.namespace / name[1:]).write_bytes(os.urandom(SIZE))
        return read(self, kind, spans, timeout_s)

    monkeypatch.setattr(Measuring, "_read", changed_first)
    with pytest.raises(PushRejected, match="warm gives other bytes of /store/mc/lie"):
        measured(xcache, tmp_path, names)
    assert holds(xcache, *names) == [False, False]


def test_ctrl_c_leaves_nothing_in_the_cache(xcache: Loopback, tmp_path: Path) -> None:
    names = new_files(xcache, "ctrl", 1)
    words = ["site-test", "--conf", str(settings(xcache, tmp_path)), "--cache", "xc", "--file", names[0]]
    with subprocess.Popen([*COMMAND, *words], stderr=subprocess.PIPE, text=True) as command:
        file = xcache.namespace / names[0][1:]
        assert eventually(lambda: file.exists() or command.poll() is not None, every_s=0.02) and file.exists()
        command.send_signal(signal.SIGINT)
        _, complaints = command.communicate(timeout=180)
    assert (command.returncode, complaints.splitlines()[-1]) == (130, "interrupted")
    assert holds(xcache, *names) == [False]
