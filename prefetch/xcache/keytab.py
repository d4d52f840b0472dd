"""The keytab of XRootD's simple shared secret: used only if nobody else can read it."""

from __future__ import annotations

import os
from pathlib import Path

from features.errors import ConfigError
from prefetch import private_files

_VARIABLE = "XrdSecSSSKT"


def use(path: Path, setting: str) -> None:
    """Let the XRootD client of this process log in by the keytab at `path`.

    The client reads one keytab a process: keys of several caches lie in one file. Raises ConfigError, with
    the `setting` it was given by, for a file that is not there, not ours alone, or not the one in use.
    """
    private_files.check(path, "keytab", setting)
    in_use = os.environ.get(_VARIABLE)
    if in_use is not None and Path(in_use) != path:
        raise ConfigError(
            setting, f"this process logs in by {in_use} already; put the keys of all caches into one file"
        )
    os.environ[_VARIABLE] = str(path)
