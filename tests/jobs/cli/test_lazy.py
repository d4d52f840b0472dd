"""Lazy imports: a module waits for its first use, and no search through the loaded modules finds it."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import sys
from jobs.cli.lazy import lazily
with lazily():
    from jobs.train import forecast
assert "jobs.train.forecast" not in sys.modules
from jobs.train.forecast import run
assert forecast.run is run
"""


def test_a_lazy_module_is_loaded_at_its_first_use_and_is_the_one_that_others_import() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
