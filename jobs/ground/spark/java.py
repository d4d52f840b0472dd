"""Whether Spark is here, and the Java of this machine, which it and servers made of jars need."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Mapping

from features.common.errors import ServiceError

_SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""Set where spark-submit started this process."""


def is_submitted(env: Mapping[str, str] = os.environ) -> bool:
    """Whether spark-submit started this process, with a JVM."""
    return _SUBMITTED in env


def has_spark() -> bool:
    """Whether Spark is installed; on a cache's host it need not be."""
    try:
        return importlib.util.find_spec("pyspark") is not None
    except (ModuleNotFoundError, ValueError):  # it may be kept from being found
        return False


def check_spark(env: Mapping[str, str] = os.environ) -> None:
    """Raise ServiceError if Spark cannot start here, for lack of Java."""
    if not is_submitted(env):
        java(env)


def java(env: Mapping[str, str] = os.environ) -> str:
    """The program: that of JAVA_HOME if it is set, as Spark does it. Raises ServiceError without one."""
    home = env.get("JAVA_HOME")
    program = shutil.which("java", path=f"{home}/bin" if home else env.get("PATH"))
    if program is None:
        where = f"in JAVA_HOME, {home}/bin" if home else "on PATH"
        raise ServiceError(f"there is no java {where}; Spark needs Java 17: conf/deploy/system.sh core")
    return program
