"""What an XRootD server's version lets a pusher do."""

from __future__ import annotations

import dataclasses
import re

_NUMBERS = re.compile(r"v?([0-9]{1,4})\.([0-9]{1,4})(?:\.([0-9]{1,4}))?")
_KEEPS_OPEN_FILES = (5, 6)
_STAT_TELLS_WHOLE = (5, 8)


@dataclasses.dataclass(frozen=True)
class ServerVersion:
    """`numbers` as (5, 5, 3); empty if the server's words hold none: then it is taken for the oldest."""

    numbers: tuple[int, ...]

    @property
    def removes_open_files(self) -> bool:
        """Whether the command `remove_file` takes a file from under the job that reads it."""
        return self.numbers < _KEEPS_OPEN_FILES

    @property
    def stat_tells_whole(self) -> bool:
        """Whether the answer to `stat` says that all of a file is in the cache."""
        return self.numbers >= _STAT_TELLS_WHOLE


def parse_version(answer: str) -> ServerVersion:
    """The version in a server's answer to `query config version`, as `v5.5.3`."""
    found = _NUMBERS.match(answer.strip())
    return ServerVersion(() if found is None else tuple(int(part or 0) for part in found.groups()))
