"""Open files are seen as the kernel sees them, through links of `oss.space`, and no longer than they are."""

from __future__ import annotations

import time
from pathlib import Path

from prefetch.steward.open_files import OpenFiles


def test_a_file_is_open_while_a_process_has_it_open(tmp_path: Path) -> None:
    root, space = tmp_path / "ns", tmp_path / "space"
    (root / "store").mkdir(parents=True)
    space.mkdir()
    (space / "1").write_bytes(b"x")
    (root / "store" / "linked.root").symlink_to(space / "1")
    (root / "store" / "plain.root").write_bytes(b"y")
    files = OpenFiles(root)
    assert not files.has("/store/linked.root") and not files.has("/store/none.root")
    with (root / "store" / "linked.root").open("rb"), (root / "store" / "plain.root").open("rb"):
        time.sleep(0.15)
        assert files.has("/store/linked.root") and files.has("/store/plain.root")
    time.sleep(0.15)
    assert not files.has("/store/linked.root") and not files.has("/store/plain.root")
