"""A prefill of a real XCache: its own records say that what was asked for is there, whole."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path

import pytest
import xcache_server
from cachecast_main import asked
from daemons import needed

from features.schema import FILES, RECEIPTS
from jobs.ground.store.tables import Tables
from jobs.local_site.local.xrootd import Loopback
from prefetch.xcache.client import XCacheTarget

pytestmark = [pytest.mark.service, pytest.mark.xrootd, pytest.mark.usefixtures("xrootd")]
DATASET, SIZE = "cms:/A/Run3-v1/AOD", 300_000


@pytest.fixture
def site(xrootd: str) -> Iterator[Loopback]:
    for running, _ in needed("a real XCache", xcache_server.running()):
        yield running


def test_a_prefilled_dataset_is_in_the_cache(site: Loopback, tmp_path: Path) -> None:
    names = [f"/store/mc/Run3/A/AOD/v1/0/f{i}.root" for i in range(6)]
    for name in names:
        site.add_file(name, b"x" * SIZE)
    tables = Tables(str(tmp_path / "tables"))
    row = {
        "scope": "cms",
        "dataset": DATASET,
        "size_bytes": SIZE,
        "known_at": dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
    }
    tables.replace_rows(FILES, [row | {"did": f"cms:{name}", "name": name} for name in names], ())
    conf = tmp_path / "site.toml"
    conf.write_text(
        f'[plan]\ncontrol_share = 0.0\n[push]\njournal = "{tmp_path / "journal.db"}"\n'
        '[caches.xc]\nname = "xc"\n'
        f'kind = "xcache"\nurl = "{site.cache_url}"\nnamespace = "{site.namespace}"\ncapacity = "1GB"\n'
    )
    words = ["prefill", "--cache", "xc", "--dataset", DATASET, "--jobs", "4", "--conf", str(conf)]
    told = asked(*words, "--tables", tables.root)
    assert (told["prefetch"], told["pushed"]["pushed"], told["left_out"]) == (6, 6, {})
    held = {
        file.name for file in XCacheTarget("xc", site.cache_url, site.namespace).inventory() if file.complete
    }
    assert held == set(names)
    receipts = tables.read_arrow(RECEIPTS).to_pylist()
    assert {row["confirmed_by"] for row in receipts} == {"cinfo"}
    assert sum(row["bytes"] for row in receipts) == 6 * SIZE
