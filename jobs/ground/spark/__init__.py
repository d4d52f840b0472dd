"""The Spark session, tables as DataFrames, and what Spark needs: Java, and the code for its executors."""

import importlib.util
import os
import shutil
import zipfile
from collections.abc import Mapping
from pathlib import Path

from features.common.errors import ServiceError
from features.common.files import replaced

_SUBMITTED = "PYSPARK_GATEWAY_PORT"  # set where spark-submit started this process
_ROOMS = ("cachecast", "features", "replay", "prefetch", "models", "jobs", "dags", "conf")
_FORMS = frozenset({".py", ".toml", ".typed", ".html", ".css", ".js", ".svg"})
_EPOCH = (1980, 1, 1, 0, 0, 0)


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


def write_code(path: Path) -> Path:
    """Write the packages as a zip for `spark-submit --py-files`, atomically; returns `path`.

    Equal code makes equal bytes. A wheel would be accepted too, but its modules could not be imported.
    """
    root = Path(__file__).parents[3]
    with replaced(path) as draft, zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in (file for room in _ROOMS for file in sorted((root / room).rglob("*"))):
            if file.suffix in _FORMS and file.is_file():
                name = str(file.relative_to(root))
                archive.writestr(zipfile.ZipInfo(name, _EPOCH), file.read_bytes())
    return path
