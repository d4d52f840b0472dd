"""The JVM of local Spark, started here so that its stderr lacks one warning that nobody can act on."""

from __future__ import annotations

import logging
import subprocess

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway

WARNING = "WARNING: Using incubator modules: jdk.incubator.vector"
"""Spark's launcher adds this module to every JVM; the JVM reports it, and no option silences that."""
_SIEVE = ("grep", "--line-buffered", "-vxF", WARNING)

_log = logging.getLogger(__name__)
_sieves: list[subprocess.Popen[bytes]] = []


def start(conf: SparkConf) -> None:
    """Start the JVM of this process, if it has none; its stderr is ours but for `WARNING`.

    With logging at INFO it is ours unchanged.
    """
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
