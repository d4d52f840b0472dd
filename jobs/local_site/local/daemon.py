"""One `xrootd` process on loopback, run as an unprivileged user when started by root: xrootd refuses root.

It ends with the block that starts it; where `setpriv` is installed also when the thread that started it dies.
"""

import os
import pwd
import re
import shutil
import socket
import stat
import struct
import subprocess
import time
from pathlib import Path

from features.common.errors import InputError, ServiceError

SERVICE_USER = "xrootd"
_ATTEMPTS = 4
_START_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 10.0
_COMPLAINT = re.compile(r"error|unable|cannot|invalid|in use", re.IGNORECASE)
_N_COMPLAINTS, _COMPLAINT_CHARS = 5, 500
# Else a cache tries an unavailable origin for two minutes, and then not again for half an hour.
_CLIENT_SETTINGS = {
    "XRD_CONNECTIONWINDOW": "5",
    "XRD_CONNECTIONRETRY": "1",
    "XRD_STREAMERRORWINDOW": "5",
    "XRD_TIMEOUTRESOLUTION": "1",
}
_HANDSHAKE = struct.pack("!5i", 0, 0, 0, 4, 2012)


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
        """Start the daemon. Raises ServiceError with the end of its log if it does not answer.

        Threads of XRootD (5.5.3 to 6.2.1) set and read the environment while it starts: about one start in a
        hundred crashes, and is tried again.
        """
        for attempt in range(1, _ATTEMPTS + 1):
            if (code := self._started()) is None:
                return
            if code >= 0 or attempt == _ATTEMPTS:
                raise ServiceError(
                    f"xrootd ({self._role}) does not answer on port {self.port}: {self.complaints()}"
                )

    def _started(self) -> int | None:
        """None once it answers, else its exit code: negative for a crash."""
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
            code = self._process.poll()
            if code is not None or time.monotonic() > deadline:
                self.stop()
                return code or 0
            time.sleep(0.02)
        return None

    def words(self, *, with_parent: bool) -> list[str]:
        """The command that runs it; `with_parent`: it ends with the thread that starts it."""
        options = ["-c", str(self._config), "-n", self._role, "-l", f"={self.log}", "-w", str(self._folder)]
        return [*_as_service_user(with_parent=with_parent), "xrootd", *options]

    def answers(self) -> bool:
        """Whether a server on its port knows the protocol's handshake."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=5.0) as connection:
                connection.sendall(_HANDSHAKE)
                return len(connection.recv(16)) > 0
        except OSError:
            return False

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def complaints(self) -> str:
        """The last errors in the daemon's log, or its end, or a note that there is none."""
        try:
            lines = self.log.read_text(errors="replace").splitlines()
        except OSError:
            return f"no log at {self.log}"
        errors = [line for line in lines if _COMPLAINT.search(line)]
        return "; ".join((errors or lines)[-_N_COMPLAINTS:])[-_COMPLAINT_CHARS:]


def service_user() -> str | None:
    """The user that runs the daemons: None for whoever we are, unless we are root."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam(SERVICE_USER).pw_name
    except KeyError:
        return None


def _as_service_user(*, with_parent: bool) -> list[str]:
    """The words before a command that make it the daemons' user, and perhaps end it with its parent.

    Not `Popen(user=…)`: that forks where this only spawns, and a fork runs the handlers of the XRootD client
    library, which can wait for each other for ever.
    """
    user = service_user()
    if shutil.which("setpriv") is None:
        return []
    identity = [] if user is None else ["--reuid", user, "--regid", user, "--clear-groups"]
    return ["setpriv", *identity, *(["--pdeathsig", "TERM"] if with_parent else [])]


def plain_folder(path: Path) -> Path:
    """`path` as it is, which has no character that the settings of a server take for their own syntax.

    Raises InputError.
    """
    if re.fullmatch(r"[\w./+@~-]+", str(path)) is None:
        raise InputError(
            f"servers take no folder {str(path)!r}: give one of letters, digits and ._+@~- alone"
        )
    return path


def folder_for_all(path: Path) -> None:
    """Make a folder, and those above it that are missing, which the servers' user may enter too."""
    missing = [parent for parent in (path, *path.parents) if not parent.exists()]
    for folder in reversed(missing):
        folder.mkdir(exist_ok=True)
        folder.chmod(0o755)  # whatever the umask


def hand_over(folder: Path) -> None:
    """Give `folder` to the user of the daemons, who must also be able to reach it."""
    user = service_user()
    if user is None:
        return
    for path in (folder, *folder.iterdir()):
        shutil.chown(path, user)
    for parent in folder.resolve().parents:
        if not parent.stat().st_mode & stat.S_IXOTH:
            raise ServiceError(
                f"user {user} cannot enter {parent}; choose a folder outside, or chmod o+x {parent}"
            )
