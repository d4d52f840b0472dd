"""Kernels are compiled once, however many processes begin together."""

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
CALLEE = """
from features.common.jit import bare

@bare
def plus(a, b):
    return WEIGHT * a + b
"""
CALLER = """
import numpy as np
from callee import plus
from features.common.jit import kernel

@kernel
def total(values):
    found = 0.0
    for one in values:
        found = plus(found, one)
    return found

print(total(np.arange(3.0)))
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


def go_on(begun: subprocess.Popen[str]) -> None:
    """Let it call its kernels."""
    assert begun.stdin is not None
    begun.stdin.write("\n")
    begun.stdin.flush()


def compiled(begun: subprocess.Popen[str]) -> int:
    printed, _ = begun.communicate(timeout=100)
    assert begun.returncode == 0
    return int(printed)


def test_of_processes_that_begin_together_one_compiles(begin: Begin) -> None:
    together = [begin() for _ in range(3)]
    for process in together:
        go_on(process)
    assert sorted(map(compiled, together)) == [0, 0, 2]


def test_a_lock_that_somebody_keeps_only_delays(tmp_path: Path, begin: Begin) -> None:
    (tmp_path / "__pycache__").mkdir()
    with (tmp_path / "__pycache__" / "made.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        waiting = begin()
        with pytest.raises(subprocess.TimeoutExpired):
            waiting.communicate("\n", timeout=4)
    assert compiled(waiting) == 2


def go(begun: subprocess.Popen[str]) -> int:
    """Let it call its kernels; how many it compiled."""
    go_on(begun)
    return compiled(begun)


def test_machine_code_that_is_damaged_or_of_another_kernel_is_compiled_anew(
    tmp_path: Path, begin: Begin
) -> None:
    assert [go(begin()), go(begin())] == [2, 0]
    plus, total = sorted((tmp_path / "__pycache__").glob("*.nbc"))
    for damage in (b"", b"junk", plus.read_bytes()):
        total.write_bytes(damage)
        assert go(begin()) == 1, damage
    assert go(begin()) == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another account")
def test_machine_code_that_another_account_may_write_is_not_read(tmp_path: Path, begin: Begin) -> None:
    others: list[Callable[[Path], object]] = [
        lambda code: os.chown(code, 12345, -1),
        lambda code: code.chmod(0o664),
    ]
    assert go(begin()) == 2
    for made_so in others:
        for code in (tmp_path / "__pycache__").glob("*.nbc"):
            made_so(code)
        assert go(begin()) == 2
    assert go(begin()) == 0


def test_where_the_disk_is_full_a_kernel_is_compiled_all_the_same(
    tmp_path: Path, begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "CALL", "import resource\nresource.setrlimit(1, (9, 9))\n" + CALL)
    assert go(begin()) == 2
    assert not list((tmp_path / "__pycache__").glob("*.nbc"))


def test_a_kernel_is_compiled_anew_when_one_of_another_module_changes(tmp_path: Path) -> None:
    (tmp_path / "caller.py").write_text(CALLER)
    printed = []
    for text in ("WEIGHT = 1", "WEIGHT = 10", "WEIGHT = 1"):
        (tmp_path / "callee.py").write_text(text + CALLEE)
        printed.append(ran(tmp_path))
    assert printed == [3.0, 12.0, 3.0]
    assert len(list((tmp_path / "__pycache__").glob("caller*.nbc"))) == 1


def ran(folder: Path) -> float:
    """What the caller prints."""
    env = os.environ | {"PYTHONPATH": f"{folder}:{ROOT}", "PYTHONDONTWRITEBYTECODE": "1"}
    words = [sys.executable, "-c", "import caller"]
    return float(subprocess.run(words, env=env, capture_output=True, text=True, check=True).stdout)
