"""Memory goes back to the system, as the system counts it."""

import subprocess
import sys

import pytest

ALLOCATE = """
import sys
import numpy as np
from features.common.memory import give_back, keep_large_apart

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

if sys.argv[1] == "apart":
    keep_large_apart()
np.ones(2**20)  # freed: glibc reuses arrays of this size from here on
arrays = [np.ones(2**20) for _ in range(40)]
full = resident()
del arrays[::2]
if sys.argv[1] == "given back":
    give_back()
print(round((full - resident()) / 2**23))
"""


@pytest.mark.parametrize("how", ["apart", "given back"])
def test_freed_arrays_are_the_systems_again(how: str) -> None:
    words = [sys.executable, "-c", ALLOCATE, how]
    freed = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert int(freed) >= 19, "of 20 arrays of 8 MB"
