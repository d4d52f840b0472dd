"""The interface of a cache that a pusher uses. Targets only translate; limits and state belong to the pusher.

`prefetch.xcache.client.XCacheTarget` drives a real XCache, `prefetch.directory.DirectoryTarget` a
folder; both obey the contract tests in `tests/prefetch/test_target_contract.py`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple, Protocol

N_NAMED = 3
"""Of the files that are left out."""
CLOCK_ERROR_S = 2.0
"""A server reports whole seconds, and its answer may be on its way for up to 3 s."""


class Held(NamedTuple):
    """One file in a cache, as the cache itself reports it. Times are s since 1970.

    `last_detach_s`: end of the last access, touches and prefetches among them. `last_use_s`: end of the last
    access by a job, else when the file came; None where the cache does not tell jobs from pushes.
    `unreadable`: its record cannot be read or is not believed, so sizes and times are those of the file
    itself; 0 and None where these are unknown too.
    """

    name: str
    size_bytes: int
    bytes_on_disk: int
    complete: bool
    last_detach_s: int | None
    is_open: bool
    unreadable: bool = False
    last_use_s: int | None = None


class LeftOut(NamedTuple):
    """Files of a cache that no command can name: their number, their bytes on disk, and some names."""

    n_files: int = 0
    n_bytes: int = 0
    some: tuple[str, ...] = ()

    def with_one(self, held: Held) -> LeftOut:
        return LeftOut(self.n_files + 1, self.n_bytes + held.bytes_on_disk, (*self.some, held.name)[:N_NAMED])


@dataclasses.dataclass(frozen=True)
class Confirmation:
    """The cache's report on a file, None if it has no byte. `source`: cinfo, stat, gstream or directory."""

    held: Held | None
    source: str


class ServerIdentity(NamedTuple):
    """The identity of a cache's server in one of its lives, as in the headers of its monitoring.

    `started_s`: s since 1970; `pid`: of its process, in its own process namespace; `version`: `v5.5.3`.
    """

    host: str
    port: str
    instance: str
    started_s: int
    pid: int
    version: str = ""


class CacheTarget(Protocol):
    """One cache. Each verb done twice equals once. Names are checked before they become a path or URL.

    Raises PushRejected where trying again cannot help, TargetUnavailable where it may, and its kind
    SourceUnavailable where the cache answers and the origin of the file does not.

    For example a cache in memory, of files of known sizes:

    >>> import time
    >>> from prefetch.lfn import checked_lfn
    >>> class MemoryTarget:
    ...     name, left_out = "memory", LeftOut()
    ...     def __init__(self, origin: dict[str, int]) -> None:
    ...         self.origin, self.files = origin, dict[str, Held]()
    ...     def prefetch(self, name: str, *, timeout_s: float) -> int:
    ...         size = self.origin[checked_lfn(name)]
    ...         self.files[name] = Held(name, size, size, True, int(time.time()), is_open=False)
    ...         return size
    ...     def touch(self, name, *, timeout_s, meanwhile=lambda: None) -> None:
    ...         meanwhile()
    ...         self.files[name] = self.files[name]._replace(last_detach_s=int(time.time()))
    ...     def evict(self, name: str, *, timeout_s: float) -> None:
    ...         self.files.pop(name, None)
    ...     def removes_open_files(self) -> bool:
    ...         return False
    ...     def identity(self) -> None: ...
    ...     def clock_skew_s(self) -> float:
    ...         return 0.0
    ...     def confirm(self, name: str) -> Confirmation:
    ...         return Confirmation(self.files.get(name), "directory")
    ...     confirm_absent = confirm
    ...     def inventory(self, expected=()):
    ...         return self.files.values()
    >>> target = MemoryTarget({"/store/a.root": 4})
    >>> target.prefetch("/store/a.root", timeout_s=1)
    4
    >>> target.confirm("/store/a.root").held.complete
    True
    >>> target.evict("/store/a.root", timeout_s=1)
    >>> list(target.inventory())
    []
    """

    @property
    def name(self) -> str:
        """The cache's name in configuration."""

    @property
    def left_out(self) -> LeftOut:
        """What the last whole inventory has left out."""

    def prefetch(self, name: str, *, timeout_s: float) -> int:
        """Make the cache fetch all of file `name`; return the file's size in bytes."""

    def touch(self, name: str, *, timeout_s: float, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Make `name` the most recently used file without reading it; `meanwhile` is called as it is open."""

    def evict(self, name: str, *, timeout_s: float) -> None:
        """Ask the cache to drop `name`; a file that is not there is no error."""

    def removes_open_files(self) -> bool:
        """Whether `evict` removes a file that a job has open."""

    def identity(self) -> ServerIdentity | None:
        """The server's identity, asked for now; None if nobody serves this cache."""

    def clock_skew_s(self) -> float:
        """Seconds that the cache's clock is ahead of ours, to `CLOCK_ERROR_S`; less than 0: behind."""

    def confirm(self, name: str) -> Confirmation:
        """What the cache's records say of `name` now."""

    def confirm_absent(self, name: str) -> Confirmation:
        """The server's own confirmation that it holds nothing of `name`, where `confirm` shows nothing.

        Raises TargetUnavailable if the server does not answer, or holds the file after all.
        """

    def inventory(self, expected: Collection[str] = ()) -> Iterable[Held]:
        """Every file the cache holds; `expected`: some names that it held before.

        Raises TargetUnavailable, after the last file, unless the server confirms some of what is listed, and
        the absence of what is missing of `expected`.
        """
