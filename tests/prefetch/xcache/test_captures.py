from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest
from monitoring import Sender, close

from features.common.errors import InputError
from prefetch.target import Held
from prefetch.xcache.events import frame
from prefetch.xcache.gstream import FolderReader, capture_reader
from prefetch.xcache.holdings import LatestCloses
from prefetch.xcache.rolling import RollingFiles

NOW = 1_700_000_000


def framed(pseq: int, lfn: str = "", **changes: int) -> bytes:
    record = close(lfn or f"/{pseq}", 9, NOW + 5, **changes)
    return frame(NOW, 1, Sender("h", 1094, "", "", NOW, 7, pseq).gstream(record, ahead=0))


def test_a_folder_is_followed_while_files_roll(tmp_path: Path) -> None:
    files = RollingFiles(tmp_path, roll_bytes=len(framed(1)) * 3, roll_s=3600)
    reader, seen = capture_reader(tmp_path), list[str]()
    for pseq in range(1, 30):
        if pseq != 17:
            files.append(framed(pseq), NOW + pseq)
        if pseq % 4:
            seen += [event.lfn for event in reader.poll()]
    files.close()
    seen += [event.lfn for event in reader.poll()]
    assert seen == [f"/{pseq}" for pseq in range(1, 30) if pseq != 17]
    assert not list(reader.poll())
    assert reader.n_lost == 1
    seen_again = [event.lfn for event in FolderReader(tmp_path).poll()]
    assert seen_again == seen


@pytest.mark.parametrize("archive", ["moved", "deleted", "finished_and_moved"])
def test_a_part_read_capture_that_is_archived_is_read_to_its_end(tmp_path: Path, archive: str) -> None:
    folder, away = tmp_path / "captures", tmp_path / "archive"
    folder.mkdir()
    away.mkdir()
    names = [folder / f"gstream-{number:012d}-20231114T221320Z.capture" for number in (1, 2)]
    part = names[0].with_name(f"{names[0].name}.part")
    part.write_bytes(b"".join(map(framed, range(1, 4))))
    reader = capture_reader(folder)
    seen = [event.lfn for event in reader.poll()]
    with part.open("ab") as stream:
        stream.write(b"".join(map(framed, range(4, 6))))
    if archive != "moved":
        part = part.rename(names[0])
    if archive == "deleted":
        part.unlink()
    else:
        part.rename(away / part.name)
    names[1].write_bytes(b"".join(map(framed, range(6, 11))))
    seen += [event.lfn for event in reader.poll()]
    assert seen == [f"/{pseq}" for pseq in range(1, 11)]
    assert reader.n_lost == 0
    assert not list(reader.poll())


@pytest.mark.parametrize("name", ["capture.txt", "gstream-000000000001-20231114T221320Z.capture.part"])
def test_a_poll_ends_however_fast_a_capture_grows(tmp_path: Path, name: str) -> None:
    """A steward that begins would read on and on in a flood of reports, and tell nobody."""
    path, seen = tmp_path / name, list[str]()
    path.write_bytes(framed(1))
    reader = capture_reader(path if path.suffix == ".txt" else tmp_path)
    for event in reader.poll():
        seen.append(event.lfn)
        with path.open("ab") as stream:
            stream.write(framed(2) + framed(3))
        assert len(seen) < 9
    assert [*seen, *(event.lfn for event in reader.poll())] == ["/1", "/2", "/3"]


@pytest.mark.parametrize("how", ["moved", "truncated"])
def test_a_capture_that_is_replaced_is_read_from_its_beginning(tmp_path: Path, how: str) -> None:
    path = tmp_path / "capture.txt"
    path.write_bytes(b"".join(map(framed, range(1, 4))))
    reader = capture_reader(path)
    seen = [event.lfn for event in reader.poll()]
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
    seen += [event.lfn for event in reader.poll()]
    assert seen == ["/1", "/2", "/3", "/5"]


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
