"""A daemon that crashes as it starts is started again."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from features.common.errors import ServiceError
from jobs.local_site.local import daemon
from jobs.local_site.local.daemon import Daemon

ENDS = """
import os, signal, sys
with open(sys.argv[1], "a") as starts:
    starts.write("x")
n_crashes = int(sys.argv[2])
if os.path.getsize(sys.argv[1]) <= n_crashes:
    os.kill(os.getpid(), signal.SIGKILL)
"""


class Ending(Daemon):
    """It ends as it starts, the first `n_crashes` times by a signal."""

    def __init__(self, folder: Path, n_crashes: int) -> None:
        super().__init__("role", folder, 1, "")
        self.starts, self._n_crashes = folder / "starts", n_crashes

    def words(self, *, with_parent: bool) -> list[str]:
        return [sys.executable, "-c", ENDS, str(self.starts), str(self._n_crashes)]


@pytest.mark.parametrize(("n_crashes", "n_starts"), [(0, 1), (2, 3), (99, daemon._ATTEMPTS)])
def test_a_crash_is_tried_again_and_no_other_end(tmp_path: Path, n_crashes: int, n_starts: int) -> None:
    ending = Ending(tmp_path, n_crashes)
    with pytest.raises(ServiceError, match="does not answer"):
        ending.start()
    assert len(ending.starts.read_text()) == n_starts
