"""Java is looked for before Spark starts, and Spark leaves Ctrl-C to the command line."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from features.common.errors import ServiceError
from jobs.ground.spark import session
from jobs.ground.spark.java import check_spark, java


def test_a_machine_without_java_is_told_the_remedy(tmp_path: Path) -> None:
    for env in ({"PATH": str(tmp_path)}, {"PATH": "/usr/bin:/bin", "JAVA_HOME": str(tmp_path)}):
        with pytest.raises(
            ServiceError, match=r"no java .*; Spark needs Java 17: conf/deploy/system\.sh core"
        ):
            check_spark(env)
    check_spark({"PATH": "", "PYSPARK_GATEWAY_PORT": "1"})


def test_java_home_comes_first(tmp_path: Path) -> None:
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    program.touch(mode=0o755)
    assert java({"PATH": "/usr/bin:/bin", "JAVA_HOME": str(tmp_path)}) == str(program)


@pytest.fixture
def plain_handler() -> Iterator[None]:
    """The handler that a process begins with, whatever other tests have left."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("plain_handler")
def test_ctrl_c_ends_a_jvm_that_is_still_starting() -> None:
    with pytest.raises(KeyboardInterrupt), session._interruptible():
        started = subprocess.Popen(["/bin/sleep", "60"])
        signal.raise_signal(signal.SIGINT)
    assert started.wait(60) == -signal.SIGTERM
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.usefixtures("plain_handler")
def test_a_session_keeps_the_handler_of_ctrl_c(spark: SparkSession) -> None:
    assert spark.sparkContext is not None
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
