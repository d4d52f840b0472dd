"""The keytab of XRootD's simple shared secret: used only if nobody else can read it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from features.errors import ConfigError

_VARIABLE = "XrdSecSSSKT"


def use(path: Path, setting: str) -> None:
    """Let the XRootD client of this process log in by the keytab at `path`.

    The client reads one keytab a process: keys of several caches lie in one file. Raises ConfigError, with
    the `setting` it was given by, for a file that is not there, not ours alone, or not the one in use.
    """
    try:
        status = path.lstat()
    except OSError as error:
        raise ConfigError(setting, f"cannot read keytab {path}: {error.strerror}") from None
    if not stat.S_ISREG(status.st_mode):
        raise ConfigError(setting, f"keytab {path} is no plain file; name the file itself")
    if status.st_uid != os.geteuid():
        raise ConfigError(setting, f"keytab {path} belongs to another user; chown it to the one that pushes")
    if mode := stat.S_IMODE(status.st_mode) & 0o177:
        raise ConfigError(setting, f"keytab {path} is open to others (bits {mode:04o}); chmod 0600 it")
    in_use = os.environ.get(_VARIABLE)
    if in_use is not None and Path(in_use) != path:
        raise ConfigError(
            setting, f"this process logs in by {in_use} already; put the keys of all caches into one file"
        )
    os.environ[_VARIABLE] = str(path)
