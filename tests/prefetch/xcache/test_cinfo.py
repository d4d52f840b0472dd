"""Records of files on disk; a namespace is read by a process of its own as it is read here."""

import multiprocessing
import os
import struct
from itertools import islice
from pathlib import Path

import pytest
from cinfo_writer import crc, dump, put
from hypothesis import given
from hypothesis import strategies as st

from features.common.errors import InputError, TargetUnavailable
from prefetch.xcache import cinfo, holdings
from prefetch.xcache.cinfo import AccessRecord, CInfo
from prefetch.xcache.client import XCacheTarget
from prefetch.xcache.holdings import held_below, held_by_processes

DATA = Path(__file__).parents[2] / "data"

# As `xrdpfc_print -j` shows them.
PRINTED = {
    "5.5.3": (1160000, 131072, 9, 1160000, True, 2, 1795220513, False),
    "6.2.1": (8388638, 131072, 65, 8388638, True, 3, 1795220521, False),
}
INT64 = st.integers(-(2**63), 2**63 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
ACCESS = st.builds(AccessRecord, INT64, INT64, INT32, INT32, INT32, INT32, INT64, INT64, INT64)


@st.composite
def infos(draw: st.DrawFn) -> CInfo:
    block = draw(st.integers(1, 4096))
    size = draw(st.integers(0, 100 * block))
    n_bytes = (max(1, -(-size // block)) - 1) // 8 + 1
    return CInfo(
        block,
        size,
        draw(INT64),
        draw(INT64),
        draw(st.integers(0, 2**64 - 1)),
        draw(st.integers(0, 2**32 - 1)),
        draw(st.binary(min_size=n_bytes, max_size=n_bytes)),
        tuple(draw(st.lists(ACCESS, max_size=20))),
    )


@pytest.mark.parametrize("version", ["5.5.3", "6.2.1"])
def test_samples_of_real_caches(version: str) -> None:
    path = DATA / f"v4-{version}.cinfo"
    info = cinfo.read(path)
    assert dump(info) == path.read_bytes()
    got = (info.size_bytes, info.block_size_bytes, info.n_blocks, info.bytes_on_disk, info.complete)
    assert (*got, info.n_accesses, info.last_detach_s, info.is_open) == PRINTED[version]
    assert info.accesses[-1].bytes_hit == {"5.5.3": 2320000, "6.2.1": 8388638}[version]


@given(infos())
def test_what_is_written_is_read_back(info: CInfo) -> None:
    assert cinfo.parse(dump(info)) == info
    assert cinfo.parse(dump(info) + b"stale tail") == info


@given(infos())
def test_bytes_on_disk_equal_a_slow_count(info: CInfo) -> None:
    on_disk = 0
    for block in range(info.n_blocks):
        if info.blocks[block // 8] >> (block % 8) & 1:
            on_disk += (
                min(info.size_bytes, (block + 1) * info.block_size_bytes) - block * info.block_size_bytes
            )
    assert info.bytes_on_disk == on_disk
    assert info.complete == (on_disk == info.size_bytes)


@given(infos(), st.data())
def test_any_damage_within_is_an_input_error(info: CInfo, data: st.DataObject) -> None:
    content = bytearray(dump(info))
    content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(InputError):
        cinfo.parse(bytes(content))


@given(infos(), st.data())
def test_any_truncation_is_an_input_error(info: CInfo, data: st.DataObject) -> None:
    content = dump(info)
    with pytest.raises(InputError):
        cinfo.parse(content[: data.draw(st.integers(0, len(content) - 1))])


def _sealed(store: bytes) -> bytes:
    info = CInfo(1, 0, 0, 0, 0, 0, b"\0", ())
    head = dump(info)[:4] + store
    return head + crc(store) + b"\0" * 64


def test_sizes_that_cannot_be_are_refused_without_reserving_memory() -> None:
    for block, size, n_records in [
        (0, 1, 0),
        (-1, 1, 0),
        (1, -1, 0),
        (1, 2**62, 0),
        (2**62, 2**51, 0),
        (1, 1, -1),
        (1, 1, 2**31 - 1),
    ]:
        store = struct.pack("<qqqqQIi", block, size, 0, 0, 0, 0, n_records)
        with pytest.raises(InputError, match="cinfo with block size"):
            cinfo.parse(_sealed(store))


def test_touches_and_prefetches_are_no_uses_by_a_job() -> None:
    """A touch reads nothing, a prefetch a byte of each block; before any use counts when the file came."""
    touch = AccessRecord(800, 900, 0, 100, 0, 0, 0, 0, 0)
    prefetch = touch._replace(attach_s=95, detach_s=100, bytes_missed=2)
    job = touch._replace(attach_s=300, detach_s=400, bytes_hit=3)
    info = CInfo(10, 15, 90, 0, 3, 0, b"\x03", (prefetch, touch))
    assert (info.last_detach_s, info.last_use_s) == (900, 90)
    info = info._replace(accesses=(prefetch, job, touch))
    assert (info.last_detach_s, info.last_use_s) == (900, 400)


MB = 10**6


def namespace_of(folder: Path, n_files: int) -> Path:
    for at in range(n_files):
        access = AccessRecord(100 + at, 200 + at if at % 3 else 0, 1, 9, 0, 0, MB * (at % 2), 0, 0)
        info = CInfo(MB, 2 * MB - at, 90, 0, 1, 0, bytes([at % 4]), (access,))
        put(folder, f"store/d{at % 7}/f{at}.root", info)
    return folder


def test_both_ways_show_the_same(tmp_path: Path) -> None:
    namespace = namespace_of(tmp_path, 2 * holdings.FILES_AT_ONCE + 3)
    (namespace / "store/d0/bad.root.cinfo").write_bytes(b"no record")
    here = sorted(held_below(namespace), key=lambda held: held.name)
    assert sorted(held_by_processes(namespace), key=lambda held: held.name) == here
    assert len({held.name for held in here}) == 2 * holdings.FILES_AT_ONCE + 4
    assert [held.name for held in here if held.unreadable] == ["/store/d0/bad.root"]
    assert {held.complete for held in here} == {True, False} == {held.is_open for held in here}


def test_an_empty_namespace_shows_nothing_and_one_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    assert list(held_by_processes(tmp_path)) == []
    for walk in (held_by_processes, held_below):
        with pytest.raises(InputError, match="cannot read namespace"):
            list(walk(tmp_path / "gone"))


def test_names_that_cannot_be_asked_about_are_no_files_of_the_cache_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Once they are gone, the question whether they are would be refused for ever; their bytes are in use."""
    namespace = namespace_of(tmp_path, 1)
    record = (namespace / "store/d0/f0.root.cinfo").read_bytes()
    for odd in (b"two\nlines", b"no text \xff", b" space"):
        Path(os.fsdecode(bytes(namespace / "store") + b"/" + odd + b".cinfo")).write_bytes(record)
    (namespace / "store/ space").write_bytes(bytes(8192))
    target = XCacheTarget("xc", "root://127.0.0.1:1", namespace)
    names, walk = list[str](), target.inventory()
    with pytest.raises(TargetUnavailable):  # nobody serves it
        names += (held.name for held in walk)
    assert (target.left_out.n_files, target.left_out.n_bytes, len(target.left_out.some)) == (3, 8192, 3)
    assert "names of 3 files" in caplog.text


def test_a_process_that_is_killed_is_no_end_of_the_files(tmp_path: Path) -> None:
    namespace = namespace_of(tmp_path, 6 * holdings.FILES_AT_ONCE)
    files = held_by_processes(namespace)
    next(files)
    for child in multiprocessing.active_children():
        child.kill()
    with pytest.raises(TargetUnavailable, match="has ended early"):
        list(files)


def test_a_walk_that_is_given_up_leaves_no_process(tmp_path: Path) -> None:
    files = held_by_processes(namespace_of(tmp_path, 6 * holdings.FILES_AT_ONCE))
    assert len(list(islice(files, 5))) == 5
    assert multiprocessing.active_children()
    files.close()
    assert not multiprocessing.active_children()
