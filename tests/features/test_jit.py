"""Kernels are compiled once, however many processes begin together."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULE = """
from features.common.jit import bare, kernel

@bare
def plus(a, b):
    return a + b

@kernel
def total(values):
    found = 0.0
    for one in values:
        found = plus(found, one)
    return found
"""
CALL = """
import sys
import numpy as np
from made import plus, total
print("ready", flush=True)
sys.stdin.readline()
assert total(np.arange(5.0)) == 10
print(sum(sum(one.stats.cache_misses.values()) for one in (plus, total)))
"""

Begin = Callable[[], subprocess.Popen[str]]


@pytest.fixture
def begin(tmp_path: Path) -> Begin:
    """Begins a process that calls a kernel at the next line, and says how many it compiled."""
    (tmp_path / "made.py").write_text(MODULE)

    def process() -> subprocess.Popen[str]:
        pipe, env = subprocess.PIPE, os.environ | {"PYTHONPATH": f"{tmp_path}:{ROOT}"}
        begun = subprocess.Popen([sys.executable, "-c", CALL], stdin=pipe, stdout=pipe, env=env, text=True)
        assert begun.stdout is not None
        assert begun.stdout.readline() == "ready\n"
        return begun

    return process


def compiled(begun: subprocess.Popen[str]) -> int:
    said, _ = begun.communicate(timeout=100)
    assert begun.returncode == 0
    return int(said)


def test_of_processes_that_begin_together_one_compiles(begin: Begin) -> None:
    together = [begin() for _ in range(3)]
    for one in together:
        assert one.stdin is not None
        one.stdin.write("\n")
        one.stdin.flush()
    assert sorted(map(compiled, together)) == [0, 0, 2]


def test_a_lock_that_somebody_keeps_only_delays(tmp_path: Path, begin: Begin) -> None:
    (tmp_path / "__pycache__").mkdir()
    with (tmp_path / "__pycache__" / "made.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        waiting = begin()
        with pytest.raises(subprocess.TimeoutExpired):
            waiting.communicate("\n", timeout=4)
    assert compiled(waiting) == 2


def test_where_no_lock_can_be_made_a_kernel_is_compiled_all_the_same(tmp_path: Path, begin: Begin) -> None:
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "made.lock").symlink_to("nowhere")
    begun = begin()
    assert begun.stdin is not None
    begun.stdin.write("\n")
    assert compiled(begun) == 2
    assert not (tmp_path / "__pycache__" / "nowhere").exists()
