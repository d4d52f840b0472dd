"""Files beside hostile neighbours: what is opened, and what is left where writing fails."""

import os
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from full_disk import full_disk
from hung_mount import hung_mount

from features.common import files, input_files
from features.common.errors import NotPlainError
from features.common.input_files import InputFile

STRANGER = 65534


def content(file: Path | InputFile) -> bytes:
    with input_files.plain(file) as name:
        return Path(name).read_bytes()


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_text("the operators' token")
    return path


@pytest.fixture
def drop(tmp_path: Path) -> Path:
    folder = tmp_path / "drop"
    folder.mkdir()
    return folder


def test_nothing_but_plain_files_is_opened_below_what_was_given(drop: Path, secret: Path) -> None:
    (drop / "plain").write_text("x")
    (drop / "link").symlink_to(secret)
    os.mkfifo(drop / "pipe")
    (drop / "folder").mkdir()
    (drop / "device").symlink_to("/dev/zero")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(drop / "socket"))
    assert content(InputFile(drop, "plain")) == b"x"
    for name, kind in {
        "link": "a link",
        "pipe": "a pipe",
        "folder": "a folder",
        "socket": "a socket",
    }.items():
        with pytest.raises(NotPlainError, match=f"{name} is {kind}") as caught:
            content(InputFile(drop, name))
        assert caught.value.kind == kind
    with pytest.raises(NotPlainError, match="a device"):
        content(Path("/dev/zero"))
    listener.close()


def test_no_folder_below_what_was_given_may_be_a_link(drop: Path, secret: Path) -> None:
    (drop / "a").mkdir()
    (drop / "a" / "elsewhere").symlink_to(secret.parent)
    with pytest.raises(NotPlainError, match="behind a link"):
        content(InputFile(drop, "a/elsewhere/secret"))
    with pytest.raises(NotPlainError, match="behind a link"):
        input_files.inside(InputFile(drop, "a/elsewhere/drop"))


def test_a_given_link_is_followed_only_if_this_account_or_root_made_it(drop: Path, secret: Path) -> None:
    (drop / "one").symlink_to("two")
    (drop / "two").symlink_to(secret)
    assert content(drop / "one") == secret.read_bytes()
    (drop / "itself").symlink_to("itself")
    with pytest.raises(NotPlainError, match="a link to itself"):
        content(drop / "itself")
    if os.geteuid() == 0:
        os.lchown(drop / "two", STRANGER, STRANGER)
        with pytest.raises(NotPlainError, match="a link of another account"):
            content(drop / "one")


def test_what_takes_the_place_of_an_opened_file_is_not_read(drop: Path, secret: Path) -> None:
    (drop / "x").write_text("harmless")
    with input_files.plain(InputFile(drop, "x")) as name:
        (drop / "x").unlink()
        (drop / "x").symlink_to(secret)
        assert Path(name).read_text() == "harmless"


def test_no_descriptor_is_left_open(drop: Path) -> None:
    (drop / "a" / "b").mkdir(parents=True)
    (drop / "a" / "b" / "f").write_text("x")
    (drop / "a" / "l").symlink_to("b")
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - descriptors
    for below in ("a/b/f", "a/l/f", "a/b/none", "a/l"):
        try:
            content(InputFile(drop, below))
        except (NotPlainError, FileNotFoundError):
            continue
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


def test_a_full_disk_leaves_the_old_file_whole_and_no_draft(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    files.write(page, "the old page")
    with full_disk(1000), pytest.raises(OSError, match="too large"):
        files.write(page, "x" * 5000)
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]
    assert page.read_text() == "the old page"
    files.write(page, "the new pagé")
    assert page.read_bytes() == "the new pagé".encode()


def test_a_file_is_written_with_the_rights_that_the_umask_leaves_and_never_through_a_link(
    tmp_path: Path, secret: Path
) -> None:
    before = os.umask(0o027)
    try:
        (tmp_path / "page").symlink_to(secret)
        files.write(tmp_path / "page", b"x")
        with files.replaced(tmp_path / "list", mode=0o600) as draft:
            draft.write_text("y")
    finally:
        os.umask(before)
    modes = [stat.S_IMODE((tmp_path / name).lstat().st_mode) for name in ("page", "list")]
    assert modes == [0o640, 0o600]
    assert secret.read_text() == "the operators' token"


@pytest.mark.skipif(os.geteuid() != 0, reason="links of another account need root")
def test_a_link_of_another_account_on_the_way_is_not_followed(
    drop: Path, secret: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (drop / "theirs").symlink_to("..")
    (drop / "ours").symlink_to(drop / "theirs")
    for way in (drop / "theirs" / "secret", drop / "theirs/drop/ours" / "secret"):
        assert content(way) == secret.read_bytes()
    os.lchown(drop / "theirs", STRANGER, STRANGER)
    monkeypatch.chdir(drop)
    for way in (drop / "theirs", drop / "ours", Path("theirs"), drop / "../drop/theirs"):
        with pytest.raises(NotPlainError, match="a link of another account"):
            content(way / "secret")
        with pytest.raises(NotPlainError, match="a link of another account"):
            input_files.inside(InputFile(way))
    assert content(Path("../secret")) == secret.read_bytes()


def test_a_file_of_holes_is_not_opened(drop: Path) -> None:
    with (drop / "holes").open("wb") as file:
        file.write(b"x")
        file.truncate(2**40)
    with pytest.raises(NotPlainError, match="all holes"):
        content(drop / "holes")
    with (drop / "few").open("wb") as file:
        file.truncate(2**20)
    assert len(content(drop / "few")) == 2**20


def test_a_file_of_our_own_is_read_only_if_nobody_else_could_have_written_it(
    drop: Path, secret: Path
) -> None:
    (drop / "plain").write_text("x")
    (drop / "link").symlink_to(secret)
    os.mkfifo(drop / "pipe")
    (drop / "folder").mkdir()
    (drop / "open").write_text("x")
    (drop / "open").chmod(0o664)
    (drop / "zeros").symlink_to("/dev/zero")
    (drop / "huge").write_text("xx")
    if os.geteuid() == 0:
        (drop / "strange").write_text("x")
        os.chown(drop / "strange", STRANGER, STRANGER)
    assert files.read_own(drop / "plain", 1) == b"x"
    for path in set(drop.iterdir()) - {drop / "plain"}:
        with pytest.raises(OSError, match=r"Errno"):
            files.read_own(path, 1)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts")
def test_a_mount_that_hangs_is_named_and_holds_up_nobody(tmp_path: Path) -> None:
    hung, gone = tmp_path / "hung", tmp_path / "gone"
    hung.mkdir()
    with hung_mount(hung):
        began = time.monotonic()
        what = files.silent([tmp_path, gone, hung / "below"], within_s=0.5)
        assert what is not None and str(hung / "below") in what and "does not answer" in what
        words = [sys.executable, "-c", HANGS, str(hung)]
        done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=30)
        assert (done.returncode, "does not answer" in done.stdout) == (0, True), done.stderr
        assert time.monotonic() - began < 30
    assert files.silent([tmp_path, gone, tmp_path / "\0"]) is None


def test_what_took_the_place_of_a_folder_is_not_waited_for(tmp_path: Path) -> None:
    files.sync_folder(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    writer = os.open(tmp_path / "pipe", os.O_RDWR)  # else an open of a pipe would never end
    with pytest.raises(NotADirectoryError):
        files.sync_folder(tmp_path / "pipe")
    os.close(writer)


HANGS = """
import sys
from pathlib import Path
from features.common import files
print(files.silent([Path(sys.argv[1])], within_s=0.5))
"""
