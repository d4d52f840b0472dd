"""How a command ends: one line for Ctrl-C (exit code 130) and for failures that a person can correct.

Nothing that libraries print after the end of the work is shown.
"""

import atexit
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from features.common.errors import printable

CODE = 130  # exit code of a process that Ctrl-C has ended
_NO_ROOM = (
    "No space left on device",
    "File too large",
    "Disk quota exceeded",
    "database or disk is full",
    "No usable temporary directory",
)
_NO_MEMORY = (
    "the memory does not suffice; no table is half written: choose fewer days or a smaller input, or a "
    "machine with more memory, and run it again"
)
_REMEDIES = {
    ("JAVA_GATEWAY_EXITED",): "Spark's JVM did not start, and said why above: it needs Java 17 or later "
    "(`java -version`), and sound values of [spark] driver_memory and conf",
    ("DRIVER_MEMORY", "EXECUTOR_MEMORY", "java.lang.OutOfMemoryError"): "Spark has too little memory; no "
    "table is half written: raise [spark] driver_memory, on a cluster also spark.executor.memory in its conf "
    "(each 450m at least), and run it again",
    ("ExecutorLostFailure", "Python worker exited", "failed to map segment", "\nMemoryError"): "a worker of "
    "Spark has too little memory; no table is half written: raise in [spark] conf "
    "spark.executor.memoryOverhead (and spark.executor.pyspark.memory, if it is set), and run it again",
    _NO_ROOM: "a disk is full; no table is half written: make room where [tables] root, [push] journal and "
    "Spark's temporary files (spark.local.dir) are, and run it again",
}


@contextmanager
def in_one_line(say: Callable[[str], None]) -> Iterator[None]:
    """End the block on Ctrl-C: report it in one line by `say`, and raise SystemExit(130).

    What the block raises while it unwinds, and what libraries log, is not shown. A second Ctrl-C ends the
    process at once.
    """
    came: list[int] = []

    def stop(number: int, _frame: FrameType | None) -> None:
        if came:
            os._exit(CODE)
        came.append(number)
        logging.disable()
        raise KeyboardInterrupt

    before = signal.getsignal(signal.SIGINT)
    if before is not signal.SIG_IGN:  # as in the background of a shell script
        signal.signal(signal.SIGINT, stop)
    try:
        yield
    except BaseException:
        if not came:
            raise
        say("interrupted")
        raise SystemExit(CODE) from None
    finally:
        if not came:
            signal.signal(signal.SIGINT, before)


def leave() -> None:
    """End an interrupted process: quietly, and without waiting for threads that are still at work."""
    sys.stdout.flush()
    _silence()
    others = [thread for thread in threading.enumerate() if thread is not threading.main_thread()]
    if any(not other.daemon for other in others):
        os._exit(CODE)


def end_quietly() -> None:
    """Print nothing to stderr once the process has ended its work and its exit handlers have run.

    What a daemon thread still holds then, for example one of MLflow or Spark, DuckDB's binding (nanobind)
    takes for leaks, and lists them on a page that looks like a crash; DuckDB offers no switch for that. Exit
    handlers run last in, first out: call it before any work.
    """
    atexit.register(_silence)


def _silence() -> None:
    sys.stderr.flush()
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def remedy(error: Exception) -> str | None:
    """What a person can do about `error`, in one line; None if the error is not a known one.

    Known are full disks, too little memory, a missing Java, a package that is not installed, and paths that
    cannot be used.
    """
    if isinstance(error, ModuleNotFoundError):
        package = (error.name or "").partition(".")[0]
        if sys.modules.get(package) is None:
            return f"{package} is not installed here: pip install 'cachecast[controller]'"
    if isinstance(error, MemoryError):
        return _NO_MEMORY
    text = str(error)
    if remedies := [what for words, what in _REMEDIES.items() if any(word in text for word in words)]:
        return remedies[0]
    if isinstance(error, OSError) and isinstance(path := error.filename2 or error.filename, str | bytes):
        return printable(f"cannot use {os.fsdecode(path)}: {error.strerror}; check the path and its rights")
    return None
