"""Files go only while a file that the steward opened itself was reported a moment ago."""

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from closes import file_close
from waiting import eventually

from features.common.errors import TargetUnavailable
from prefetch.directory import DirectoryTarget
from prefetch.steward import canary
from prefetch.steward.canary import AGAIN_S, FRESH_S, LASTS_S, RENEW_S, Canary, OpenFiles
from prefetch.xcache.fstream import Opened, Packet

NAME = "/store/a.root"
CLOSE = file_close(NAME, 0, 0)


class Cache(DirectoryTarget):
    """A folder whose files cannot be opened while `error` is set."""

    error: TargetUnavailable | None = None
    is_up = True

    def identity(self) -> None:
        if not self.is_up:
            raise TargetUnavailable("connection refused")

    def touch(self, name: str, *, timeout_s: float, meanwhile: Callable[[], None] = lambda: None) -> None:
        if self.error is not None:
            raise self.error
        super().touch(name, timeout_s=timeout_s, meanwhile=meanwhile)


class World:
    """A cache with one file, and a canary whose clock is set by hand."""

    def __init__(self, folder: Path) -> None:
        self.now = 1000.0
        self.cache = Cache("xc", folder / "origin", folder / "cache")
        root = self.cache.namespace
        (root / "store").mkdir()
        (root / NAME[1:]).write_bytes(b"1")
        self.canary = Canary(self.cache, OpenFiles(root), timeout_s=5, clock=lambda: self.now)

    def opens(self) -> bool:
        """Whether a file is opened at this step, and closed again."""
        tried: list[str] = []

        def held(_: object) -> str:
            tried.append(NAME)
            return NAME

        self.canary.step(held)
        eventually(lambda: not tried or self.canary._trial.is_over)
        self.canary.step(held)
        return bool(tried)

    def reports(self) -> None:
        opened = Opened(0, 1, 1, 1, NAME, False)
        self.canary.hear(Packet(0, 0, 0, 0, 0, (opened,), (), 0, 0))
        self.canary.hear(CLOSE)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_nothing_goes_before_a_file_was_opened_and_reported(world: World) -> None:
    assert not world.canary.is_fresh()
    assert world.opens()
    assert not world.canary.is_fresh()
    world.reports()
    assert world.canary.is_fresh()


def test_a_proof_is_renewed_while_files_have_to_go_and_lasts_seconds(world: World) -> None:
    assert world.opens()
    world.reports()
    world.now += RENEW_S
    assert not world.opens()  # nobody has asked
    assert world.canary.is_fresh()
    assert world.opens()
    world.reports()
    world.now += FRESH_S - 0.1
    assert world.canary.is_fresh()
    world.now += 0.2
    assert not world.canary.is_fresh()


def test_an_origin_that_hangs_stops_no_evictions_for_a_while(world: World) -> None:
    assert world.opens()
    world.reports()
    world.cache.error = TargetUnavailable("the origin does not answer")
    world.now += FRESH_S
    assert not world.canary.is_fresh()
    assert world.opens()
    assert world.canary.is_fresh()
    assert world.canary.fault is None
    assert not world.opens()  # not at once
    world.now += LASTS_S
    assert not world.canary.is_fresh()


def test_a_stopped_server_is_told_at_once_and_as_such(world: World) -> None:
    assert world.opens()
    world.reports()
    world.cache.error, world.cache.is_up = TargetUnavailable("no open"), False
    world.now += FRESH_S
    assert not world.canary.is_fresh() and world.opens()
    assert (world.canary.is_answered, world.canary.fault) == (False, "the cache does not answer: no open")
    assert not world.canary.is_fresh()
    world.cache.error, world.cache.is_up = None, True
    world.now += AGAIN_S
    assert world.opens()
    world.reports()
    assert (world.canary.is_answered, world.canary.fault) == (True, None)


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
    files, open_inodes = OpenFiles(tmp_path), canary._open_inodes

    def slowly() -> set[tuple[int, int]]:
        inodes = open_inodes()
        time.sleep(0.2)
        return inodes

    monkeypatch.setattr(canary, "_open_inodes", slowly)
    assert not files.has("/f.root")
    with (tmp_path / "f.root").open("rb"):
        assert files.has("/f.root"), "the look before is too old: it began 0.2 s ago"
        assert files.has("/f.root", within_s=0.0)
