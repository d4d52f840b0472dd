"""Ctrl-C: exit code 130 and one line, whatever the command raises, logs or still does in threads."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

COMMAND = """
import logging, sys, threading, time
from jobs.cli import console, ending, main

def app():
    threading.Thread(target=time.sleep, args=[60]).start()
    print("ready", flush=True)
    try:
        time.sleep(60)
    finally:
        logging.exception("KeyboardInterrupt while sending command.")
        {ending}

main.app = app
main.main()
"""


@pytest.mark.parametrize("ending", ["pass", "raise RuntimeError('reentrant call')", "sys.exit(3)"])
def test_an_interrupted_command_is_one_line(ending: str) -> None:
    words = [sys.executable, "-c", COMMAND.format(ending=ending)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as command:
        assert command.stdout is not None
        assert command.stdout.readline() == "ready\n"
        command.send_signal(signal.SIGINT)
        _, errors = command.communicate(timeout=120)
    assert (command.returncode, errors) == (130, "interrupted\n")


def test_a_command_that_ignores_ctrl_c_goes_on() -> None:
    """As in the background of a shell script."""
    code = """
import signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
from jobs.cli import ending
with ending.in_one_line(print):
    signal.raise_signal(signal.SIGINT)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


ENDING = """
import atexit, sys, threading, time
import duckdb
from jobs.cli import main

def app():
    held = duckdb.connect()
    threading.Thread(target=lambda: (held, time.sleep(60)), daemon=True).start()
    atexit.register(print, "the last line", file=sys.stderr)
    sys.exit(3)

main.app = app
main.{run}()
"""


@pytest.mark.parametrize(("run", "is_listed"), [("app", True), ("main", False)])
def test_what_a_thread_holds_at_the_end_is_not_listed(run: str, is_listed: bool) -> None:
    words = [sys.executable, "-c", ENDING.format(run=run)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.splitlines()[0]) == (3, "the last line")
    assert ("leaked" in done.stderr) == is_listed
