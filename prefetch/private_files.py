"""Checks that a file with a secret can be read and changed by nobody else."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from features.common.errors import ConfigError


def check(path: Path, what: str, setting: str) -> None:
    """Raise ConfigError, with the `setting` that names it, unless `path` is a plain file and ours alone.

    `what`: for people, for example "keytab".
    """
    if (problem := fault(path, what)) is not None:
        raise ConfigError(setting, problem)


def fault(path: Path, what: str) -> str | None:
    """Why `path` is no plain file of ours alone, and the remedy; None: it is."""
    try:
        status = path.lstat()
    except OSError as error:
        return f"cannot read {what} {path}: {error.strerror}"
    if not stat.S_ISREG(status.st_mode):
        return f"{what} {path} is no plain file; name the file itself"
    if status.st_uid != os.geteuid():
        return f"{what} {path} belongs to another user; chown it to the one that runs this"
    if mode := stat.S_IMODE(status.st_mode) & 0o177:
        return f"{what} {path} is open to others (bits {mode:04o}); chmod 0600 it"
    return None
