import os
import struct
import time
from collections.abc import Collection
from pathlib import Path

import pytest
from cinfo_writer import dump, put

from features.common.errors import InputError, TargetUnavailable
from prefetch.target import Confirmation, Held
from prefetch.xcache import cinfo, client, session
from prefetch.xcache.cinfo import AccessRecord, CInfo
from prefetch.xcache.cinfo_rows import remembered
from prefetch.xcache.client import XCacheTarget
from prefetch.xcache.namespace import ServerCount, server_count, walk

BLOCK, MIB = 131072, 2**20


def access(attach: int = 100, detach: int = 200, **changes: int) -> AccessRecord:
    numbers = {"n_ios": 1, "duration_s": 100, "n_merged": 0, "bytes_hit": 0, "bytes_missed": 10**6} | changes
    return AccessRecord(attach_s=attach, detach_s=detach, reserved=0, bytes_bypassed=0, **numbers)


def info(*accesses: AccessRecord, size: int = 4 * BLOCK, blocks: bytes = b"\x0f") -> CInfo:
    return CInfo(BLOCK, size, 90, 0, len(accesses), 0, blocks, accesses)


def names(root: Path) -> list[str]:
    return sorted(entry.name for entry in walk(root) if entry.info is not None)


def faults(root: Path) -> dict[str, str]:
    return {entry.name: entry.fault for entry in walk(root) if entry.info is None}


def test_every_cinfo_is_found_and_nothing_else(tmp_path: Path) -> None:
    for name in ("/store/a", "/store/deep/er/b", "/c"):
        put(tmp_path, name, info())
    (tmp_path / "store/a").write_bytes(b"data")
    (tmp_path / "DirStat.json").write_text("{}")
    assert names(tmp_path) == ["/c", "/store/a", "/store/deep/er/b"]
    assert not faults(tmp_path)


def test_what_cannot_be_used_says_why(tmp_path: Path, data: Path) -> None:
    real = (data / "v4-6.2.1.cinfo").read_bytes()
    put(tmp_path, "/good", real)
    put(tmp_path, "/store/v2", struct.pack("<i", 2) + bytes(100))
    put(tmp_path, "/store/v-1", struct.pack("<i", -1) + bytes(100))
    put(tmp_path, "/store/v9", struct.pack("<i", 9) + bytes(100))
    put(tmp_path, "/store/cut", real[:-1])
    put(tmp_path, "/store/short", b"\x04")
    put(tmp_path, "/store/being-made", b"")
    put(tmp_path, "/store/odd ", real)
    assert names(tmp_path) == ["/good"]
    assert faults(tmp_path) == {
        "/store/v2": "cinfo of version 2: only version 4 is read",
        "/store/v-1": "cinfo of version 1: only version 4 is read",
        "/store/v9": "damaged cinfo",
        "/store/cut": "damaged cinfo",
        "/store/short": "damaged cinfo",
        "/store/odd ": "not a usable file name",
    }
    details = {entry.name: entry.detail for entry in walk(tmp_path)}
    assert details["/store/v9"] == (
        "/store/v9: cinfo of version 9; only version 4 (XRootD 5.0 to 6.2) is read"
    )


def test_links_are_refused(tmp_path: Path) -> None:
    outside, root = tmp_path / "outside", tmp_path / "ns"
    put(outside, "/x", info())
    put(root, "/store/own", info())
    (root / "folder").symlink_to(outside)
    (root / "store/link.cinfo").symlink_to(outside / "x.cinfo")
    (root / "store/data").symlink_to(outside / "x.cinfo")
    (root / "store/loop").symlink_to(root)
    (root / "store/itself").symlink_to("itself")
    os.mkfifo(root / "store/pipe.cinfo")
    assert names(root) == ["/store/own"]
    assert faults(root) == {
        **dict.fromkeys(["/folder", "/store/link", "/store/loop"], "a link, not followed"),
        "/store/pipe": "no plain file",
    }


def test_links_into_a_space_of_the_cache_are_followed(tmp_path: Path) -> None:
    root, space, secret = tmp_path / "ns", tmp_path / "meta", tmp_path / "meta-not"
    root.mkdir()
    for folder, number in ((space, 1), (secret, 2)):
        stored = put(folder, f"/0a/{number}", info())
        (root / f"x{number}.cinfo").symlink_to(stored)
    (root / "dangling.cinfo").symlink_to(space / "nothing")
    (root / "folder").symlink_to(space)
    (root / "out.cinfo").symlink_to(space / "../meta-not/0a/2.cinfo")
    by_name = {entry.name: entry.fault for entry in walk(root, [space])}
    refused = "a link, not followed"
    lost = {"/dangling": "a link to nothing"}
    assert by_name == {"/x1": "", "/x2": refused, "/out": refused, "/folder": refused} | lost


def test_what_vanishes_during_the_walk_is_left_out(tmp_path: Path) -> None:
    put(tmp_path, "/a/first", info())
    for number in range(300):
        put(tmp_path, f"/b/f{number}", info())
    put(tmp_path, "/c/last", info())
    walking = walk(tmp_path)
    seen = [next(walking)]
    for path in (tmp_path / "b").iterdir():
        path.unlink()
    for path in (tmp_path / "a").iterdir():
        path.unlink()
    (tmp_path / "a").rmdir()
    seen += walking
    assert all(entry.info is not None for entry in seen) and "/c/last" in {entry.name for entry in seen}


@pytest.mark.parametrize("is_there", [True, False])
def test_a_namespace_that_is_unmounted_during_the_walk_has_not_lost_its_files(
    tmp_path: Path, is_there: bool
) -> None:
    """An empty folder may lie in its place: then the files that were not reached are not gone."""
    root = tmp_path / "namespace"
    for n in range(9):
        put(root, f"/{n}/a", info(access()))
    entries = walk(root)
    next(entries)
    root.rename(tmp_path / "elsewhere")
    if is_there:
        root.mkdir()
    with pytest.raises(InputError, match="is it mounted" if is_there else "cannot read namespace"):
        list(entries)


def test_a_cinfo_that_is_being_rewritten_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = put(tmp_path, "/x", dump(info())[:-1])
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(time, "sleep", lambda _: path.write_bytes(dump(info())))
        assert names(tmp_path) == ["/x"]


def test_merged_records_are_several_reads_and_their_time_is_summed() -> None:
    (record,) = remembered(info(access(100, 5000, n_merged=3, duration_s=250)))
    assert (record.n_reads, record.wall_s, record.attach_s, record.detach_s) == (4, 250, 100, 5000)


def test_a_record_the_cache_died_in_ends_as_xcache_ends_it_and_an_open_one_has_no_end() -> None:
    died = access(100, 0, n_ios=2, duration_s=60)
    assert [record.detach_s for record in remembered(info(died, access(300, 400)))] == [130, 400]
    assert [record.detach_s for record in remembered(info(access(), access(300, 0)))] == [200, None]


@pytest.mark.parametrize(
    ("n_bytes", "n_merged", "ours"),
    [(0, 0, True), (4, 0, True), (5, 0, False), (12, 2, True), (13, 2, False), (10**6, 0, False)],
)
def test_touches_and_prefetches_are_ours(n_bytes: int, n_merged: int, ours: bool) -> None:
    (record,) = remembered(info(access(bytes_missed=n_bytes, n_merged=n_merged)))
    assert record.is_ours is ours


def fetched_of(*accesses: AccessRecord, blocks: int) -> list[int]:
    vector = ((1 << blocks) - 1).to_bytes(4, "little")
    records = remembered(CInfo(MIB, 32 * MIB, 1, 0, len(accesses), 0, vector, accesses))
    return [record.bytes_fetched for record in records]


def as_counted(hit: int, missed: int, n_ios: int = 1, bypassed: int = 0) -> AccessRecord:
    return AccessRecord(100, 200, n_ios, 100, 0, 0, hit, missed, bypassed)


# As real caches of 1 MiB blocks write them: of a block that is read whole, 64 KiB are a miss.
HALF, WHOLE, WARM = as_counted(15 * MIB, MIB), as_counted(30 * MIB, 2 * MIB), as_counted(32 * MIB, 0)


@pytest.mark.parametrize(
    ("accesses", "blocks", "fetched"),
    [
        ([WHOLE], 32, [32]),
        ([WHOLE, WARM], 32, [32, 0]),
        ([HALF, as_counted(16 * MIB, 0), as_counted(31 * MIB, MIB), WARM], 32, [16, 0, 16, 0]),
        ([HALF, as_counted(7 * MIB, MIB // 16), as_counted(8 * MIB, MIB)], 32, [16, 7, 8]),  # odd offsets
        ([as_counted(62 * MIB, 2 * MIB, n_ios=2), WARM], 32, [32, 0]),
        (
            [as_counted(0, 20), as_counted(31 * MIB, 12 * MIB // 16)],
            32,
            [20, 12],
        ),  # a prefetch of ours of 20 blocks
        ([as_counted(0, 32), WARM], 32, [32, 0]),
        ([WARM, WARM], 32, [32, 0]),  # read ahead: all are hits
        ([as_counted(10 * MIB, 0), WARM], 32, [32, 0]),
        ([WARM, as_counted(32 * MIB, 52)], 32, [32, 0]),
        ([as_counted(0, 0), WARM], 32, [32, 0]),  # a prefetch of ours that only opens the file
        (
            [as_counted(2 * MIB, MIB), as_counted(2 * MIB, MIB)],
            20,
            [10, 10],
        ),  # sparse reads fetch whole blocks
        ([], 0, []),
    ],
)
def test_what_is_on_disk_was_fetched_for_those_that_missed(
    accesses: list[AccessRecord], blocks: int, fetched: list[int]
) -> None:
    assert [n_bytes // MIB for n_bytes in fetched_of(*accesses, blocks=blocks)] == fetched
    past = [each._replace(bytes_bypassed=MIB) for each in accesses]
    assert sum(fetched_of(*past, blocks=blocks)) >= sum(fetched) * MIB + len(past) * MIB - len(past)


def test_a_first_copy_that_the_server_counts_twice_in_part_was_read_once() -> None:
    copied = CInfo(
        MIB, 32 * MIB, 1, 0, 2, 0, b"\xff" * 4, (as_counted(40 * MIB, 2 * MIB), as_counted(64 * MIB, 0, 2))
    )
    assert [record.bytes_read // MIB for record in remembered(copied)] == [32, 64]


def test_a_record_that_a_crash_emptied_is_not_one_being_made(tmp_path: Path) -> None:
    for name, data in (("/lost", b"data"), ("/young", b"data"), ("/no-room", b"")):
        os.utime(put(tmp_path, name, b""), None if name == "/young" else (1, 1))
        (tmp_path / name[1:]).write_bytes(data)
    assert faults(tmp_path) == {"/lost": "an empty cinfo"}


def test_what_is_no_file_of_jobs_is_left_out_and_nothing_beside_it(tmp_path: Path) -> None:
    """Else whoever reads a file of such a name would hide it: its bytes would never be evicted."""
    put(tmp_path, "/lost+found/x", b"junk")
    put(tmp_path, "/pfc-stats/DirStat.json", info())
    theirs = ["/pfc-stats/x", "/store/lost+found/x", "/store/pfc-stats/DirStat.json"]
    for name in theirs:
        put(tmp_path, name, info())
    assert (sorted(names(tmp_path)), faults(tmp_path)) == (theirs, {})


class Answering(XCacheTarget):
    """A target whose server holds everything, and whose records show what is in `shown`."""

    shown: Collection[str] = ()

    def confirm(self, name: str) -> Confirmation:
        return Confirmation(Held(name, 1, 1, True, 1, False) if name in self.shown else None, "cinfo")

    def server_holds(self, name: str) -> bool:
        return True


def test_a_file_fetched_during_the_walk_is_no_lie_of_the_namespace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "version_of", lambda _: "v5.6.0")
    target = Answering("c", "root://127.0.0.1:9", tmp_path)
    target.shown = {"/new"}
    target.check_namespace([], {"/new"})
    with pytest.raises(TargetUnavailable, match="does not show it"):
        target.check_namespace([], {"/hidden"})


def test_what_the_server_does_not_hold_is_looked_for_on_no_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anybody may report `/lost+found/x`: that nobody may read there kept a steward from an empty cache."""

    def refused(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(session, "version_of", lambda _: "v5.6.0")
    monkeypatch.setattr(session, "stat", lambda *_: None)
    monkeypatch.setattr("prefetch.xcache.cinfo.read", refused)
    XCacheTarget("c", "root://127.0.0.1:9", tmp_path).check_namespace([], {"/lost+found/x"})


COUNTS = """{
 "m_sshot_stats_reset_time": 1795579796,
 "m_usage_update_time": 1795579800,
 "m_disk_total": 270553174016,
 "m_file_usage": 11534336,
 "m_meta_total": 0, "m_dir_states": [
"""


@pytest.mark.parametrize(
    ("content", "count"),
    [
        (COUNTS, ServerCount(1795579800, 11534336)),
        (COUNTS[:100], None),
        ("", None),
        (COUNTS.replace("11534336", "-1"), None),
        (COUNTS.replace("11534336", "9" * 30), None),
        (" " * 10**5 + COUNTS, None),
    ],
)
def test_what_a_server_has_counted_is_read_from_the_head_of_its_statistics(
    tmp_path: Path, content: str, count: ServerCount | None
) -> None:
    (tmp_path / "pfc-stats").mkdir()
    (tmp_path / "pfc-stats" / "DirStat.json").write_text(content)
    assert server_count(tmp_path) == count


def test_no_statistics_are_no_fault(tmp_path: Path) -> None:
    assert server_count(tmp_path) is None
    (tmp_path / "pfc-stats").mkdir()
    (tmp_path / "pfc-stats" / "DirStat.json").symlink_to("/etc/passwd")
    assert server_count(tmp_path) is None
    (tmp_path / "pfc-stats" / "DirStat.json").unlink()
    os.mkfifo(tmp_path / "pfc-stats" / "DirStat.json")
    assert server_count(tmp_path) is None


def test_a_record_that_is_data_or_claims_what_is_not_there_is_not_believed(tmp_path: Path) -> None:
    """A file X.cinfo at the origin, read through the cache, lies where the record of X belongs."""
    for name in ("/store/forged", "/store/claims", "/store/young", "/store/true"):
        put(tmp_path, name, info(size=64 * BLOCK, blocks=b"\xff" * 8))
        (tmp_path / name[1:]).write_bytes(bytes(64 * BLOCK if name == "/store/true" else 4096))
    put(tmp_path, "/store/forged.cinfo", info())
    for name in ("forged", "claims", "true"):
        os.utime(tmp_path / "store" / name, (0, 0))
    assert names(tmp_path) == ["/store/true", "/store/young"]
    assert faults(tmp_path) == {
        "/store/forged": "a file of jobs, called as a record is",
        "/store/forged.cinfo": "not a usable file name",
        "/store/claims": "claims more than its file has",
    }
    target = XCacheTarget("xc", "root://127.0.0.1:1", tmp_path)
    held = {name: target.confirm(f"/store/{name}").held for name in ("forged", "claims", "true")}
    assert [entry is not None and entry.unreadable for entry in held.values()] == [True, True, False]


def test_the_longest_names_that_a_cache_can_hold_are_known(tmp_path: Path) -> None:
    longest = "/store/" + 249 * "x"
    put(tmp_path, longest, info())
    assert names(tmp_path) == [longest]


def test_a_look_at_a_record_that_is_not_believed_takes_no_time_and_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some of them would keep a steward from evicting; one may go between two looks."""
    put(tmp_path, "/store/forged", info(size=BLOCK))
    put(tmp_path, "/store/forged.cinfo", info())
    put(tmp_path, "/store/old", info(size=BLOCK))
    (tmp_path / "store" / "old.cinfo").write_bytes(b"damaged")
    os.utime(tmp_path / "store" / "old.cinfo", (0, 0))
    (tmp_path / "store" / "forged").write_bytes(bytes(8192))
    monkeypatch.setattr(client, "_REREAD_S", (60.0,))
    target = XCacheTarget("xc", "root://127.0.0.1:1", tmp_path)
    held = target.confirm("/store/forged").held
    assert held is not None and (held.unreadable, held.bytes_on_disk) == (True, 8192)
    assert target.confirm("/store/old").held is not None
    record = tmp_path / "store" / "forged.cinfo"
    monkeypatch.setattr(Path, "exists", lambda _: True)

    def is_gone(_: str | Path) -> bool:
        record.unlink(missing_ok=True)
        return True

    monkeypatch.setattr(cinfo, "_is_data", is_gone)
    target.confirm("/store/forged")
