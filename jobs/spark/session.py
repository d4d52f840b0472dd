"""The Spark session of every job: UTC, quiet, and closed to the network when local."""

from __future__ import annotations

import atexit
import functools
import logging
import os
import shutil
import sys
import tempfile
from pathlib import Path

from pyspark import SparkConf
from pyspark.sql import SparkSession

from jobs.settings.tree import SparkSettings
from jobs.spark import code_zip, jvm

_log = logging.getLogger(__name__)

_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""Set where spark-submit started this process."""

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


def spark_session(settings: SparkSettings) -> SparkSession:
    """A running SparkSession, which may be the existing one of the process.

    `settings.conf` overrides everything set here, except that its `spark.driver.extraJavaOptions`
    are added to ours. Timestamps are UTC; Parquet holds them as int64 microseconds. Workers elsewhere than in
    this process get the rooms as a zip: they need this Python and the libraries, but not cachecast. Under
    spark-submit its own --master counts.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    with tempfile.TemporaryDirectory(prefix="cachecast-") as folder:
        log4j = Path(folder) / "log4j2.properties"
        log4j.write_text(_LOG4J)
        conf = SparkConf(loadDefaults=False).setAppName("cachecast")
        conf.setAll(list(session_conf(settings, log4j).items()))
        if _SUBMITTED not in os.environ:
            jvm.start(conf.setMaster(settings.master))
        session = SparkSession.builder.config(conf=conf).getOrCreate()
    _log.info("Spark %s runs at %s", session.version, session.sparkContext.master)
    if not str(session.sparkContext.master).startswith("local"):
        session.sparkContext.addPyFile(str(_rooms()))
    return session


@functools.cache
def _rooms() -> Path:
    """The zip of the rooms; workers may request it at any time, so it stays until this process ends."""
    folder = Path(tempfile.mkdtemp(prefix="cachecast-rooms-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return code_zip.write(folder / "cachecast-rooms.zip")


def session_conf(settings: SparkSettings, log4j: Path) -> dict[str, str]:
    """Every Spark setting of a session, by key."""
    conf = {
        "spark.driver.memory": settings.driver_memory,
        "spark.sql.shuffle.partitions": str(settings.shuffle_partitions),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.parquet.compression.codec": "zstd",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # A year of days is listed in the driver: a Spark job for it costs more than it saves.
        "spark.sql.sources.parallelPartitionDiscovery.threshold": "512",
        # Feature plans generate more classes than the default keeps; without room each run compiles anew.
        "spark.sql.codegen.cache.maxEntries": "2000",
        # The JVM never compiles a method of more than 8000 bytes, so Spark must not generate any.
        "spark.sql.codegen.hugeMethodLimit": "8000",
        # Recording the line of code of each column takes most of the time of building a plan.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    if settings.master.startswith("local"):
        conf |= {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
    conf |= settings.conf
    options = f"-Dlog4j2.configurationFile={log4j.as_uri()} {settings.conf.get(_JAVA_OPTIONS, '')}"
    return conf | {_JAVA_OPTIONS: options.strip()}
