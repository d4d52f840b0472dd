"""Beside real caches: what the tables say of hits and misses, against what was read and had to be fetched."""

import dataclasses
import datetime as dt
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from captures import read_capture
from daemons import needed, open_folder
from waiting import eventually
from XRootD import client

from features.schema import ACCESSES, JOB_RECORDS, arrow_schema
from jobs.ground.store.tables import Tables
from jobs.local_site.local.xrootd import Loopback, loopback
from jobs.loop.ingest import pull_input, scan
from jobs.loop.ingest.local_engine import LocalEngine
from jobs.operator.site_report.recorded import counts_of_day, recorded_section, sums_by
from jobs.studies.efficiency.reads import JobSelection, jobs_with_places
from prefetch.xcache import cinfo
from prefetch.xcache.client import XCacheTarget
from prefetch.xcache.receiver import collecting

pytestmark = [pytest.mark.long, pytest.mark.service, pytest.mark.xrootd, pytest.mark.usefixtures("xrootd")]
SIZE, MIB = 24_000_000, 2**20
NAMES = ("copied", "half", "together", "restarted", "evicted", "ours", "sparse", "within")
Row = dict[str, Any]


@dataclasses.dataclass
class Truth:
    """What the test did: bytes it read of each file, and bytes that came from the origin for it."""

    read: int = 0
    fetched: int = 0


class Site:
    """A cache whose blocks are of `block` bytes, and what it is known to have served."""

    def __init__(self, servers: Loopback, capture: Path, block: int) -> None:
        self.servers, self.capture, self.block = servers, capture, block
        self.truth = {name: Truth() for name in NAMES}
        self.n_closes = 0
        for name in NAMES:
            servers.add_file(self.lfn(name), bytes(SIZE))

    def lfn(self, name: str) -> str:
        return f"/store/{name}.root"

    def url(self, name: str) -> str:
        return f"{self.servers.cache_url}/{self.lfn(name)}"

    def opened(self, name: str) -> client.File:
        file = client.File()
        status, _ = file.open(self.url(name))
        assert status.ok, status.message
        return file

    def read(
        self, name: str, until: int = SIZE, *, fetched: int, at: int = 0, file: client.File | None = None
    ) -> None:
        """Read a part of a file, piece by piece; `fetched` of it are not in the cache yet."""
        held = file or self.opened(name)
        for first in range(at, until, 2**22):
            status, piece = held.read(first, min(2**22, until - first))
            assert status.ok and len(piece) == min(2**22, until - first)
        self._did(name, until - at, fetched)
        if file is None:
            self.close(held)

    def close(self, file: client.File) -> None:
        file.close()
        self.await_report()

    def copy(self, name: str, *, fetched: int) -> None:
        subprocess.run(["xrdcp", "-f", "-s", self.url(name), "/dev/null"], check=True, timeout=180)
        self._did(name, SIZE, fetched)
        self.await_report()

    def await_report(self) -> None:
        """Wait until the cache has reported one close more: else it counts as one with the next."""
        self.n_closes += 1
        assert eventually(lambda: len(read_capture(self.capture).records) >= self.n_closes)

    def blocks(self, n_bytes: int) -> int:
        """The bytes of the blocks that the first `n_bytes` of a file are in."""
        return min(SIZE, -(-n_bytes // self.block) * self.block)

    def info(self, name: str) -> cinfo.CInfo:
        return cinfo.read(self.servers.namespace / f"{self.lfn(name)[1:]}.cinfo")

    def _did(self, name: str, read: int, fetched: int) -> None:
        self.truth[name].read += read
        self.truth[name].fetched += fetched


@pytest.fixture(params=["128k", "1m"])
def site(request: pytest.FixtureRequest, xrootd: str) -> Iterator[Site]:
    yield from needed("a real XCache", running(request.param))


@contextmanager
def running(block: str, *, more: str = "") -> Iterator[Site]:
    n_bytes = {"128k": 2**17, "1m": MIB}[block]
    with open_folder() as folder, collecting(folder / "gstream.txt") as port:
        of_blocks = f"pfc.blocksize {block}\n{more}"
        with loopback(folder / "lb", gstream_port=port, more=of_blocks) as servers:
            yield Site(servers, folder / "gstream.txt", n_bytes)


def use(site: Site) -> None:
    """Read as jobs, users and pushes do, each file in its own way."""
    site.copy("copied", fetched=SIZE)
    site.copy("copied", fetched=0)
    half = SIZE // 2
    site.read("half", half, fetched=site.blocks(half))
    site.read("half", half, fetched=0)
    site.read("half", fetched=SIZE - site.blocks(half))
    both = [site.opened("together") for _ in range(2)]
    site.read("together", fetched=SIZE, file=both[0])
    site.read("together", fetched=0, file=both[1])
    both[0].close()
    site.close(both[1])
    third = SIZE // 3
    site.read("restarted", third, fetched=site.blocks(third))
    site.servers.restart_cache()
    site.read("restarted", fetched=SIZE - site.blocks(third))
    site.read("evicted", fetched=SIZE)
    target = XCacheTarget("xc", site.servers.cache_url, site.servers.namespace)
    target.evict(site.lfn("evicted"), timeout_s=10)
    assert eventually(lambda: not (site.servers.namespace / "store/evicted.root.cinfo").exists())
    site.read("evicted", fetched=SIZE)
    site.read("evicted", fetched=0)
    target.prefetch(site.lfn("ours"), timeout_s=30)
    site.await_report()
    site.read("ours", fetched=0)
    sparse = site.opened("sparse")
    for first in range(0, SIZE - 1000, 4 * MIB):
        site.read("sparse", first + 1000, at=first, fetched=site.block, file=sparse)
    site.close(sparse)
    site.read("within", third, fetched=site.blocks(third))
    for _ in range(3):  # within a second
        site.read("within", third, fetched=0)


def pulled(tmp_path: Path, site: Site) -> Tables:
    tables = Tables(str(tmp_path / "gstream"))
    today = dt.datetime.now(dt.UTC).date()
    pull_input.pull(LocalEngine(), tables, source="xcache_gstream", path=str(site.capture), day=today)
    return tables


def scanned(tmp_path: Path, site: Site, names: Sequence[str] = NAMES) -> Tables:
    tables = Tables(str(tmp_path / "cinfo"))
    assert eventually(lambda: not any(site.info(name).is_open for name in names))
    scan.scan(tables, namespace=site.servers.namespace, cache="xc", as_of_s=int(time.time()))
    return tables


def reads_by_name(tables: Tables) -> dict[str, list[Row]]:
    by_name: dict[str, list[Row]] = {name: [] for name in NAMES}
    order = [("closed_at", "ascending"), ("disk_accesses", "ascending")]
    for row in tables.read_arrow(ACCESSES).sort_by(order).to_pylist():
        by_name[Path(row["name"]).stem].append(row)
    return by_name


def of_a_job(tables: Tables) -> float:
    """The share from the cache's disk of what a job read that is known to have read all these files."""
    (first, *_), day = tables.head(ACCESSES).partitions, dt.datetime.now(dt.UTC)
    job = {
        **{"job": "a", "event_id": "a", "task": "t", "source": "s", "node": "wn1", "day": f"{day:%Y-%m-%d}"},
        **{"started_at": day - dt.timedelta(hours=1), "ended_at": day, "known_at": day, "failed": False},
        **{"cores": 1, "cpu_s": 1.0, "wall_s": 2.0, "files": [f"/store/{name}.root" for name in NAMES]},
    }
    schema = arrow_schema(JOB_RECORDS).append(pa.field("day", pa.string()))
    tables.replace_arrow(JOB_RECORDS, pa.Table.from_pylist([job], schema))
    with jobs_with_places(tables, JobSelection(first[0], f"{day:%Y-%m-%d}"), ()) as database:
        (ratio,) = database.sql("SELECT hit_bytes / (hit_bytes + miss_bytes) FROM jobs").fetchall()
    return float(ratio[0])


@pytest.mark.every_version
def test_what_was_fetched_is_within_two_percent_of_the_truth(site: Site, tmp_path: Path) -> None:
    use(site)
    lives = {"evicted": SIZE}  # cinfo knows nothing of an earlier life
    for tables, unknown in ((pulled(tmp_path, site), {}), (scanned(tmp_path, site), lives)):
        for name, rows in reads_by_name(tables).items():
            truth, lost = site.truth[name], unknown.get(name, 0)
            assert sum(row["bytes_missed"] for row in rows) == pytest.approx(
                truth.fetched - lost, rel=0.02
            ), name
            assert sum(row["read_bytes"] for row in rows) == pytest.approx(truth.read - lost, rel=0.02), name
        all_of_them = [truth for name, truth in site.truth.items() if name != "sparse"]
        read = sum(truth.read for truth in all_of_them) - sum(unknown.values())
        hit = read - sum(truth.fetched for truth in all_of_them) + sum(unknown.values())
        section = recorded_section(tables, ())
        assert section is not None
        (row,) = [row for row in section.rows if str(row["of"]).startswith("cache")]
        assert row["byte_hit_ratio"] == pytest.approx(hit / read, abs=0.02)
        assert of_a_job(tables) == pytest.approx(hit / read, abs=0.02)
        days = [counts_of_day(tables, day) for (day,) in tables.head(ACCESSES).partitions]
        (compared,) = sums_by(pa.concat_tables(days), "cache").to_pylist()
        assert compared["hit_bytes"] / compared["read_bytes"] == pytest.approx(hit / read, abs=0.02)
        reads = reads_by_name(tables)
        assert [row["bytes_hit"] > 0 for row in reads["half"]] == [False, True, True]
        assert [row["bytes_missed"] for row in reads["within"][1:]] == [0, 0, 0]
        assert len({row["event_id"] for row in reads["within"]}) == 4
        assert reads["together"][0]["bytes_hit"] == pytest.approx(SIZE, rel=0.02)


def test_later_scans_know_what_came_since(site: Site, tmp_path: Path) -> None:
    tables, half = Tables(str(tmp_path / "tables")), SIZE // 2
    site.read("half", half, fetched=site.blocks(half))

    def scan_now() -> scan.ScanSummary:
        return scan.scan(tables, namespace=site.servers.namespace, cache="xc", as_of_s=int(time.time()))

    assert eventually(lambda: not site.info("half").is_open)
    assert scan_now().new_accesses == 1
    held = site.opened("half")
    site.read("half", half + SIZE // 4, fetched=0, at=half, file=held)
    time.sleep(1)
    assert scan_now().new_accesses == 0
    site.close(held)
    site.read("half", fetched=0)
    assert eventually(lambda: not site.info("half").is_open)
    assert scan_now().new_accesses == 2
    assert scan_now().new_accesses == 0
    rows = reads_by_name(tables)["half"]
    assert [row["bytes_missed"] for row in rows] == pytest.approx(
        [site.blocks(half), SIZE // 4, SIZE // 4], abs=3 * site.block
    )


@pytest.fixture
def reads_ahead(xrootd: str) -> Iterator[Site]:
    yield from needed("a real XCache", running("1m", more="pfc.prefetch 10\n"))


def test_what_was_read_ahead_was_fetched_for_the_first(reads_ahead: Site, tmp_path: Path) -> None:
    site, name = reads_ahead, "copied"
    held = site.opened(name)
    site.read(name, SIZE // 4, fetched=SIZE, file=held)
    assert eventually(lambda: site.info(name).complete)
    site.close(held)
    site.read(name, fetched=0)
    for tables in (pulled(tmp_path, site), scanned(tmp_path, site, [name])):
        rows = reads_by_name(tables)[name]
        assert [row["bytes_missed"] for row in rows] == [SIZE, 0]
        assert [row["bytes_hit"] for row in rows] == [0, SIZE]
