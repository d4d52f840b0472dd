"""The heartbeat of a collector, a file in its folder of captures."""

from __future__ import annotations

import contextlib
import json
import math
import time
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import pydantic

from features.common import files
from features.common.errors import InputError, NotPlainError
from features.common.input_files import InputFile, plain

EVERY_S: Final = 2.0
FRESH_S: Final = 15.0
"""After so many seconds of silence a collector hangs, or has ended."""
_NAME: Final = ".heartbeat"
_MAX_BYTES: Final = 4096

_Count = Annotated[int, pydantic.Field(ge=0, lt=2**63)]


class Heartbeat(NamedTuple):
    """A collector's counts since its start: datagrams `dropped` by the kernel, and those `over_quota`.

    `is_full`: no datagram is kept now.
    """

    dropped: _Count
    over_quota: _Count
    is_full: bool

    def write(self, folder: Path) -> None:
        """Replace the heartbeat in `folder`; if it cannot be written, its age shows that."""
        with contextlib.suppress(OSError):
            files.write(folder / _NAME, json.dumps(self._asdict()), settle=False)


def end(folder: Path) -> None:
    """Delete the heartbeat: the collector has ended."""
    with contextlib.suppress(OSError):
        (folder / _NAME).unlink(missing_ok=True)


_HEARTBEAT: Final = pydantic.TypeAdapter(Heartbeat)


def read(folder: Path) -> Heartbeat:
    """The heartbeat of the collector that writes to `folder`. Raises InputError if none does, or it hangs."""
    path = folder / _NAME
    try:
        age_s = time.time() - path.stat().st_mtime
        with plain(InputFile(folder, _NAME)) as name, Path(name).open("rb") as opened:
            found = _HEARTBEAT.validate_python(json.loads(opened.read(_MAX_BYTES)))
    except (OSError, ValueError, NotPlainError):
        age_s = math.inf
    if not -FRESH_S < age_s < FRESH_S:
        was = "no collector writes" if math.isinf(age_s) else "the collector has hung that writes"
        raise InputError(
            f"{was} to {folder}, so that nothing is reported; start it: cachecast collect --port PORT "
            f"--out {folder}"
        )
    return found


def check(folder: Path) -> Heartbeat:
    """As `read`. Raises InputError also while the captures fill their quota, so that reports are refused."""
    found = read(folder)
    if found.is_full:
        raise InputError(
            f"captures in {folder} fill their quota, so that reports are refused; pull them, or raise "
            "[collect] quota"
        )
    return found
