"""Closes of files as a cache reports them."""

import dataclasses
from typing import Any

from prefetch.xcache.events import FileClose


def file_close(name: str, attach_s: int, detach_s: int, **changes: Any) -> FileClose:
    """A close of an empty file that was read by nobody; `changes`: other values."""
    event: dict[str, Any] = dict.fromkeys((field.name for field in dataclasses.fields(FileClose)), 0)
    event |= {"lfn": name, "attach_t": attach_s, "detach_t": detach_s, "received_t": detach_s, "remotes": ()}
    event |= {"host": "h", "inst": "", "site": "", "b_todisk": None, "b_prefetch": None}
    return FileClose(**(event | changes))
