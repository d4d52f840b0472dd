"""The demo's two caches side by side, ended in the middle of their reads."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from commands import command_lines
from waiting import eventually

from jobs.local_site.local.xrootd import available

pytestmark = pytest.mark.service
COMMAND = """
import sys
from pathlib import Path
from jobs.cli import ending
from jobs.local_site.demo import pair

pair._GENERATED = 6000  # learned from in a second

def advance(done, total, what):
    if done:
        print("reads", flush=True)

with ending.in_one_line(print):
    pair.run(Path(sys.argv[1]), seed=1, on_progress=advance)
"""


@pytest.mark.parametrize("signalled", [signal.SIGINT, signal.SIGKILL])
def test_one_that_is_ended_leaves_no_server(folder_of_all: Path, signalled: signal.Signals) -> None:
    if (fault := available()) is not None:
        pytest.fail(f"these tests need a real XCache: {fault}")
    words = [sys.executable, "-c", COMMAND, str(folder_of_all / "out")]
    environment = os.environ | {"TMPDIR": str(folder_of_all)}
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment) as command:
        assert command.stdout is not None
        assert command.stdout.readline() == "reads\n"
        assert eventually(lambda: len(servers(folder_of_all)) >= 4)
        command.send_signal(signalled)
        command.communicate(timeout=180)
    assert eventually(lambda: not servers(folder_of_all))


def servers(folder: Path) -> list[str]:
    """Command lines of the processes that run on a configuration in `folder`."""
    words = ("xrootd", f"{folder}/", "-c ")
    lines = command_lines().values()
    return [line for line in lines if all(word in line for word in words) and "python" not in line]
