"""A real origin and a real XCache on loopback, for the demo and the service tests.

Both are plain `xrootd` daemons in a folder of their own. They accept clients of this machine only, run as
an unprivileged user when started by root (xrootd refuses root), and end with the block that started them;
where `setpriv` is installed also when the thread that started them is killed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pwd
import re
import shutil
import socket
import stat
import struct
import subprocess
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from features.common.errors import ServiceError
from jobs.local.ports import free_ports

_LIBRARIES = ("libXrdPss", "libXrdPfc")
_LIBRARY_FOLDERS = ("/usr/lib", "/usr/lib64", "/usr/local/lib", "/usr/local/lib64")
_SERVICE_USER = "xrootd"
_START_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 10.0
_COMPLAINT = re.compile(r"error|unable|cannot|invalid|in use", re.IGNORECASE)
_N_COMPLAINTS = 5
# Else a cache tries an origin that is away for two minutes, and then half an hour does not try it again.
_CLIENT_SETTINGS = {
    "XRD_CONNECTIONWINDOW": "5",
    "XRD_CONNECTIONRETRY": "1",
    "XRD_STREAMERRORWINDOW": "5",
    "XRD_TIMEOUTRESOLUTION": "1",
}
_HANDSHAKE = struct.pack("!5i", 0, 0, 0, 4, 2012)
_LOCAL_ONLY = "xrd.allow host 127.0.0.1\nxrd.allow host localhost\nxrd.allow host [::1]\n"
_REMEDY = "install xrootd-server and xrootd-server-plugins (`make test` does), or use the directory cache"


class Daemon:
    """One xrootd process; `start` returns when it answers the protocol's handshake."""

    def __init__(self, role: str, folder: Path, port: int, config: str) -> None:
        self.port = port
        self.log = folder / f"{role}.log"
        self._role = role
        self._folder = folder
        self._config = folder / f"{role}.cfg"
        self._config.write_text(config)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Its process id while it is meant to run, else None."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start the daemon. Raises ServiceError with the end of its log if it does not answer."""
        self._process = subprocess.Popen(
            self.words(with_parent=True),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env=os.environ | _CLIENT_SETTINGS,
        )
        deadline = time.monotonic() + _START_TIMEOUT_S
        while not self.answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise ServiceError(
                    f"xrootd ({self._role}) does not answer on port {self.port}: {self.complaints()}"
                )
            time.sleep(0.02)

    def words(self, *, with_parent: bool) -> list[str]:
        """The command that runs it; `with_parent`: it ends with the thread that starts it."""
        options = ["-c", str(self._config), "-n", self._role, "-l", f"={self.log}", "-w", str(self._folder)]
        return [*_as_service_user(with_parent=with_parent), "xrootd", *options]

    def answers(self) -> bool:
        """Whether a server on its port knows the protocol's handshake."""
        return _answers(self.port)

    def stop(self) -> None:
        """End the daemon; one that is not running is no error."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def complaints(self, n_chars: int = 500) -> str:
        """The last errors in the daemon's log, or its end, or a note that there is none."""
        try:
            lines = self.log.read_text(errors="replace").splitlines()
        except OSError:
            return f"no log at {self.log}"
        errors = [line for line in lines if _COMPLAINT.search(line)]
        return "; ".join((errors or lines)[-_N_COMPLAINTS:])[-n_chars:]


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
        """Write a file readable by the origin; returns its path."""
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
    missing = [library for library in _LIBRARIES if not _has_library(library, folders)]
    if missing:
        return f"no {', '.join(missing)} found: {_REMEDY}"
    if os.geteuid() == 0 and (_service_user() is None or shutil.which("setpriv") is None):
        return f"xrootd refuses to run as root, and user {_SERVICE_USER!r} or setpriv is not here: {_REMEDY}"
    return None


@contextlib.contextmanager
def loopback(
    folder: Path,
    *,
    files_limit: tuple[int, int, int] | None = None,
    purge_interval_s: int = 60,
    gstream_port: int | None = None,
    gstream_bytes: int = 8192,
    reports_opens: bool = False,
    prefetch_blocks: int = 0,
    more: str = "",
) -> Iterator[Loopback]:
    """A running `Loopback` in `folder` (made if missing; a short path: it holds sockets).

    `files_limit`: base, nominal and maximal bytes of cached files (kept to the KiB), or None: purge by disk
    usage only. Seen on 5.5.3: looked at when the cache starts and every `purge_interval_s` after (at least
    60, the server's own bound). Above maximal, files go down to nominal, the one whose last use ended first
    goes first; base plays no part while the disk has room. Candidates are twice the bytes needed, and those
    opened or asked for since the last purge are spared, so a purge may stop short: `restart_cache` purges at
    once and spares none. Seen on 6.2.1: looked at each minute, first a minute after the start; above maximal,
    files go down to maximal, less what was written in the last minute.
    `gstream_port`: UDP port of a `prefetch.xcache.collector.Collector`;
    `gstream_bytes`: of a datagram, which is sent when it is full, and each second: reports longer than it
    are lost; `reports_opens`: the f-stream and users' names go there too. `prefetch_blocks`: the server's
    own read-ahead (`pfc.prefetch`).
    `more`: lines that the cache's configuration ends with.
    Raises ServiceError if xrootd is missing or does not start.
    """
    ports = free_ports(2)
    servers = prepared(
        folder,
        ports=(ports[0], ports[1]),
        files_limit=files_limit,
        purge_interval_s=purge_interval_s,
        gstream_port=gstream_port,
        gstream_bytes=gstream_bytes,
        reports_opens=reports_opens,
        prefetch_blocks=prefetch_blocks,
        more=more,
    )
    try:
        servers.origin.start()
        servers.cache.start()
        yield servers
    finally:
        servers.cache.stop()
        servers.origin.stop()


def prepared(
    folder: Path,
    *,
    ports: tuple[int, int],
    files_limit: tuple[int, int, int] | None = None,
    purge_interval_s: int = 60,
    gstream_port: int | None = None,
    gstream_bytes: int = 8192,
    reports_opens: bool = False,
    prefetch_blocks: int = 0,
    more: str = "",
) -> Loopback:
    """An origin and a cache on `ports`, configured in `folder` and not started; else as `loopback`."""
    fault = available()
    if fault is not None:
        raise ServiceError(fault)
    origin_root, namespace = folder / "origin", folder / "ns"
    for path in (folder, origin_root / "store", namespace):
        folder_for_all(path)
    origin_port, cache_port = ports
    origin = Daemon("origin", folder, origin_port, _origin_config(folder, origin_port))
    purge = _purge_config(files_limit, purge_interval_s)
    stream = "" if gstream_port is None else _gstream_config(gstream_port, gstream_bytes)
    if gstream_port is not None and reports_opens:
        stream += _fstream_config(gstream_port)
    text = _cache_config(folder, cache_port, origin_port, prefetch_blocks) + purge + stream + more
    cache = Daemon("cache", folder, cache_port, text)
    _hand_over(folder)
    return Loopback(folder, origin, cache, origin_root, namespace)


def _origin_config(folder: Path, port: int) -> str:
    return (
        f"xrd.port {port}\nall.export /store r/o\noss.localroot {folder}/origin\n"
        f"all.adminpath {folder}/admin\nall.pidpath {folder}/admin\n{_LOCAL_ONLY}"
    )


def _cache_config(folder: Path, port: int, origin_port: int, prefetch_blocks: int) -> str:
    return (
        f"xrd.port {port}\nall.sitename LOOPBACK\nall.export /store r/o\nall.export /xrdpfc_command\n"
        f"oss.localroot {folder}/ns\nofs.osslib libXrdPss.so\npss.cachelib libXrdPfc.so\n"
        f"pss.origin 127.0.0.1:{origin_port}\n"
        f"pfc.blocksize 128k\npfc.ram 1g\npfc.prefetch {prefetch_blocks}\n"
        f"pfc.allow_xrdpfc_command\nall.adminpath {folder}/admin\nall.pidpath {folder}/admin\n{_LOCAL_ONLY}"
    )


def _purge_config(files_limit: tuple[int, int, int] | None, purge_interval_s: int) -> str:
    if purge_interval_s < 60:
        raise ServiceError(f"XCache purges at most every 60 s, not every {purge_interval_s} s")
    # A number without a unit would be taken as a share of the disk.
    sizes = () if files_limit is None else (f"{n_bytes // 1024}k" for n_bytes in files_limit)
    files = "" if files_limit is None else "files " + " ".join(sizes)
    return f"pfc.diskusage 0.97 0.98 {files} purgeinterval {purge_interval_s}s\n"


def _gstream_config(port: int, n_bytes: int) -> str:
    return f"xrootd.mongstream pfc use flush 1s maxlen {n_bytes} send json fullhdr 127.0.0.1:{port}\n"


def _fstream_config(port: int) -> str:
    # Seen on 5.5.3: without `xfr` closes are not reported.
    return f"xrootd.monitor all auth fstat 1s lfn ops xfr 5 dest fstat user info 127.0.0.1:{port}\n"


def _service_user() -> str | None:
    """The user that runs the daemons: None for whoever we are, unless we are root."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam(_SERVICE_USER).pw_name
    except KeyError:
        return None


def _as_service_user(*, with_parent: bool) -> list[str]:
    """The words before a command that make it the daemons' user, and perhaps end it with its parent.

    Not `Popen(user=…)`: that forks where this only spawns, and a fork runs the handlers of the XRootD client
    library, which can wait for each other for ever.
    """
    user = _service_user()
    if shutil.which("setpriv") is None:
        return []
    identity = [] if user is None else ["--reuid", user, "--regid", user, "--clear-groups"]
    return ["setpriv", *identity, *(["--pdeathsig", "TERM"] if with_parent else [])]


def folder_for_all(path: Path) -> None:
    """Make a folder, and those above it that are missing, which the servers' user may enter too."""
    missing = [one for one in (path, *path.parents) if not one.exists()]
    for one in reversed(missing):
        one.mkdir(exist_ok=True)
        one.chmod(0o755)  # whatever the umask


def _hand_over(folder: Path) -> None:
    """Give `folder` to the user of the daemons, who must also be able to reach it."""
    user = _service_user()
    if user is None:
        return
    for path in (folder, *folder.iterdir()):
        shutil.chown(path, user)
    for parent in folder.resolve().parents:
        if not parent.stat().st_mode & stat.S_IXOTH:
            raise ServiceError(
                f"user {user} cannot enter {parent}; choose a folder outside, or chmod o+x {parent}"
            )


def _has_library(name: str, folders: Iterable[Path]) -> bool:
    """Whether one of `folders` has library `name` for any major version of XRootD."""
    patterns = (f"{name}-*.so", f"*/{name}-*.so")
    return any(next(folder.glob(pattern), None) is not None for folder in folders for pattern in patterns)


def _answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5.0) as connection:
            connection.sendall(_HANDSHAKE)
            return len(connection.recv(16)) > 0
    except OSError:
        return False
