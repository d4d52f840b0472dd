"""Drives a real XCache by the XRootD protocol, and believes only what the cache itself says.

Measured on XRootD 5.5.3: a one-byte vector read per block makes the cache fetch whole blocks while a few
bytes cross to us; open and close alone renews a file's place in the purge order; `cinfo` is rewritten within
milliseconds of the close. Every use is noted by the cache as an access: see `FileClose.is_ours`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from features.errors import ConfigError, InputError, PushRejected, SourceUnavailable, TargetUnavailable
from prefetch.lfn import checked_lfn, path_below
from prefetch.target import Confirmation, Held
from prefetch.xcache import cinfo
from prefetch.xcache.captures import capture_reader
from prefetch.xcache.lanes import Lanes
from prefetch.xcache.latest import LatestCloses
from prefetch.xcache.namespace import SUFFIX, walk
from prefetch.xcache.session import RemoteFile, TimeOut, accepted, stat, version_of
from prefetch.xcache.version import ServerVersion, parse_version

DEFAULT_BLOCK_BYTES = 128 * 1024
_CHUNKS_PER_CALL = 256
# A close while a block is on its way from memory to disk makes the cache note the end of the use 30 s late.
_SETTLE_S = 0.05
_URL = re.compile(r"x?roots?://(\[[0-9A-Fa-f:]+\]|[A-Za-z0-9.-]+)(:\d{1,5})?")
_REREAD_S = (0.02, 0.1, 0.5)


class XCacheTarget:
    """One XCache, as `prefetch.target.CacheTarget`.

    `url`: `root://host:port`, nothing else. `namespace`: the cache's `oss.localroot`, if this process may
    read it, and `spaces`, folders of `oss.space` that its links lead to; else `gstream`, a capture of its
    g-stream or a collector's folder, tells what it holds, and `stat` whether it still does.
    `block_size_bytes` is used where cinfo does not tell: at most the cache's own `pfc.blocksize`.
    """

    def __init__(
        self,
        name: str,
        url: str,
        namespace: Path | None = None,
        gstream: Path | None = None,
        *,
        spaces: Sequence[Path] = (),
        block_size_bytes: int = DEFAULT_BLOCK_BYTES,
    ) -> None:
        if _URL.fullmatch(url) is None:
            raise ConfigError(
                f"cache {name!r}: url", "write root://host:port, without a path, user or options"
            )
        if namespace is None and gstream is None:
            raise ConfigError(
                f"cache {name!r}", "give `namespace` or `gstream`: nothing else confirms a push"
            )
        self._name = name
        self._lanes = Lanes(url)
        self._namespace = namespace
        self._spaces = spaces
        self._block_size_bytes = block_size_bytes
        self._closes = None if gstream is None else LatestCloses(capture_reader(gstream))
        self._version: ServerVersion | None = None
        self.n_unreadable = 0

    @property
    def name(self) -> str:
        """The cache's name in configuration."""
        return self._name

    def prefetch(self, name: str, *, timeout_s: float) -> int:
        """Make the cache fetch every block of `name`; return the file's size in bytes."""
        deadline = time.monotonic() + timeout_s
        with self._blaming(), RemoteFile(self._file_url(name), deadline) as remote:
            size = remote.size_bytes()
            offsets = range(0, size, self._block_size(name))
            for first in range(0, len(offsets), _CHUNKS_PER_CALL):
                remote.read_one_byte_at(offsets[first : first + _CHUNKS_PER_CALL])
            time.sleep(_SETTLE_S)
        return size

    def touch(self, name: str, *, timeout_s: float) -> None:
        """Make `name` the most recently used: open and close, no read; one not held stays without blocks."""
        with self._blaming(), RemoteFile(self._file_url(name), time.monotonic() + timeout_s):
            pass

    def evict(self, name: str, *, timeout_s: float) -> None:
        """Ask the cache to drop `name`; it does so a moment later, also if the file is open (5.5.3)."""
        command = f"{self._lanes.url()}//xrdpfc_command/remove_file/ {checked_lfn(name)}"
        accepted(command, time.monotonic() + timeout_s)

    def removes_open_files(self) -> bool:
        """True before 5.6. Raises TargetUnavailable if the server does not tell its version."""
        return self.server_version().removes_open_files

    def server_version(self) -> ServerVersion:
        """The server's version, asked for once. Raises TargetUnavailable if it does not tell."""
        if self._version is None:
            answer = version_of(self._lanes.spare)
            if answer is None:
                raise TargetUnavailable(f"cache {self._name!r} does not tell its version")
            self._version = parse_version(answer)
        return self._version

    def confirm(self, name: str) -> Confirmation:
        """From cinfo where it can be read, else from `stat`: alone (5.8) or with the last g-stream event."""
        checked_lfn(name)
        if self._namespace is not None:
            info = self._cinfo(name)
            return Confirmation(None if info is None else _held(name, info), "cinfo")
        told = stat(self._lanes.url(), name)
        if told is None or not told.is_held:
            return Confirmation(None, "stat")
        closed = self._last_close(name)
        if self.server_version().stat_tells_whole:
            last_s = None if closed is None else closed.last_detach_s
            on_disk = told.size_bytes if told.is_whole else 0
            return Confirmation(Held(name, told.size_bytes, on_disk, told.is_whole, last_s, False), "stat")
        return Confirmation(closed or Held(name, 0, 0, False, None, False), "gstream")

    def inventory(self) -> Iterator[Held]:
        """Every file with a cinfo; those that cannot be read are counted in `n_unreadable`."""
        if self._namespace is None:
            raise ConfigError(
                f"cache {self._name!r}: namespace", "needed for an inventory; the g-stream has none"
            )
        self.n_unreadable = 0
        for found in walk(self._namespace, self._spaces):
            if found.info is None:
                self.n_unreadable += 1
            else:
                yield _held(found.name, found.info)

    def _cinfo(self, name: str) -> cinfo.CInfo | None:
        assert self._namespace is not None
        path = path_below(self._namespace, name, SUFFIX, spaces=self._spaces)
        for pause_s in _REREAD_S:
            try:
                return cinfo.read(path)
            except (FileNotFoundError, NotADirectoryError):
                return None
            except InputError:
                # The cache rewrites it in place: a reader may see half.
                time.sleep(pause_s)
                if _is_empty(path):
                    return None
            except PermissionError as error:
                raise PushRejected(
                    f"cannot read {path}: run as the cache's user, or leave out namespace"
                ) from error
            except OSError as error:
                raise TargetUnavailable(f"cannot read {path}: {error.strerror}") from error
        raise TargetUnavailable(f"{path} is damaged, or changes all the time")

    def _block_size(self, name: str) -> int:
        info = None if self._namespace is None else self._cinfo(name)
        return self._block_size_bytes if info is None else info.block_size_bytes

    def _file_url(self, name: str) -> str:
        return f"{self._lanes.url()}/{checked_lfn(name)}"

    @contextmanager
    def _blaming(self) -> Iterator[None]:
        """Errors without an answer are the source's if the cache answers on another connection."""
        try:
            yield
        except TimeOut as error:
            self._lanes.leave()
            if version_of(self._lanes.spare) is None:
                raise
            raise SourceUnavailable(f"{error}; the cache itself answers: it waits for the origin") from None

    def _last_close(self, name: str) -> Held | None:
        assert self._closes is not None
        try:
            return self._closes.of(name)
        except InputError as error:
            raise TargetUnavailable(str(error)) from error


def _is_empty(path: Path) -> bool:
    """Made by a cache that then had no room for a byte."""
    return path.exists() and not path.stat().st_size


def _held(name: str, info: cinfo.CInfo) -> Held:
    on_disk, size = info.bytes_on_disk, info.size_bytes
    return Held(name, size, on_disk, info.complete, info.last_detach_s, info.is_open)
