"""The XRootD versions on this machine that tests of real servers run on: the system's, and those built here.

`CACHECAST_XROOTD_VERSIONS`, for example `5.5.3 6.2.1`, names those that have to be here and take all tests;
without it all run on the newest, and those marked `every_version` on the system's too.
`conf/deploy/xrootd.sh VERSION` builds one.
"""

import functools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

BUILDS: Final = ("5.9.9", "6.2.1")
"""The versions that `conf/deploy/xrootd.sh` can build."""
NONE: Final = "none"


def built() -> Path:
    """The folder of the versions built on this machine."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cachecast" / "xrootd"


@functools.cache
def programs() -> dict[str, Path]:
    """The folder of the programs of each version here; the system's first."""
    programs_found = dict[str, Path]()
    system = shutil.which("xrootd")
    for folder in [*([Path(system).parent] if system else []), *(built() / name / "bin" for name in BUILDS)]:
        if (version := _version(folder / "xrootd")) is not None:
            programs_found.setdefault(version, folder)
    return programs_found


def named_versions() -> tuple[str, ...]:
    """The versions that the environment names."""
    return tuple(os.environ.get("CACHECAST_XROOTD_VERSIONS", "").split())


def tested() -> tuple[str, ...]:
    """The versions to test: those asked for, else the system's and the newest here."""
    here = list(programs())
    return named_versions() or tuple(dict.fromkeys(here[:1] + here[-1:])) or (NONE,)


def of_all_tests() -> tuple[str, ...]:
    """The versions that every test runs on: those asked for, else the newest here."""
    return named_versions() or tested()[-1:]


def summary() -> str:
    """One line: which versions are tested, and which could be."""
    few = [f"{version} by a few tests" for version in tested() if version not in of_all_tests()]
    missing = [version for version in BUILDS if version not in tested()]
    hint = f"; not tested here: {', '.join(missing)} (conf/deploy/xrootd.sh VERSION builds one)"
    return f"XRootD versions tested: {', '.join([*of_all_tests(), *few])}{hint if missing else ''}"


@contextmanager
def in_use(version: str) -> Iterator[None]:
    """Servers that are started meanwhile are of `version`."""
    if version == NONE:
        yield  # what needs a server says that there is none
        return
    folder = programs().get(version)
    if folder is None:
        pytest.fail(f"no XRootD {version} on this machine: run conf/deploy/xrootd.sh {version}")
    with tempfile.TemporaryDirectory(prefix="xrootd-") as reachable, pytest.MonkeyPatch.context() as patch:
        if not folder.is_relative_to("/usr"):
            # The account that root runs servers as may enter no home folder.
            shutil.copytree(folder.parent, reachable, dirs_exist_ok=True, symlinks=True)
            Path(reachable).chmod(0o755)
            folder = Path(reachable) / "bin"
        patch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
        yield


def _version(program: Path) -> str | None:
    if not program.exists():
        return None
    answer = subprocess.run([program, "-v"], capture_output=True, text=True, check=False)
    return (answer.stdout + answer.stderr).strip().removeprefix("v") or None
