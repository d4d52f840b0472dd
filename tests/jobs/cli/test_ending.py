"""How a command ends: by Ctrl-C in one line, and leaving nothing that others may read or write."""

import contextlib
import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from folder_site import folder_site

from jobs.ground.signals import Stopped, until_signalled

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


@pytest.mark.parametrize("engine", ["local", "spark"])
def test_others_read_and_write_nothing_that_a_command_leaves(tmp_path: Path, engine: str) -> None:
    trace = {"eventType": "get", "scope": "s", "filename": "f", "filesize": 1, "timeStart": 1, "timeEnd": 2}
    tmp_path.chmod(0o755)
    (tmp_path / "traces").mkdir()
    (tmp_path / "traces" / "t.jsonl").write_text(json.dumps(trace) + "\nno trace\n")
    env = {
        **{name: os.environ[name] for name in ("PATH", "JAVA_HOME") if name in os.environ},
        "HOME": str(tmp_path),
        "CACHECAST_CONF": str(folder_site(tmp_path, cache="d")),
        "CACHECAST_SOURCES__LOCAL_UP_TO": "4GB" if engine == "local" else "1",
        "CACHECAST_PUSH__JOURNAL": str(tmp_path / "out" / "journal.db"),
        "CACHECAST_TABLES__ROOT": str(tmp_path / "out" / "tables"),
        "CACHECAST_MLFLOW__URI": f"sqlite:///{tmp_path}/out/mlflow.db",
        "CACHECAST_METRICS__FOLDER": str(tmp_path / "metrics"),
    }
    for name in ("out", "origin", "cache"):
        (tmp_path / name).mkdir()
    words = ["pull", "--source", "rucio_traces", "--input", str(tmp_path / "traces"), "--day", "2026-03-01"]
    for command in (words, ["status", "--json"]):
        subprocess.run(
            [sys.executable, "-c", "from jobs.cli.main import main; main()", *command],
            env=env,
            umask=0,
            check=False,
            timeout=200,
            capture_output=True,
        )
    left = [path for path in (tmp_path / "out").rglob("*") if not path.is_symlink()]
    assert {path.suffix for path in left} >= {".parquet", ".db"}
    open_to_others = stat.S_IRWXO | stat.S_IWGRP
    assert [str(path) for path in left if stat.S_IMODE(path.stat().st_mode) & open_to_others] == []
    # node_exporter is another account.
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "metrics").iterdir()}
    assert modes == {0o644}


class SignalledInFinalizer:
    """An object during whose finalizer a signal comes."""

    def __del__(self) -> None:
        signal.raise_signal(signal.SIGTERM)


class Hurried(threading.Timer):
    """Another signal comes before it starts."""

    def start(self) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        super().start()


class Slow(threading.Timer):
    """The first signal is still reported when the second is sent."""

    def start(self) -> None:
        super().start()
        time.sleep(0.3)


@pytest.mark.parametrize(
    ("timer", "n_signals"), [(threading.Timer, 1), (Hurried, 2), (Slow, 1)], ids=["one", "two", "late"]
)
def test_signals_that_come_in_finalizers_end_what_may_be_ended(
    monkeypatch: pytest.MonkeyPatch, timer: type[threading.Timer], n_signals: int
) -> None:
    monkeypatch.setattr("jobs.ground.signals.threading.Timer", timer)
    start_s = time.monotonic()
    with until_signalled() as stopping, pytest.raises(Stopped), stopping.at_once():
        for _ in range(n_signals):
            SignalledInFinalizer()
        time.sleep(20)
    assert stopping() and time.monotonic() - start_s < 10


def test_a_signal_in_a_finalizer_at_the_end_of_the_block_is_remembered() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with until_signalled() as stopping:
        with contextlib.suppress(Stopped), stopping.at_once():
            SignalledInFinalizer()
        time.sleep(0.05)
        assert stopping()
    assert signal.getsignal(signal.SIGTERM) is before
