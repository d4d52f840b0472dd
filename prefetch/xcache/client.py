"""Drives a real XCache by the XRootD protocol, and believes only what the cache itself says.

Measured on XRootD 5.5.3: a one-byte vector read per block makes the cache fetch whole blocks while a few
bytes cross to us; open and close alone renews a file's place in the purge order; `cinfo` is rewritten within
milliseconds of the close. Every use is noted by the cache as an access: see `FileClose.is_ours`.
"""

import heapq
import logging
import re
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from features.common.errors import ConfigError, InputError, PushRejected, SourceUnavailable, TargetUnavailable
from prefetch.lfn import checked_lfn, fault_of, path_below
from prefetch.target import Confirmation, Held, LeftOut, ServerIdentity
from prefetch.xcache import cinfo, session
from prefetch.xcache.gstream import capture_reader
from prefetch.xcache.holdings import LatestCloses, held_below, held_by, held_by_processes, unreadable
from prefetch.xcache.namespace import YOUNG_S
from prefetch.xcache.redirector import Redirector
from prefetch.xcache.server import N_ASKED, ServerVersion, parse_version

BLOCK_BYTES = 128 * 1024
"""Assumed block size where no cinfo gives it: at most the cache's own `pfc.blocksize`."""
_CHUNKS_PER_CALL = 256
# A close while a block is on its way from memory to disk makes the cache note the end of the use 30 s late.
_SETTLE_S = 0.05
_EVICTED_WITHIN_S = 1.0
_EVICT = "/xrdpfc_command/remove_file/"
SERVER_URL = re.compile(r"x?roots?://(\[[0-9A-Fa-f:]+\]|[A-Za-z0-9.-]+)(:\d{1,5})?")
"""A cache or an origin: a scheme, a host, and at most a port."""
_REREAD_S = (0.02, 0.1, 0.5)
_KNOWN_FOR_S = 60.0


_log = logging.getLogger(__name__)


class XCacheTarget:
    """One XCache, as `prefetch.target.CacheTarget`.

    `url`: `root://host:port`, nothing else. What it holds is read from `namespace`, its `oss.localroot`, with
    `spaces`, the folders of `oss.space` that links there lead to; without one from `gstream`, a capture or a
    collector's folder, and by `stat`. `hosts`: as in `LatestCloses`. `walks_apart`: several processes read
    the namespace for an inventory; for millions of files. `redirector`: it stands
    before several, and what another node holds this one does not fetch.
    """

    def __init__(
        self,
        name: str,
        url: str,
        namespace: Path | None = None,
        gstream: Path | None = None,
        *,
        spaces: Sequence[Path] = (),
        hosts: Sequence[str] = (),
        walks_apart: bool = False,
        redirector: Redirector | None = None,
    ) -> None:
        if SERVER_URL.fullmatch(url) is None:
            raise ConfigError(
                f"cache {name!r}: url", "write root://host:port, without a path, user or options"
            )
        self.name = name
        self._connections = session.ThreadConnections(url)
        self._namespace = namespace
        self._spaces = spaces
        self._walks_apart = walks_apart
        self._redirector = redirector
        self._closes = None if gstream is None else LatestCloses(capture_reader(gstream), hosts, name)
        self._version: tuple[float, ServerVersion] | None = None
        self._skew: tuple[float, float] | None = None
        self.left_out = LeftOut()

    def prefetch(self, name: str, *, timeout_s: float) -> int:
        """Make the cache fetch every block of `name`; return the file's size in bytes.

        PushRejected if only other nodes hold `name`, where the redirector sends its readers.
        """
        holders = frozenset() if self._redirector is None else self._redirector.holders(name)
        if holders and self.name not in holders:
            raise PushRejected(f"{min(holders)} holds it, and the redirector sends its readers there")
        deadline = time.monotonic() + timeout_s
        with self._blaming(), session.RemoteFile(self._file_url(name), deadline) as remote:
            size, info = remote.size_bytes(), None if self._namespace is None else self._cinfo(name)
            offsets = range(0, size, BLOCK_BYTES if info is None else info.block_size_bytes)
            for first in range(0, len(offsets), _CHUNKS_PER_CALL):
                remote.read_parts((offset, 1) for offset in offsets[first : first + _CHUNKS_PER_CALL])
            time.sleep(_SETTLE_S)
        if self._redirector is not None:
            # Else it remembers that no node holds the file, and lets any of them fetch it again.
            self._redirector.holders(name)
        return size

    def touch(self, name: str, *, timeout_s: float, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Make `name` the most recently used: open and close, no read; one not held stays without blocks."""
        with self._blaming(), session.RemoteFile(self._file_url(name), time.monotonic() + timeout_s):
            meanwhile()

    def evict(self, name: str, *, timeout_s: float) -> None:
        """Ask the cache to drop `name`. It does so a moment later; before 5.6 also if the file is open."""
        command = f"{self._connections.url(_EVICT)}/{_EVICT} {checked_lfn(name)}"
        session.accepted(command, time.monotonic() + timeout_s)

    def removes_open_files(self) -> bool:
        """True before 5.6, by the version asked for now: an older server may have been started a moment ago.

        Raises TargetUnavailable if the server does not report its version.
        """
        return self._ask_version().removes_open_files

    def server_version(self) -> ServerVersion:
        """The server's version, asked for once a minute: it may change under a process that runs for long.

        Raises TargetUnavailable if it does not report one.
        """
        if self._version is None or time.monotonic() - self._version[0] > _KNOWN_FOR_S:
            return self._ask_version()
        return self._version[1]

    def _ask_version(self) -> ServerVersion:
        answer = session.version_of(self._connections.spare)
        if answer is None:
            why = "does not tell its version: no XRootD, or it does not know us"
            raise TargetUnavailable(f"cache {self.name!r} {why}")
        version, before = parse_version(answer), self._version
        self._version = time.monotonic(), version
        if before is not None and before[1] != version:
            description = version.described()
            _log.warning("the server of cache %s was XRootD %s: it is %s", self.name, before[1], description)
        return version

    def clock_skew_s(self) -> float:
        """The cache's clock less ours, s, by the time that the server reports; asked for once a minute."""
        if self._skew is None or time.monotonic() - self._skew[0] > _KNOWN_FOR_S:
            asked_s = time.time()
            clock_s, _ = session.statistics_of(self._connections.spare)
            self._skew = time.monotonic(), clock_s + 0.5 - (asked_s + time.time()) / 2
        return self._skew[1]

    def identity(self) -> ServerIdentity:
        """Who the server says that it is, asked for now. Raises PushRejected and TargetUnavailable."""
        return session.statistics_of(self._connections.spare)[1]

    def confirm(self, name: str) -> Confirmation:
        """By cinfo if there is a namespace; else by `stat`, and before 5.8 by the last close reported."""
        checked_lfn(name)
        if self._namespace is not None:
            try:
                info = self._cinfo(name)
            except InputError:
                return Confirmation(unreadable(name, f"{self._namespace}{name}"), "cinfo")
            return Confirmation(None if info is None else held_by(name, info), "cinfo")
        file = session.stat(self._connections.url(name), name)
        if file is None or not file.is_held:
            return Confirmation(None, "stat")
        try:
            closed = None if self._closes is None else self._closes.of(name)
        except InputError as error:
            raise TargetUnavailable(str(error)) from error
        version = self.server_version()
        if version.stat_tells_whole:
            last_s = None if closed is None else closed.last_detach_s
            on_disk = file.size_bytes if file.is_whole else 0
            return Confirmation(Held(name, file.size_bytes, on_disk, file.is_whole, last_s, False), "stat")
        if self._closes is None:
            raise TargetUnavailable(
                f"cache {self.name!r} runs XRootD {version}, which does not tell whether it holds all of a "
                "file: set its `gstream` or `namespace`"
            )
        return Confirmation(closed or Held(name, 0, 0, False, None, False), "gstream")

    def confirm_absent(self, name: str) -> Confirmation:
        """By `stat`, whatever the namespace shows. Raises TargetUnavailable if the cache still holds it."""
        for pause_s in _REREAD_S:
            if not self.server_holds(name):
                return Confirmation(None, "stat")
            # Removed a moment ago, or fetched since.
            time.sleep(pause_s)
        if self.confirm(name).held is not None:
            raise TargetUnavailable(f"{name} came back to cache {self.name!r} meanwhile")
        raise TargetUnavailable(
            f"cache {self.name!r} holds {name}, and namespace {self._namespace} does not show it: mount the "
            "disk, or set namespace to the cache's oss.localroot"
        )

    def inventory(self, expected: Collection[str] = ()) -> Iterator[Held]:
        """Every file with a cinfo, except those in `left_out`, whose names no command takes.

        Raises InputError if a folder cannot be read, and TargetUnavailable unless the server holds most of
        the files used last, and none of the files `expected` that the namespace lacks.
        """
        if self._namespace is None:
            raise ConfigError(
                f"cache {self.name!r}: namespace", "needed for an inventory; the g-stream has none"
            )
        # Up to 5.5.3 a purge spares files that were asked for by `stat`: these are what it would take last.
        last_used, missing = list[tuple[int, str]](), set(expected)
        left_out, n_unreadable = LeftOut(), 0
        walked = held_by_processes if self._walks_apart else held_below
        for held in walked(self._namespace, self._spaces):
            if held.unreadable and fault_of(held.name) is not None:
                left_out = left_out.with_one(held)
                continue
            missing.discard(held.name)
            n_unreadable += held.unreadable
            if held.bytes_on_disk and not held.unreadable:
                used = held.last_detach_s or 0, held.name
                if len(last_used) < N_ASKED:
                    heapq.heappush(last_used, used)
                else:
                    heapq.heappushpop(last_used, used)
            yield held
        self.left_out = left_out
        if left_out.n_files or n_unreadable:
            message = f"{n_unreadable} records are damaged or not believed, and no command takes the names of"
            _log.warning("namespace %s: %s %d files", self._namespace, message, left_out.n_files)
        self.check_namespace([name for _, name in last_used], missing)

    def check_namespace(self, names: Sequence[str], missing: Collection[str] = ()) -> None:
        """Ask the server whether the namespace is its own, by `names` that it shows and some that it lacks.

        Raises TargetUnavailable unless the server answers, holds most of `names` and none of `missing`.
        """
        self._require_answer(f"namespace {self._namespace} is its own, and mounted")
        if strange := self._not_held(names):
            # The server removes a file before its cinfo: what it evicts just now is strange for a moment.
            time.sleep(_EVICTED_WITHIN_S)
            strange = self._not_held(strange)
        if 2 * len(strange) > len(names):
            raise TargetUnavailable(
                f"cache {self.name!r} does not hold {len(strange)} of {len(names)} files that namespace "
                f"{self._namespace} shows, {strange[0]} among them: set namespace to its oss.localroot, "
                "or mount the disk of their data"
            )
        for name in sorted(missing)[:N_ASKED]:
            # Only what it does not hold does the server ask its origin for.
            with suppress(SourceUnavailable):
                # A job may have fetched it since the walk passed by: then the namespace shows it by now.
                if self.server_holds(name) and self.confirm(name).held is None:
                    self.confirm_absent(name)

    def check_listed(self, listed: Sequence[str], moment: str) -> None:
        """Ask the server for files of an inventory that its host took at `moment`, in words.

        Raises TargetUnavailable unless it answers, and holds two thirds of `listed`; PushRejected if it
        denies a look.
        """
        self._require_answer(f"its inventory of {moment} is still true")
        try:
            gone = [name for name in listed if not self.server_holds(name)]
        except PushRejected as error:
            raise PushRejected(
                f"{error}: nothing tells whether its inventory of {moment} is still true; give cache "
                f"{self.name!r} a `proxy` or `token` that may read"
            ) from None
        if 3 * len(gone) > len(listed):
            raise TargetUnavailable(
                f"cache {self.name!r} does not hold {len(gone)} of {len(listed)} files of its inventory of "
                f"{moment}, {gone[0]} among them: run `cachecast scan --cache {self.name}` on its host "
                "again, over its own oss.localroot"
            )

    def _require_answer(self, claim: str) -> None:
        """Raise TargetUnavailable unless the server answers, who alone can tell whether `claim` is so."""
        if session.version_of(self._connections.spare) is None:
            raise TargetUnavailable(
                f"cache {self.name!r} does not answer, so that nothing tells whether {claim}; "
                "start the cache, or correct its url"
            )

    def _not_held(self, names: Sequence[str]) -> list[str]:
        return [name for name in names if not self.server_holds(name) and self.confirm(name).held]

    def server_holds(self, name: str) -> bool:
        with self._blaming():
            file = session.stat(self._connections.url(name), checked_lfn(name))
        return file is not None and file.is_held

    def _cinfo(self, name: str) -> cinfo.CInfo | None:
        """The record of `name`; None if there is none. Raises InputError if it is damaged."""
        assert self._namespace is not None
        path = path_below(self._namespace, name, cinfo.SUFFIX, spaces=self._spaces)
        for pause_s in _REREAD_S:
            try:
                return cinfo.read(path)
            except (FileNotFoundError, NotADirectoryError):
                return None
            except InputError as error:
                # The cache rewrites it in place: a reader may see half of a young one.
                is_settled = isinstance(error, cinfo.Doubted) or not _is_young(path)
                time.sleep(0.0 if is_settled else pause_s)
                if _is_empty(path):
                    return None
                if is_settled:
                    raise
            except PermissionError as error:
                raise TargetUnavailable(
                    f"cannot read {path}: run as the cache's user, or leave out namespace"
                ) from error
            except OSError as error:
                raise TargetUnavailable(f"cannot read {path}: {error.strerror}") from error
        raise InputError(f"{path} is damaged, or changes all the time")

    def _file_url(self, name: str) -> str:
        return f"{self._connections.url(name)}/{checked_lfn(name)}"

    @contextmanager
    def _blaming(self) -> Iterator[None]:
        """Blame the source for a missing answer if the cache itself answers on another connection."""
        try:
            yield
        except session.TimeOut as error:
            self._connections.leave()
            if session.version_of(self._connections.spare) is None:
                raise
            raise SourceUnavailable(f"{error}; the cache itself answers: it waits for the origin") from None


def _is_young(path: Path) -> bool:
    with suppress(OSError):
        return time.time() - path.stat().st_mtime < YOUNG_S
    return True


def _is_empty(path: Path) -> bool:
    """Made by a cache that then had no room for a byte, neither of the record nor of the file; or gone."""
    sizes = list[int]()
    for file in (path, path.with_name(path.name.removesuffix(cinfo.SUFFIX))):
        with suppress(OSError):
            sizes.append(file.stat().st_size)
    return not any(sizes)
