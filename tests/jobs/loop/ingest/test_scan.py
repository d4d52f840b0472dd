"""A namespace of real and made cinfo files, scanned into contents and accesses."""

import shutil
from pathlib import Path

import pytest
from cachecast_main import asked
from cinfo_writer import put
from pulls import pulled

from features.common.errors import ConfigError
from features.common.times import as_of_label
from features.schema import ACCESSES, CONTENTS, REJECTS
from jobs.ground.store.tables import Tables
from jobs.loop.ingest import scan
from prefetch.xcache.cinfo import AccessRecord, CInfo

BLOCK = 131072
START = 1772323200
AS_OF = START + 86400


def cinfo(*starts: int, end: int = 100, merged: int = 0, blocks: bytes = b"\x0f") -> CInfo:
    accesses = [AccessRecord(at, end and at + end, 1, 100, merged, 0, 10**6, 500, 7) for at in starts]
    return CInfo(BLOCK, 4 * BLOCK, START, 0, len(starts), 0, blocks, tuple(accesses))


def test_a_scan_tells_what_is_held_and_what_was_read(tables: Tables, tmp_path: Path, data: Path) -> None:
    namespace = tmp_path / "ns"
    put(namespace, "/store/user/half.root", cinfo(START, START + 500, blocks=b"\x05"))
    put(namespace, "/store/user/open.root", cinfo(START, end=0))
    put(namespace, "/store/user/merged.root", cinfo(START, merged=4))
    put(namespace, "/store/user/real.root", (data / "v4-6.2.1.cinfo").read_bytes())
    put(namespace, "/store/user/broken.root", b"\x04broken")
    (namespace / "away").symlink_to(tmp_path)

    summary = scan.scan(tables, namespace=namespace, cache="xc1", as_of_s=AS_OF)
    contents = {row["name"]: row for row in tables.read_arrow(CONTENTS).to_pylist()}
    assert (summary.files, summary.complete, summary.open) == (4, 3, 1)
    assert summary.bytes_on_disk == sum(row["bytes_on_disk"] for row in contents.values())
    assert {row["cache"] for row in contents.values()} == {"xc1"}
    half = contents["/store/user/half.root"]
    assert (half["did"], half["size_bytes"], half["bytes_on_disk"]) == (
        "cms:/store/user/half.root",
        4 * BLOCK,
        2 * BLOCK,
    )
    assert (half["complete"], half["open"], half["last_detach"].timestamp()) == (False, False, START + 600)
    held_open = contents["/store/user/open.root"]
    assert (held_open["open"], held_open["last_detach"]) == (True, None)
    assert contents["/store/user/real.root"]["size_bytes"] == 8388638

    accesses = tables.read_arrow(ACCESSES).to_pylist()
    assert len(accesses) == summary.new_accesses == 4
    assert {row["name"]: row["n_reads"] for row in accesses}["/store/user/merged.root"] == 5
    assert dict(summary.n_rejected) == {
        "damaged cinfo": 1,
        "a link, not followed": 1,
        "our own prefetch or touch": 2,  # in the real one, made by a touch test
        "still open: it counts when it has ended": 1,
    }
    samples = {row["reason"]: row["sample"] for row in tables.read_arrow(REJECTS).to_pylist()}
    assert samples["damaged cinfo"].startswith("/store/user/broken.root: cinfo")

    before = {table.name: tables.head(table) for table in (ACCESSES, CONTENTS, REJECTS)}
    again = scan.scan(tables, namespace=namespace, cache="xc1", as_of_s=AS_OF)
    assert (again.new_accesses, again.known_accesses) == (0, 4)
    assert {table.name: tables.head(table) for table in (ACCESSES, CONTENTS, REJECTS)} == before
    # On another host the namespace of another cache may be the same folder.
    scan.scan(tables, namespace=namespace, cache="xc2", as_of_s=AS_OF)
    assert tables.read_arrow(REJECTS).num_rows == 2 * len(samples)


def test_a_later_scan_adds_what_is_new_and_keeps_the_earlier_inventory(
    tables: Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    namespace = tmp_path / "xc1"
    put(namespace, "/store/user/a.root", cinfo(START, START + 500))
    put(namespace, "/store/user/gone.root", cinfo(START))
    scan.scan(tables, namespace=namespace, cache="xc1", as_of_s=AS_OF)
    # The cache merges the two records it has, and notes a third.
    merged = AccessRecord(START, START + 600, 2, 200, 1, 0, 2 * 10**6, 1000, 14)
    third = AccessRecord(START + 9000, START + 9100, 1, 100, 0, 0, 10**6, 0, 0)
    info = CInfo(BLOCK, 4 * BLOCK, START, 0, 3, 0, b"\x0f", (merged, third))
    put(namespace, "/store/user/a.root", info)
    (namespace / "store/user/gone.root.cinfo").unlink()
    answer = scan.scan(tables, namespace=namespace, cache="xc1", as_of_s=AS_OF + 3600)
    assert (answer.files, answer.new_accesses, answer.known_accesses) == (1, 1, 1)
    reads = tables.read_arrow(ACCESSES, columns=["n_reads"])["n_reads"].to_pylist()
    assert reads == [1, 1, 1, 1]
    assert [part.n_rows for part in tables.head(CONTENTS).partitions.values()] == [2, 1]
    # A pull of a folder that is called as the cache tells the same accesses.
    monkeypatch.chdir(namespace)
    for path in (str(namespace), "."):
        summary = pulled(tables, "xcache_cinfo", path)
        assert (summary.n_new, summary.n_duplicates) == (0, 2)

    shutil.rmtree(namespace / "store")
    answer = scan.scan(tables, namespace=namespace, cache="xc1", as_of_s=AS_OF + 7200)
    assert (answer.files, answer.bytes_on_disk, answer.new_accesses) == (0, 0, 0)


def test_a_scan_takes_the_namespace_and_the_spaces_of_its_cache_for_those_not_given(
    tables: Tables, tmp_path: Path
) -> None:
    namespace, space, conf = tmp_path / "ns", tmp_path / "disk1", tmp_path / "conf" / "caches"
    put(space, "/00/held", cinfo(START))
    put(tmp_path / "elsewhere", "/stray", cinfo(START))
    (namespace / "store").mkdir(parents=True)
    (namespace / "store/held.root.cinfo").symlink_to(space / "00/held.cinfo")
    (namespace / "store/stray.root.cinfo").symlink_to(tmp_path / "elsewhere/stray.cinfo")
    conf.mkdir(parents=True)
    cache = 'kind = "xcache"\nurl = "root://127.0.0.1:9"\ncapacity = "1TB"\n'
    own = f'namespace = "{namespace}"\nspaces = ["{space}"]\n'
    (conf / "xc1.toml").write_text(f'name = "xc1"\n{cache}{own}')
    (conf / "xc2.toml").write_text(f'name = "xc2"\n{cache}')
    common = ["--conf", str(conf.parent), "--tables", tables.root, "--as-of", as_of_label(AS_OF)]

    for given in ([], ["--namespace", str(namespace)]):
        summary = asked("scan", "--cache", "xc1", *given, *common)
        assert (summary["files"], summary["n_rejected"]) == (1, {"a link, not followed": 1})
    assert tables.read_arrow(CONTENTS)["name"].to_pylist() == ["/store/held.root"]

    with pytest.raises(ConfigError, match=r"caches\.xc2\.namespace"):
        asked("scan", "--cache", "xc2", *common)


def test_reads_within_one_second_stay_apart_over_scans(tables: Tables, tmp_path: Path) -> None:
    namespace = tmp_path / "xc1"

    def scanned(*starts: int) -> tuple[int, int]:
        put(namespace, "/store/user/a.root", cinfo(*starts))
        summary = scan.scan(tables, namespace=namespace, cache="xc1", as_of_s=AS_OF + len(starts))
        return summary.new_accesses, summary.known_accesses

    assert scanned(START, START, START) == (3, 0)
    assert scanned(START, START, START) == (0, 3)
    assert scanned(START, START, START, START, START + 1) == (2, 3)
    assert len({row["event_id"] for row in tables.read_arrow(ACCESSES).to_pylist()}) == 5


def test_the_earliest_scan_says_what_was_fetched(tmp_path: Path) -> None:
    """Later more is on disk, for other accesses; the order of the scans makes no difference."""
    first = AccessRecord(START, START + 10, 1, 10, 0, 0, BLOCK - 100, 100, 0)
    second = AccessRecord(START + 50, START + 60, 1, 10, 0, 0, 3 * BLOCK, 50, 0)
    states = {
        "early": CInfo(BLOCK, 4 * BLOCK, START, 0, 1, 0, b"\x03", (first,)),
        "late": CInfo(BLOCK, 4 * BLOCK, START, 0, 2, 0, b"\x0f", (first, second)),
    }
    missed_bytes = []
    for order in (("early", "late"), ("late", "early")):
        tables = Tables(str(tmp_path / order[0] / "tables"))
        for name in order:
            path = tmp_path / order[0] / name / "xc1"
            put(path, "/store/user/a.root", states[name])
            pulled(tables, "xcache_cinfo", path)
        rows = tables.read_arrow(ACCESSES).sort_by("accessed_at").to_pylist()
        missed_bytes.append([row["bytes_missed"] for row in rows])
    assert missed_bytes[0] == missed_bytes[1]
    assert missed_bytes[0][0] == 2 * BLOCK
