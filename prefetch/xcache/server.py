"""A server's version and what depends on it, the login, and the choice of files to ask the server for."""

from __future__ import annotations

import dataclasses
import heapq
import os
import re
from pathlib import Path

from features.common.errors import ConfigError
from prefetch import private_files

_VERSION = re.compile(r"v?([0-9]{1,2})\.([0-9]{1,4})(?:\.([0-9]{1,4}))?([-~]?rc)?")
_KEEPS_OPEN_FILES = (5, 6, 0)
_REPORTS_WRITTEN = (5, 7, 2)
_STAT_TELLS_WHOLE = (5, 8, 0)
_PURGES_BY_MTIME = (5, 8, 0)


@dataclasses.dataclass(frozen=True)
class ServerVersion:
    """`numbers` as (5, 5, 3); empty if the server's words hold none: then it is taken for the oldest.

    `is_candidate`: a release candidate of them, which may not yet do what the release does.
    """

    numbers: tuple[int, ...]
    is_candidate: bool = False

    @property
    def removes_open_files(self) -> bool:
        """Whether the command `remove_file` takes a file from under the job that reads it."""
        return not self._has(_KEEPS_OPEN_FILES)

    @property
    def reports_written(self) -> bool:
        """Whether the g-stream reports the bytes that were written to disk."""
        return self._has(_REPORTS_WRITTEN)

    @property
    def purges_at_start(self) -> bool:
        """Whether it purges when it starts, down to NOMINAL of `files BASE NOMINAL MAX`.

        Later versions look a minute after their start and every minute, and then go down to MAX.
        """
        return not self._has(_PURGES_BY_MTIME)

    def __str__(self) -> str:
        """For example `5.5.3`, `5.6.0-rc`, or `of unknown version`."""
        candidate = "-rc" if self.is_candidate else ""
        return ".".join(map(str, self.numbers)) + candidate or "of unknown version"

    def _has(self, since: tuple[int, ...]) -> bool:
        """Whether it does what releases do from the version `since` on."""
        return self.numbers > since or (self.numbers == since and not self.is_candidate)

    def described(self) -> str:
        """What depends on the version, in words for an operator."""
        said = [
            "removes open files when asked to evict" if self.removes_open_files else "keeps open files",
            f"a push is confirmed by {'stat' if self.stat_tells_whole else 'cinfo or the g-stream'}",
            f"the g-stream {'tells' if self.reports_written else 'does not tell'} what was fetched",
            "purges at its start" if self.purges_at_start else "purges from a minute after its start",
        ]
        unknown = "" if self.numbers else "; treated as the oldest"
        return f"XRootD {self}{unknown}: {', '.join(said)}"

    @property
    def stat_tells_whole(self) -> bool:
        """Whether the answer to `stat` says that all of a file is in the cache."""
        return self._has(_STAT_TELLS_WHOLE)


def parse_version(answer: str) -> ServerVersion:
    """The version in a server's answer to `query config version`, for example `v5.5.3`.

    Majors above 99 are no version.
    """
    found = _VERSION.match(answer.strip())
    if found is None:
        return ServerVersion(())
    *numbers, candidate = found.groups()
    return ServerVersion(tuple(int(part or 0) for part in numbers), is_candidate=candidate is not None)


N_ASKED = 5
"""Number of files that the server is asked about."""


class LastUsed:
    """The `N_ASKED` files that were used last, of those offered.

    Up to 5.5.3 a purge spares files that were asked for by `stat`, and these are what it would take last.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, str]] = []

    def offer(self, name: str, used_s: int) -> None:
        """Take `name` if it was used later than another one that was taken."""
        if len(self._heap) < N_ASKED:
            heapq.heappush(self._heap, (used_s, name))
        else:
            heapq.heappushpop(self._heap, (used_s, name))

    @property
    def names(self) -> list[str]:
        """Those taken, in no promised order."""
        return [name for _, name in self._heap]


KEYTAB, PROXY, TOKEN = "XrdSecSSSKT", "X509_USER_PROXY", "BEARER_TOKEN_FILE"
"""Variables that name the file by which the XRootD client of a process logs in."""
_WORDS = {KEYTAB: "keytab", PROXY: "proxy", TOKEN: "token file"}


def use_login(variable: str, path: Path, setting: str) -> None:
    """Let the XRootD client of this process log in by the file at `path`; `variable`: of what kind it is.

    The client reads one a process: caches share it. Raises ConfigError, with the `setting` it was given by,
    for a file that is not there, not ours alone, or not the one in use.
    """
    private_files.check(path, _WORDS[variable], setting)
    in_use = os.environ.get(variable)
    if in_use is not None and Path(in_use) != path:
        raise ConfigError(
            setting, f"this process logs in by {in_use} already; put the keys of all caches into one file"
        )
    os.environ[variable] = str(path)
