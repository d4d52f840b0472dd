"""A real XCache beside our programs: what is on our blacklist is not cached; a tracer's reads are pulled."""

import datetime as dt
import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from daemons import needed, open_folder
from waiting import eventually
from XRootD.client.file import File

from features.schema import ACCESSES
from jobs.ground.settings.tree import Settings
from jobs.ground.store.tables import Tables
from jobs.local_site.local.xrootd import Loopback, loopback
from jobs.loop.ingest import pull
from jobs.loop.ingest.scan import scan
from jobs.loop.plan.plan import NeverCache, never_cache
from jobs.loop.traces import from_tables
from prefetch.xcache.client import XCacheTarget
from prefetch.xcache.session import RemoteFile

pytestmark = [pytest.mark.service, pytest.mark.xrootd, pytest.mark.usefixtures("xrootd")]
AOD = "/store/mc/Run3/TT/AODSIM/v1/0/f.root"
USER = "/store/user/alice/deep/er/f.root"
ODD = "/store/test/[1] odd.root"
KEPT = ("/store/mc/Run3/TT/MINIAODSIM/v1/0/f.root", "/store/user/bob/f.root", "/store/test/1 odd.root")


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


def test_what_is_blacklisted_is_served_and_not_cached(running: tuple[Loopback, Path]) -> None:
    site, _ = running
    out = site.folder / "never.txt"
    advice = written(
        site,
        out,
        '{ action = "never", tiers = ["AODSIM"] }, { action = "never", users = ["alice"] }, '
        '{ action = "never", names = ["/store/test/[1]*"] }',
    )
    assert advice.rules == 3 and "restart" in advice.takes_effect
    names = (AOD, USER, ODD, *KEPT)
    with (site.folder / "cache.cfg").open("a") as config:
        config.write(f"{advice.configure}\n")
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


SIZE = 300_000


@contextmanager
def traced() -> Iterator[tuple[Loopback, Path]]:
    """A cache whose opens and closes a program of the server writes down."""
    with open_folder() as base:
        base.chmod(0o777)  # the server's program writes there
        lines_file = base / "told"
        tee = shutil.which("tee")
        with loopback(base / "lb", more=f"ofs.notify openr closer | {tee} -a {lines_file}\n") as site:
            yield site, lines_file


@pytest.fixture
def tracing(xrootd: str) -> Iterator[tuple[Loopback, Path]]:
    yield from needed("a real XCache", traced())


def traced_line(line: str) -> str:
    """What the tracer makes of a line of the server."""
    tid, event, path = line.split(" ", 2)
    trace = {"tid": tid, "event": event, "path": path, "is_write": event == "openw"}
    return json.dumps(trace | {"ts_access": time.time(), "storage": "T2_XX_Edge"}) + "\n"


def test_reads_are_pulled_and_sizes_come_from_the_cache(
    tracing: tuple[Loopback, Path], tmp_path: Path
) -> None:
    servers, lines_file = tracing
    names = [f"/store/mc/traced{number}.root" for number in range(4)]
    for name in names:
        servers.add_file(name, bytes(SIZE))
    target = XCacheTarget("cache", servers.cache_url, servers.namespace)
    target.prefetch(names[3], timeout_s=20)
    target.touch(names[3], timeout_s=20)
    for name in names[:3]:
        with RemoteFile(f"{servers.cache_url}/{name}", time.monotonic() + 60) as file:
            assert file.read_all() == SIZE

    def events() -> list[str]:
        return lines_file.read_text().splitlines() if lines_file.exists() else []

    assert eventually(lambda: len(events()) == 10), events()
    lines = tmp_path / "trace.jsonl"
    lines.write_text("".join(map(traced_line, events())))
    conf = tmp_path / "site.toml"
    conf.write_text('[sources]\ndemand = { "*" = "cms_tracer" }\n')
    settings = Settings.load(conf, tables=str(tmp_path / "tables"), env={})
    today_s = int(dt.datetime.now(dt.UTC).timestamp())
    summary = pull.run(settings, source="cms_tracer", path=str(lines), day_s=today_s)
    assert (summary.n_new, summary.n_unsized) == (3, 3)
    assert summary.n_rejected == {"not a read: another event": 5, "our own prefetch or touch": 2}
    tables = Tables(settings.tables.root)
    scan(tables, namespace=servers.namespace, cache="cache", as_of_s=today_s)
    trace = from_tables(
        tables, since_s=today_s - 86400, until_s=today_s, demand_sources=settings.sources.demand
    ).trace
    assert (trace.item.size, set(trace.size_bytes.tolist())) == (3, {SIZE})
    assert {
        row["name"] for row in tables.read_arrow(ACCESSES).to_pylist() if row["source"] == "cms_tracer"
    } == {*names[:3]}
