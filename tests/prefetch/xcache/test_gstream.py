"""Captures of the g-stream: real ones, damaged ones, and folders whose files roll meanwhile."""

import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from captures import Capture, read_capture
from monitoring import Sender, close

from features.common.errors import InputError
from prefetch.target import Held
from prefetch.xcache.events import frame
from prefetch.xcache.gstream import CaptureReader, FolderReader, capture_reader
from prefetch.xcache.holdings import LatestCloses
from prefetch.xcache.rolling import RollingFiles

DATA = Path(__file__).parents[2] / "data"
NOW = 1_700_000_000


def datagram(pseq: int, *records: dict[str, Any], host: str = "h", inst: str = "", stod: int = NOW) -> bytes:
    return frame(NOW, 1, Sender(host, 1094, inst, "", stod, 7, pseq).gstream(*records, ahead=0))


def framed(pseq: int, lfn: str = "", **changes: int) -> bytes:
    return datagram(pseq, close(lfn or f"/{pseq}", 9, NOW + 5, **changes))


def capture_of(tmp_path: Path, content: bytes) -> Capture:
    path = tmp_path / "capture.txt"
    path.write_bytes(content)
    return read_capture(path)


def test_sample_of_5_5_3_holds_two_caches_that_say_hello() -> None:
    assert read_capture(DATA / "gstream-5.5.3.txt") == Capture((), 0, 0)


def test_sample_of_6_2_1_is_cut_at_both_ends() -> None:
    capture = read_capture(DATA / "gstream-6.2.1.txt")
    assert (capture.n_lost, capture.n_malformed) == (0, 0)
    first, second = capture.records
    assert (first.lfn, second.lfn) == ("/store/data/l/f0000.root", "/store/data/l/f0001.root")
    assert (first.size_bytes, first.n_blks, first.n_blks_done, first.access_cnt) == (52428800, 400, 400, 1)
    assert (first.b_hit, first.b_miss, first.b_bypass) == (28049408, 26148864, 0)
    assert (first.b_todisk, first.b_prefetch, first.remotes) == (52428800, 131072, ("127.0.0.1:41094",))
    assert (first.attach_t, first.detach_t, first.received_t) == (1795219642, 1795219643, 1795219645)
    assert (first.host, first.inst, first.site) == ("vm", "cache4", "XC_TEST_6")
    assert (first.stod, first.pseq, first.is_ours, first.complete) == (1795219623, 1, False, True)
    assert (first.read_bytes, first.disk_bytes) == (54198272, 52428800)
    assert first.event_id != second.event_id and len(first.event_id) == 32


def test_fields_of_later_versions_are_none_before_them(tmp_path: Path) -> None:
    (event,) = capture_of(tmp_path, framed(1)).records
    assert (event.b_todisk, event.b_prefetch) == (None, None)


def test_each_life_of_a_cache_counts_for_itself(tmp_path: Path) -> None:
    frames = framed(1) + framed(2) + datagram(1, close("/1", 9, NOW + 5), stod=NOW + 9)
    assert capture_of(tmp_path, frames).n_lost == 0


def test_other_streams_are_left_alone(tmp_path: Path) -> None:
    other = datagram(5, {"any": 1}).replace(b'"type": "C"', b'"type": "T"')
    assert capture_of(tmp_path, other) == Capture((), 0, 0)


@pytest.mark.parametrize(
    "change",
    [
        {"size": -1},
        {"size": 1.5},
        {"size": True},
        {"size": 2**63},
        {"lfn": 3},
        {"remotes": None},
        {"b_todisk": "1"},
    ],
)
def test_malformed_records_are_counted(tmp_path: Path, change: dict[str, Any]) -> None:
    damaged, good = close("/store/x", 9, NOW) | change, close("/store/good", 9, NOW)
    capture = capture_of(tmp_path, datagram(1, damaged, good))
    assert [event.lfn for event in capture.records] == ["/store/good"]
    assert (capture.n_lost, capture.n_malformed) == (0, 1)


def test_a_tail_being_written_is_read_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "capture.txt"
    content = framed(1, "/store/a") + framed(2, "/store/b")
    reader, lfns = CaptureReader(path), []
    for end in range(0, len(content) + 1, 7):
        path.write_bytes(content[:end])
        lfns += [event.lfn for event in reader.poll()]
    path.write_bytes(content)
    lfns += [event.lfn for event in reader.poll()]
    assert lfns == ["/store/a", "/store/b"]
    assert (reader.n_lost, reader.n_malformed) == (0, 0)


def test_a_missing_or_broken_capture_is_an_input_error_that_says_why(tmp_path: Path) -> None:
    (tmp_path / "broken.gz").write_bytes(b"junk" * 9)
    for name, why in (("none", "No such file"), ("broken.gz", "incorrect header")):
        with pytest.raises(InputError, match=f"cannot read g-stream capture .*/{name}: .*{why}"):
            read_capture(tmp_path / name)


def test_a_folder_is_followed_while_files_roll(tmp_path: Path) -> None:
    files = RollingFiles(tmp_path, roll_bytes=len(framed(1)) * 3, roll_s=3600)
    reader, lfns = capture_reader(tmp_path), list[str]()
    for pseq in range(1, 30):
        if pseq != 17:
            files.append(framed(pseq), NOW + pseq)
        if pseq % 4:
            lfns += [event.lfn for event in reader.poll()]
    files.close()
    lfns += [event.lfn for event in reader.poll()]
    assert lfns == [f"/{pseq}" for pseq in range(1, 30) if pseq != 17]
    assert not list(reader.poll())
    assert reader.n_lost == 1
    seen_again = [event.lfn for event in FolderReader(tmp_path).poll()]
    assert seen_again == lfns


@pytest.mark.parametrize("archive", ["moved", "deleted", "finished_and_moved"])
def test_a_part_read_capture_that_is_archived_is_read_to_its_end(tmp_path: Path, archive: str) -> None:
    folder, away = tmp_path / "captures", tmp_path / "archive"
    folder.mkdir()
    away.mkdir()
    names = [folder / f"gstream-{number:012d}-20231114T221320Z.capture" for number in (1, 2)]
    part = names[0].with_name(f"{names[0].name}.part")
    part.write_bytes(b"".join(map(framed, range(1, 4))))
    reader = capture_reader(folder)
    lfns = [event.lfn for event in reader.poll()]
    with part.open("ab") as stream:
        stream.write(b"".join(map(framed, range(4, 6))))
    if archive != "moved":
        part = part.rename(names[0])
    if archive == "deleted":
        part.unlink()
    else:
        part.rename(away / part.name)
    names[1].write_bytes(b"".join(map(framed, range(6, 11))))
    lfns += [event.lfn for event in reader.poll()]
    assert lfns == [f"/{pseq}" for pseq in range(1, 11)]
    assert reader.n_lost == 0
    assert not list(reader.poll())


@pytest.mark.parametrize("name", ["capture.txt", "gstream-000000000001-20231114T221320Z.capture.part"])
def test_a_poll_ends_however_fast_a_capture_grows(tmp_path: Path, name: str) -> None:
    """A steward that begins would read on and on in a flood of reports, and tell nobody."""
    path, lfns = tmp_path / name, list[str]()
    path.write_bytes(framed(1))
    reader = capture_reader(path if path.suffix == ".txt" else tmp_path)
    for event in reader.poll():
        lfns.append(event.lfn)
        with path.open("ab") as stream:
            stream.write(framed(2) + framed(3))
        assert len(lfns) < 9
    assert [*lfns, *(event.lfn for event in reader.poll())] == ["/1", "/2", "/3"]


@pytest.mark.parametrize("how", ["moved", "truncated"])
def test_a_capture_that_is_replaced_is_read_from_its_beginning(tmp_path: Path, how: str) -> None:
    path = tmp_path / "capture.txt"
    path.write_bytes(b"".join(map(framed, range(1, 4))))
    reader = capture_reader(path)
    lfns = [event.lfn for event in reader.poll()]
    if how == "moved":
        with path.open("ab") as stream:
            stream.write(framed(4))
        path.rename(tmp_path / "old.txt")
        assert [event.lfn for event in reader.poll()] == ["/4"]
        path.write_bytes(framed(5))
    else:
        path.write_bytes(framed(4))
        assert [event.lfn for event in reader.poll()] == ["/4"]
        with path.open("ab") as stream:
            stream.write(framed(5))
    lfns += [event.lfn for event in reader.poll()]
    assert lfns == ["/1", "/2", "/3", "/5"]


def test_what_is_kept_is_never_in_memory_at_once(tmp_path: Path) -> None:
    """Ten thousand closes are some 13 MB of events."""
    files = RollingFiles(tmp_path, roll_bytes=len(framed(1)) * 1000, roll_s=3600)
    for pseq in range(1, 10_001):
        files.append(framed(pseq), NOW)
    files.close()
    latest = LatestCloses(capture_reader(tmp_path))
    tracemalloc.start()
    assert latest.of("/10000") == Held("/10000", 9, 9, True, NOW + 5, False)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert latest.of("/1") is not None and latest.of("/0") is None
    assert peak_bytes < 3 * 2**20


def test_the_last_close_of_a_file_counts(tmp_path: Path) -> None:
    path = tmp_path / "capture.txt"
    latest = LatestCloses(capture_reader(path))
    with pytest.raises(InputError, match="capture"):
        latest.of("/x")
    path.write_bytes(framed(1, lfn="/x", n_blks_done=0) + framed(2, lfn="/x"))
    assert latest.of("/x") == Held("/x", 9, 9, True, NOW + 5, False)
    with path.open("ab") as stream:
        stream.write(framed(3, lfn="/x", n_blks_done=0, detach_t=NOW + 9))
    assert latest.of("/x") == Held("/x", 9, 0, False, NOW + 9, False)
    assert latest.of("/y") is None
    with path.open("ab") as stream:
        stream.write(framed(4, lfn="z/z") + framed(5, lfn="//z//zz"))
    assert latest.of("/z/z") and latest.of("/z/zz")


@pytest.mark.parametrize("host", ["[2001:DB8::17]", "2001:db8:0::17"])
def test_a_close_is_of_the_host_that_settings_name(tmp_path: Path, host: str) -> None:
    path = tmp_path / "capture.txt"
    path.write_bytes(datagram(1, close("/x", 9, NOW), host=host))
    for named in ("2001:db8::17", "2001:db8::17:1094"):
        assert LatestCloses(capture_reader(path), [named]).of("/x") is not None
    assert LatestCloses(capture_reader(path), ["2001:db8::18"]).of("/x") is None


def test_what_other_caches_report_to_the_same_collector_does_not_count(tmp_path: Path) -> None:
    path = tmp_path / "capture.txt"
    closes = (("xc1", "/x", NOW), ("xc2", "/x", NOW + 9), ("xc2", "/y", NOW + 9))
    path.write_bytes(b"".join(datagram(1, close(lfn, 9, at_s), inst=inst) for inst, lfn, at_s in closes))
    # One whose server has another name than in the settings may be the only cache.
    for name, at_s in (("xc1", NOW), ("xc2", NOW + 9), ("other", NOW + 9)):
        held = LatestCloses(capture_reader(path), name=name).of("/x")
        assert held is not None and held.last_detach_s == at_s
    assert LatestCloses(capture_reader(path), name="xc1").of("/y") is None
