from __future__ import annotations

import stat
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.common.errors import ServiceError
from prefetch.xcache.events import frame
from prefetch.xcache.gstream import MAX_SENDERS, Numberings
from prefetch.xcache.rolling import RollingFiles

NOW = 1_700_000_000


def files_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def rolling(folder: Path, *, roll_bytes: int = 10**6, roll_s: int = 3600) -> RollingFiles:
    return RollingFiles(folder, roll_bytes=roll_bytes, roll_s=roll_s)


def test_a_file_is_finished_by_size_by_time_and_at_the_end(tmp_path: Path) -> None:
    files = rolling(tmp_path, roll_bytes=100, roll_s=60)
    for now_s, size in ((0, 60), (1, 60), (2, 40), (70, 10), (50, 10), (51, 500)):
        files.append(b"x" * size, NOW + now_s)
    files.roll(NOW + 200)
    files.append(b"last", NOW + 201)
    files.close()
    assert [(tmp_path / name).stat().st_size for name in files_in(tmp_path)] == [60, 100, 10, 10, 500, 4]
    assert files_in(tmp_path)[0] == "gstream-001700000000-20231114T221320Z.capture"


def test_a_file_being_written_has_another_name_and_no_rights_for_others(tmp_path: Path) -> None:
    files = rolling(tmp_path)
    files.append(b"x", NOW)
    (path,) = tmp_path.iterdir()
    assert path.suffix == ".part"
    assert stat.S_IMODE(path.stat().st_mode) & 0o027 == 0
    assert path.read_bytes() == b"x"
    assert files.newest() is None
    files.close()
    assert files.newest() == path.with_suffix("")


def test_what_a_killed_writer_left_is_finished_and_the_numbers_go_on(tmp_path: Path) -> None:
    for number, content in ((1, b"first"), (2, b"second"), (3, b"")):
        (tmp_path / f"gstream-{number:012d}-20231114T221320Z.capture.part").write_bytes(content)
    files = rolling(tmp_path)
    files.append(b"third", NOW)
    files.close()
    assert files.n_recovered == 3
    assert [(tmp_path / name).read_bytes() for name in files_in(tmp_path)] == [b"first", b"second", b"third"]


def test_without_a_frame_there_is_no_file(tmp_path: Path) -> None:
    files = rolling(tmp_path)
    files.roll(NOW)
    files.close()
    assert not files_in(tmp_path)


def test_a_folder_that_is_gone_is_a_service_error(tmp_path: Path) -> None:
    folder = tmp_path / "captures"
    folder.mkdir()
    files = rolling(folder)
    folder.rmdir()
    with pytest.raises(ServiceError, match="captures"):
        files.append(b"x", NOW)
    files.close()


@settings(max_examples=20, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 200), st.binary(min_size=1, max_size=50)), max_size=12),
    st.integers(1, 120),
)
def test_nothing_is_lost_or_put_in_another_order(
    tmp_path_factory: pytest.TempPathFactory, frames: list[tuple[int, bytes]], roll_bytes: int
) -> None:
    folder = tmp_path_factory.mktemp("captures")
    files = rolling(folder, roll_bytes=roll_bytes, roll_s=60)
    framed = [(NOW + at, frame(NOW, 1, body)) for at, body in frames]
    for now_s, content in framed:
        files.append(content, now_s)
    files.close()
    kept = b"".join((folder / name).read_bytes() for name in files_in(folder))
    assert kept == b"".join(content for _, content in framed)


@settings(deadline=None)
@given(st.lists(st.integers(1, 40), max_size=30), st.integers(0, 99))
def test_numbers_left_out_are_lost_ones(steps: list[int], first: int) -> None:
    """Against a plain count: the senders' steps, each of which leaves out all but one."""
    numberings, number = Numberings(100), first
    numberings.note("a", number)
    for step in steps:
        number += step
        numberings.note("a", number % 100)
        numberings.note("other", 5)
    assert numberings.n_lost == sum(steps) - len(steps)


def test_senders_that_anyone_can_make_up_take_no_more_memory() -> None:
    numberings = Numberings(256)
    for sender in range(MAX_SENDERS + 50):
        numberings.note(sender, 1)
    assert len(numberings._last) == MAX_SENDERS


def test_lines_are_whole_and_on_the_disk_after_a_sync(tmp_path: Path) -> None:
    left = tmp_path / "closes-000000000001-20231114T221320Z.jsonl.part"
    left.write_bytes(b'{"a": 1}\n{"b"')
    files = RollingFiles(tmp_path, roll_bytes=30, roll_s=60, form=("closes", ".jsonl"))
    for number in range(4):
        files.append(b'{"number": %d}\n' % number, NOW)
        files.sync()
    assert files_in(tmp_path)[-1].endswith(".jsonl.part")
    files.close()
    assert files_in(tmp_path)[0] == left.with_suffix("").name and files.n_recovered == 1
    contents = [(tmp_path / name).read_bytes() for name in files_in(tmp_path)]
    assert contents[0] == b'{"a": 1}\n'
    assert b"".join(contents[1:]) == b"".join(b'{"number": %d}\n' % number for number in range(4))
    assert len(contents) == 3
