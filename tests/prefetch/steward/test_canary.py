"""Files go only while a file that the steward opened itself was reported a moment ago."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from features.common.errors import TargetUnavailable
from prefetch.directory.cache import DirectoryTarget
from prefetch.steward.canary import FRESH_S, LASTS_S, RENEW_S, Canary, OpenFiles
from prefetch.xcache.events import FileClose
from prefetch.xcache.fstream import Opened, Packet

NAME = "/store/a.root"
CLOSE = FileClose(NAME, 1, 1, 1, 1, 1, 0, 0, (), 0, 0, 0, None, None, "host", "xc", "", 0, 0, 0, 0)


class Cache(DirectoryTarget):
    """A folder whose files cannot be opened while `error` is set."""

    error: TargetUnavailable | None = None

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
        until = time.monotonic() + 5
        while tried and not self.canary._trial.is_over and time.monotonic() < until:
            time.sleep(0.01)
        self.canary.step(held)
        return bool(tried)

    def reports(self) -> None:
        opened = Opened(0, 1, 1, 1, NAME, False)
        self.canary.hear(Packet(0, 0, 0, 0, 0, (opened,), (), 0, 0, 0))
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
