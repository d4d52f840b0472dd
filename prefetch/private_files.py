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
    try:
        status = path.lstat()
    except OSError as error:
        raise ConfigError(setting, f"cannot read {what} {path}: {error.strerror}") from None
    if not stat.S_ISREG(status.st_mode):
        raise ConfigError(setting, f"{what} {path} is no plain file; name the file itself")
    if status.st_uid != os.geteuid():
        raise ConfigError(
            setting, f"{what} {path} belongs to another user; chown it to the one that runs this"
        )
    if mode := stat.S_IMODE(status.st_mode) & 0o177:
        raise ConfigError(setting, f"{what} {path} is open to others (bits {mode:04o}); chmod 0600 it")
