"""Open files are seen as the kernel sees them, through links of `oss.space`, and no longer than they are."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from prefetch.steward import canary
from prefetch.steward.canary import OpenFiles


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


@pytest.fixture
def folder_of_all() -> Iterator[Path]:
    """A folder that every account may enter; pytest's own are of one account."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts processes of other accounts")
@pytest.mark.parametrize(("group", "is_seen"), [(65533, True), (65532, False)])
def test_what_a_server_has_open_is_seen_by_its_user_in_its_group_alone(
    folder_of_all: Path, group: int, is_seen: bool
) -> None:
    """The group decides too (docs/secure.md): the same user in another one sees no file."""
    root = folder_of_all
    (root / "f.root").write_bytes(b"x")
    account = ["setpriv", "--reuid=65533", "--regid=65533", "--clear-groups"]
    server = [*account, "sh", "-c", f"exec 9< {root}/f.root; echo; exec sleep 60"]
    with subprocess.Popen(server, stdout=subprocess.PIPE) as running:
        assert running.stdout.readline() == b"\n"
        groups = os.getgroups()
        os.setgroups([])
        os.setegid(group)
        os.seteuid(65533)
        try:
            assert OpenFiles(root).has("/f.root") is is_seen
        finally:
            os.seteuid(0)
            os.setegid(0)
            os.setgroups(groups)
            running.kill()


def test_a_look_is_as_old_as_its_beginning_and_the_last_one_begins_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a host with 40 000 open files a look takes a third of a second: jobs open files meanwhile."""
    (tmp_path / "f.root").write_bytes(b"x")
    files, seen = OpenFiles(tmp_path), canary._open_inodes

    def slowly() -> set[tuple[int, int]]:
        inodes = seen()
        time.sleep(0.2)
        return inodes

    monkeypatch.setattr(canary, "_open_inodes", slowly)
    assert not files.has("/f.root")
    with (tmp_path / "f.root").open("rb"):
        assert files.has("/f.root"), "the look before is too old: it began 0.2 s ago"
        assert files.has("/f.root", within_s=0.0)
