"""Temporary folders of long work: what a killed process leaves goes with the next one, and nothing else."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from jobs.ground.store.locks import scratch_folder

WORK = """
import sys, time
from jobs.ground.store.locks import scratch_folder
with scratch_folder("walk-") as folder:
    (folder / "scores").write_text("x")
    print(folder, flush=True)
    time.sleep(600)
"""


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def aged(folder: Path) -> None:
    """Let a folder look as if nothing had been written into it for an hour."""
    os.utime(folder, (time.time() - 3600,) * 2)


@contextmanager
def at_work(shared: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """Another process with a folder of its own."""
    env = os.environ | {"TMPDIR": str(shared)}
    words = [sys.executable, "-c", WORK]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=env) as process:
        try:
            assert process.stdout is not None
            yield process, Path(process.stdout.readline().strip())
        finally:
            process.kill()


def test_the_folder_of_a_killed_process_goes_and_that_of_a_living_one_stays(shared: Path) -> None:
    with at_work(shared) as (process, theirs):
        aged(theirs)
        with scratch_folder("walk-") as ours:
            assert theirs.is_dir()
            assert ours.is_dir()
        assert not ours.exists()
        process.send_signal(signal.SIGKILL)
        process.wait()
        aged(theirs)
        with scratch_folder("walk-"):
            assert not theirs.exists()


def test_a_young_folder_a_link_a_file_and_other_names_stay(shared: Path) -> None:
    precious = shared / "precious"
    for name in ("precious", "walk-young", "other-old"):
        (shared / name).mkdir()
    (shared / "walk-link").symlink_to(precious)
    (shared / "walk-file").write_text("x")
    for name in ("precious", "other-old", "walk-file"):
        aged(shared / name)
    before = set(shared.iterdir())
    with scratch_folder("walk-"):
        pass
    assert set(shared.iterdir()) == before
