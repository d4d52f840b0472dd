"""A command of cachecast in a process of its own, with a Java that only notes that it was started."""

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

_JAVA = '#!/bin/sh\necho java >> "{note}"\nexit 1\n'
_COMMAND = """
import sys
from jobs.cli.main import app
try:
    app({words!r}, standalone_mode=False)
finally:
    with open({note!r}, "a") as note:
        print(*sorted({{"pyspark", "py4j", "sqlalchemy"}} & set(sys.modules)), file=note)
"""


class Watched(NamedTuple):
    """The exit code and output of a command, and what of Spark it loaded or started: `java`, `pyspark`, …"""

    returncode: int
    stdout: str
    stderr: str
    spark: set[str]


def cachecast(folder: Path, *words: str) -> Watched:
    """Run a command; its Java is made in `folder`."""
    program, note = folder / "home/bin/java", folder / "note"
    program.parent.mkdir(parents=True)
    program.write_text(_JAVA.format(note=note))
    program.chmod(0o755)
    env = os.environ | {"JAVA_HOME": str(folder / "home"), "PATH": f"{program.parent}:{os.environ['PATH']}"}
    code = _COMMAND.format(words=list(words), note=str(note))
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=env, timeout=180
    )
    return Watched(done.returncode, done.stdout, done.stderr, set(note.read_text().split()))
