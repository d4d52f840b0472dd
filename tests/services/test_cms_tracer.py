"""A pull of what a tracer writes of a real XCache's `ofs.notify`: jobs' reads, and none of our own."""

from __future__ import annotations

import datetime as dt
import json
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from daemons import NoServer, needed
from steward_site import eventually

from features.common.errors import ServiceError
from features.schema import ACCESSES
from jobs.ground.settings.tree import Settings
from jobs.ground.store.tables import Tables
from jobs.local_site.local.xrootd import Loopback, loopback
from jobs.loop.ingest import pull
from jobs.loop.ingest.scan import scan
from jobs.loop.traces import from_tables
from prefetch.xcache.client import XCacheTarget
from prefetch.xcache.session import RemoteFile

pytestmark = [pytest.mark.service, pytest.mark.xrootd, pytest.mark.usefixtures("xrootd")]
SIZE = 300_000


@contextmanager
def traced() -> Iterator[tuple[Loopback, Path]]:
    """A cache whose opens and closes a program of the server writes down."""
    with tempfile.TemporaryDirectory(prefix="xc-") as folder:
        base = Path(folder)
        base.chmod(0o777)  # the server's program writes there
        told = base / "told"
        tee = shutil.which("tee")
        try:
            with loopback(base / "lb", more=f"ofs.notify openr closer | {tee} -a {told}\n") as site:
                yield site, told
        except ServiceError as error:
            raise NoServer(str(error)) from None


@pytest.fixture
def site(xrootd: str) -> Iterator[tuple[Loopback, Path]]:
    yield from needed("a real XCache", traced())


def traced_line(told: str) -> str:
    """What the tracer makes of a line of the server."""
    tid, event, path = told.split(" ", 2)
    seen = {"tid": tid, "event": event, "path": path, "is_write": event == "openw"}
    return json.dumps(seen | {"ts_access": time.time(), "storage": "T2_XX_Edge"}) + "\n"


def test_reads_are_pulled_and_sizes_come_from_the_cache(site: tuple[Loopback, Path], tmp_path: Path) -> None:
    servers, told = site
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
        return told.read_text().splitlines() if told.exists() else []

    assert eventually(lambda: len(events()) == 10, 60), events()
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
