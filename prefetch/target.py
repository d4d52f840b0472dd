"""What a pusher needs of a cache. Targets translate, and nothing else: limits and memory are the pusher's.

`prefetch.xcache.client.XCacheTarget` drives a real XCache, `prefetch.directory.cache.DirectoryTarget` a
folder; both obey the contract tests in `tests/prefetch/test_target_contract.py`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Protocol


@dataclasses.dataclass(frozen=True)
class Held:
    """One file in a cache, as the cache itself tells it. Times are s since 1970."""

    name: str
    size_bytes: int
    bytes_on_disk: int
    complete: bool
    last_detach_s: int | None
    is_open: bool


@dataclasses.dataclass(frozen=True)
class Confirmation:
    """The cache's own word on one file: `held` is None if it has no byte of it.

    `source`: cinfo, gstream or directory.
    """

    held: Held | None
    source: str


class CacheTarget(Protocol):
    """One cache. Each verb done twice equals once. Names are checked before they become a path or URL.

    Raises PushRejected where trying again cannot help, TargetUnavailable where it may, and of these
    SourceUnavailable where the cache answers, but not the origin of the file.
    """

    @property
    def name(self) -> str:
        """The cache's name in configuration."""
        ...

    def prefetch(self, name: str, *, timeout_s: float) -> int:
        """Make the cache fetch all of file `name`; return the file's size in bytes."""
        ...

    def touch(self, name: str, *, timeout_s: float) -> None:
        """Make `name` the most recently used file without reading it."""
        ...

    def evict(self, name: str, *, timeout_s: float) -> None:
        """Ask the cache to drop `name`; a file that is not there is no error."""
        ...

    def removes_open_files(self) -> bool:
        """Whether `evict` removes a file that a job has open."""
        ...

    def confirm(self, name: str) -> Confirmation:
        """What the cache itself says of `name` now."""
        ...

    def inventory(self) -> Iterable[Held]:
        """Every file the cache holds."""
        ...
