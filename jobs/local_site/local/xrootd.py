"""A real origin and a real XCache on loopback, for the demo and the service tests.

Both are plain `xrootd` daemons in a folder of their own, and accept clients of this machine only.
"""

import contextlib
import dataclasses
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TypedDict, Unpack

from features.common.errors import ServiceError
from jobs.local_site.local.daemon import (
    SERVICE_USER,
    Daemon,
    folder_for_all,
    hand_over,
    plain_folder,
    service_user,
)
from jobs.local_site.local.process import free_ports

_LIBRARIES = ("libXrdPss", "libXrdPfc")
_LIBRARY_FOLDERS = ("/usr/lib", "/usr/lib64", "/usr/local/lib", "/usr/local/lib64")
_LOCAL_ONLY = "xrd.allow host 127.0.0.1\nxrd.allow host localhost\nxrd.allow host [::1]\n"
_GSTREAM_BYTES = 8192
_REMEDY = "install xrootd-server and xrootd-server-plugins (`make test` does), or use the directory cache"


@dataclasses.dataclass(frozen=True)
class Loopback:
    """A running origin and cache. `origin_root` and `namespace` are the folders behind `/store`.

    A file of LFN `/store/x` lies at `origin_root/store/x`; the cache's copy and its cinfo under `namespace`.
    """

    folder: Path
    origin: Daemon
    cache: Daemon
    origin_root: Path
    namespace: Path

    @property
    def cache_url(self) -> str:
        """`root://127.0.0.1:port` of the cache."""
        return f"root://127.0.0.1:{self.cache.port}"

    def restart_cache(self) -> None:
        """Stop and start the cache on the same port, with what it holds."""
        self.cache.stop()
        self.cache.start()

    def add_file(self, lfn: str, content: bytes) -> Path:
        path = self.origin_root / lfn.lstrip("/")
        folder_for_all(path.parent)
        path.write_bytes(content)
        path.chmod(0o644)
        return path


def available() -> str | None:
    """None if this machine can run `loopback`, else what is missing and the remedy."""
    program = shutil.which("xrootd")
    if program is None:
        return f"no xrootd program found: {_REMEDY}"
    folders = [Path(program).resolve().parents[1] / "lib", *map(Path, _LIBRARY_FOLDERS)]
    missing = [
        name
        for name in _LIBRARIES  # of any major version of XRootD
        if not any(any(folder.glob(f"{at}{name}-*.so")) for folder in folders for at in ("", "*/"))
    ]
    if missing:
        return f"no {', '.join(missing)} found: {_REMEDY}"
    if os.geteuid() == 0 and (service_user() is None or shutil.which("setpriv") is None):
        return f"xrootd refuses to run as root, and user {SERVICE_USER!r} or setpriv is not here: {_REMEDY}"
    return None


class CacheOptions(TypedDict, total=False):
    """What the cache of a `Loopback` has beside the usual."""

    files_limit: tuple[int, int, int] | None
    """Base, nominal and maximal bytes of cached files, kept to the KiB; without it purges go by disk usage.

    Seen on 5.5.3: looked at when the cache starts and once a minute after. Above maximal, files go down to
    nominal, the one whose last use ended first goes first; base plays no part while the disk has room.
    Candidates are twice the bytes needed, and those opened or asked for since the last purge are spared, so a
    purge may stop short: `restart_cache` purges at once and spares none. Seen on 6.2.1: the first look is a
    minute after the start; files go down to maximal, less what was written in the last minute, but not
    below base.
    """
    gstream_port: int | None  # UDP port of `prefetch.xcache.receiver.collecting`
    gstream_bytes: int  # of a datagram, sent when full, and each second: longer reports are lost
    reports_opens: bool  # the f-stream and users' names go to the port too
    more: str  # lines that the cache's configuration ends with


@contextlib.contextmanager
def loopback(folder: Path, **options: Unpack[CacheOptions]) -> Iterator[Loopback]:
    """A running `Loopback` in `folder` (made if missing; a short path: it holds sockets).

    Raises ServiceError if xrootd is missing or does not start.
    """
    ports = free_ports(2)
    servers = prepared(folder, ports=(ports[0], ports[1]), **options)
    try:
        servers.origin.start()
        servers.cache.start()
        yield servers
    finally:
        servers.cache.stop()
        servers.origin.stop()


def prepared(folder: Path, *, ports: tuple[int, int], **options: Unpack[CacheOptions]) -> Loopback:
    """An origin and a cache on `ports`, configured in `folder` and not started.

    Raises ServiceError, and InputError if their configuration cannot name the folder.
    """
    fault = available()
    if fault is not None:
        raise ServiceError(fault)
    origin_root, namespace = plain_folder(folder) / "origin", folder / "ns"
    for path in (folder, origin_root / "store", namespace):
        folder_for_all(path)
    origin_port, cache_port = ports
    origin_config = (
        f"xrd.port {origin_port}\nall.export /store r/o\nall.export /atlas r/o\noss.localroot {origin_root}\n"
        f"all.adminpath {folder}/admin\nall.pidpath {folder}/admin\n{_LOCAL_ONLY}"
    )
    origin = Daemon("origin", folder, origin_port, origin_config)
    text = (
        f"xrd.port {cache_port}\nall.sitename LOOPBACK\nall.export /store r/o\nall.export /atlas r/o\n"
        "all.export /xrdpfc_command\n"
        f"oss.localroot {folder}/ns\nofs.osslib libXrdPss.so\npss.cachelib libXrdPfc.so\n"
        f"pss.origin 127.0.0.1:{origin_port}\n"
        f"pfc.blocksize 128k\npfc.ram 1g\npfc.prefetch 0\n"
        f"pfc.allow_xrdpfc_command\nall.adminpath {folder}/admin\nall.pidpath {folder}/admin\n{_LOCAL_ONLY}"
    )
    # A number without a unit would be taken as a share of the disk.
    sizes = [f"{n_bytes // 1024}k" for n_bytes in options.get("files_limit") or ()]
    text += f"pfc.diskusage 0.97 0.98 {' '.join(['files', *sizes]) if sizes else ''} purgeinterval 60s\n"
    if (port := options.get("gstream_port")) is not None:
        n_bytes, to = options.get("gstream_bytes", _GSTREAM_BYTES), f"127.0.0.1:{port}"
        text += f"xrootd.mongstream pfc use flush 1s maxlen {n_bytes} send json fullhdr {to}\n"
        if options.get("reports_opens"):  # Seen on 5.5.3: without `xfr` closes are not reported.
            text += f"xrootd.monitor all auth fstat 1s lfn ops xfr 5 dest fstat user info {to}\n"
    cache = Daemon("cache", folder, cache_port, text + options.get("more", ""))
    hand_over(folder)
    return Loopback(folder, origin, cache, origin_root, namespace)
