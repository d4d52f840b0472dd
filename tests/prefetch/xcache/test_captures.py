from __future__ import annotations

import json
from pathlib import Path

import pytest

from features.errors import InputError
from prefetch.xcache.captures import FolderReader, capture_reader
from prefetch.xcache.collector import frame
from prefetch.xcache.gstream import CaptureReader
from prefetch.xcache.rolling import RollingFiles

NOW = 1_700_000_000


def framed(pseq: int) -> bytes:
    header = {"code": "g", "pseq": pseq, "stod": NOW, "sid": 7, "src": {"host": "h"}, "gs": {"type": "C"}}
    numbers = {"size": 9, "blk_size": 9, "n_blks": 1, "n_blks_done": 1, "access_cnt": 1}
    counts = {"b_hit": 0, "b_miss": 9, "b_bypass": 0, "attach_t": NOW, "detach_t": NOW + 5}
    record = {"event": "file_close", "lfn": f"/{pseq}", "remotes": []} | numbers | counts
    return frame(NOW, 1, "\n".join(map(json.dumps, (header, record))).encode())


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
    assert not reader.poll()
    assert reader.n_lost == 1
    seen_again = [event.lfn for event in FolderReader(tmp_path).poll()]
    assert seen_again == seen


def test_a_file_is_followed_as_before(tmp_path: Path) -> None:
    path = tmp_path / "capture.txt"
    path.write_bytes(framed(1))
    reader = capture_reader(path)
    assert isinstance(reader, CaptureReader)
    assert len(reader.poll()) == 1
    assert not capture_reader(tmp_path).poll()
    with pytest.raises(InputError, match="none"):
        capture_reader(tmp_path / "none").poll()
