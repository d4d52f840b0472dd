"""How Spark's session begins and ends, and the code that it is sent."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from features.common.errors import ServiceError
from features.schema import STATES, arrow_schema
from jobs.ground.spark import check_spark, session, write_code
from jobs.ground.spark.exchange import Staging
from jobs.ground.spark.session import WARNING
from jobs.ground.store.commits import MomentKey
from jobs.ground.store.tables import Tables

CODE = """
import logging, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
logging.getLogger("jobs.ground.spark").setLevel(int(sys.argv[1]))
from jobs.ground.settings.tree import SparkSettings
from jobs.ground.spark.session import spark_session
options = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
settings = SparkSettings(master="local[1]", driver_memory="1g", shuffle_partitions=1, conf=options)
spark = spark_session(settings)
err = spark._jvm.java.lang.System.err
for word in ("first", "WARNING: Using something else", "last"):
    err.println(word)
assert spark_session(settings) is spark
assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
"""
NOTHING, INFO = 0, 20


@pytest.mark.parametrize(
    ("level", "is_there"), [(NOTHING, False), pytest.param(INFO, True, marks=pytest.mark.verify)]
)
def test_a_start_keeps_away_one_warning_and_leaves_the_handler_of_ctrl_c(level: int, is_there: bool) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CODE, str(level)], capture_output=True, text=True, check=False, timeout=200
    )
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    assert (WARNING in lines) == is_there
    assert [line for line in lines if line != WARNING] == ["first", "WARNING: Using something else", "last"]


def test_a_machine_without_java_is_told_the_remedy(tmp_path: Path) -> None:
    for env in ({"PATH": str(tmp_path)}, {"PATH": "/usr/bin:/bin", "JAVA_HOME": str(tmp_path)}):
        with pytest.raises(
            ServiceError, match=r"no java .*; Spark needs Java 17: conf/deploy/system\.sh core"
        ):
            check_spark(env)
    check_spark({"PATH": "", "PYSPARK_GATEWAY_PORT": "1"})


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
    assert started.wait(10) == -signal.SIGTERM
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_it_is_importable_and_holds_the_shipped_settings(tmp_path: Path) -> None:
    path = write_code(tmp_path / "package.zip")
    code = "from importlib import resources; import features.schema as s; print(s.__file__); " \
           "print(len(resources.files('conf').joinpath('base.toml').read_text()) > 1000)"  # fmt: skip
    environment = {"PYTHONPATH": f"{path}:{':'.join(p for p in sys.path if p.endswith('site-packages'))}"}
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    where, has_settings = done.stdout.split()
    assert where.startswith(str(path))
    assert has_settings == "True"


def test_equal_code_makes_equal_bytes(tmp_path: Path) -> None:
    first = write_code(tmp_path / "a.zip").read_bytes()
    assert write_code(tmp_path / "b.zip").read_bytes() == first


KEY = MomentKey.at(1_772_323_200, "r")


def test_only_the_files_of_the_attempt_that_counts_are_read(tables: Tables) -> None:
    row = {"kind": "file", "entity": "s:a", "dataset": "s:d", "last_read_s": 0.0, "numbers": b"12345678"}
    rows = KEY, pa.Table.from_pylist([row], arrow_schema(STATES))
    staging = Staging.of(tables, STATES)
    (lost,), (committed,) = (list(staging.written([rows])) for _ in range(2))
    assert (lost.file.key, lost.file.folder) == (committed.file.key, committed.file.folder)
    assert lost.file.name != committed.file.name
    tables.commit(STATES, [committed.file], base=None)
    assert tables.read_arrow(STATES)["entity"].to_pylist() == ["s:a"]
