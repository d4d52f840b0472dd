"""The Spark session of every job: UTC, quiet, and closed to the network when local."""

import atexit
import contextlib
import functools
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from jobs.ground.settings.tree import SparkSettings
from jobs.ground.spark import check_spark, is_submitted, write_code

_log = logging.getLogger(__name__)
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"

# Before a session exists, only a log4j file can silence the messages of its start.
_LOG4J = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = spark %p %c{1}: %m%n%ex{1}
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
"""
WARNING = "WARNING: Using incubator modules: jdk.incubator.vector"
"""Spark's launcher adds this module to every JVM; the JVM reports it, and no option silences that."""
_SIEVE = ("grep", "--line-buffered", "-vxF", WARNING)
_sieves: list[subprocess.Popen[bytes]] = []


def spark_session(settings: SparkSettings) -> SparkSession:
    """A running SparkSession, which may be the existing one of the process.

    `settings.conf` overrides what is set here, but its `spark.driver.extraJavaOptions` are added to ours.
    Workers outside this process get the rooms as a zip: they need this Python and the libraries, but not
    cachecast. Under spark-submit its own --master counts. Raises ServiceError without Java.
    """
    check_spark()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    with tempfile.TemporaryDirectory(prefix="cachecast-") as folder:
        log4j = Path(folder) / "log4j2.properties"
        log4j.write_text(_LOG4J)
        conf = SparkConf(loadDefaults=False).setAppName("cachecast")
        conf.setAll(list(session_conf(settings, log4j).items()))
        with _interruptible():
            if not is_submitted():
                start(conf.setMaster(settings.master))
            session = SparkSession.builder.config(conf=conf).getOrCreate()
    _log.info("Spark %s runs at %s", session.version, session.sparkContext.master)
    if not str(session.sparkContext.master).startswith("local"):
        session.sparkContext.addPyFile(str(_package()))
    return session


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Keep the handler of Ctrl-C in the block, and end what was started in it, which would be left behind.

    Spark's own handler calls the JVM in the middle of another call, which fails.
    """
    handler, before = signal.getsignal(signal.SIGINT), _children()
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        for child in _children() - before:
            os.kill(child, signal.SIGTERM)
        handler(number, frame)

    signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


def _children() -> set[int]:
    listed = Path(f"/proc/self/task/{threading.get_native_id()}/children")
    return set(map(int, listed.read_text().split())) if listed.exists() else set()


@functools.cache
def _package() -> Path:
    """The program as a zip; workers may request it at any time, so it stays until this process ends."""
    folder = Path(tempfile.mkdtemp(prefix="cachecast-package-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return write_code(folder / "cachecast-package.zip")


def session_conf(settings: SparkSettings, log4j: Path) -> dict[str, str]:
    # `os.umask` would change that of other threads.
    umask = re.search(r"^Umask:\s*([0-7]+)$", Path("/proc/self/status").read_text(), re.M)
    conf = {
        "spark.driver.memory": settings.driver_memory,
        "spark.sql.shuffle.partitions": str(settings.shuffle_partitions),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # A year of days is listed in the driver: a Spark job for it costs more than it saves.
        "spark.sql.sources.parallelPartitionDiscovery.threshold": "512",
        # Recording the line of code of each column takes most of the time of building a plan.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        # Hadoop has an umask of its own; this process's holds.
        "spark.hadoop.fs.permissions.umask-mode": umask[1].zfill(3)[-3:] if umask else "027",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    if settings.master.startswith("local"):
        conf |= {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
    conf |= settings.conf
    options = f"-Dlog4j2.configurationFile={log4j.as_uri()} {settings.conf.get(_JAVA_OPTIONS, '')}"
    return conf | {_JAVA_OPTIONS: options.strip()}


def start(conf: SparkConf) -> None:
    """Start the JVM of this process, if it has none; its stderr is ours but for `WARNING`."""
    if SparkContext._gateway is not None or _log.isEnabledFor(logging.INFO):
        return
    # A process of its own loses no line: it reads until the JVM has ended, which may be after this process.
    # In a session of its own Ctrl-C does not reach it.
    sieve = subprocess.Popen(_SIEVE, stdin=subprocess.PIPE, stdout=2, start_new_session=True)
    _sieves.append(sieve)
    assert sieve.stdin is not None
    with sieve.stdin as entry:
        gateway = launch_gateway(conf, popen_kwargs={"stderr": entry})  # type: ignore[no-untyped-call]
    SparkContext._ensure_initialized(gateway=gateway)
