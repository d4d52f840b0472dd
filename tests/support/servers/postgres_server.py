"""A real PostgreSQL on this machine, from Debian's package: a cluster of its own in a folder."""

import os
import pwd
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from commands import held
from daemons import PATIENCE_S, NoServer, free_ports


class PostgresServer:
    """One server, stopped and started as a test likes."""

    def __init__(self, binaries: Path, folder: Path, port: int, waits_for_disk: bool) -> None:
        self._binaries, self._folder, self._port = binaries, folder, port
        self._fsync = "on" if waits_for_disk else "off"
        self.url = f"postgresql+psycopg://tester:not-shown@127.0.0.1:{port}/postgres"

    def make(self) -> None:
        """An empty cluster whose users need no password."""
        words = ("--encoding=UTF8", "--locale=C.UTF-8", "--auth=trust", "--username=tester")
        self._run("initdb", *words, *(() if self._fsync == "on" else ("--no-sync",)))

    def start(self) -> None:
        """Start it, and wait until it answers."""
        options = f"-p {self._port} -k {self._folder} -c fsync={self._fsync}"
        self._run("pg_ctl", "-w", "-l", str(self._folder / "log"), "-o", options, "start")

    def stop(self) -> None:
        """End it with its connections."""
        self._run("pg_ctl", "-w", "-m", "immediate", "stop")

    @contextmanager
    def hanging(self) -> Iterator[None]:
        """It keeps its connections and answers nothing while the block runs."""
        (postmaster,) = (self._folder / "data" / "postmaster.pid").read_text().split()[:1]
        children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
        with ExitStack() as stack:
            for pid in (postmaster, *children):
                stack.enter_context(held(int(pid)))
            yield

    def _run(self, name: str, *words: str) -> None:
        command = [str(self._binaries / name), "-D", str(self._folder / "data"), *words]
        # A server that a pipe is left open in would keep the test waiting: its output goes nowhere.
        answer = subprocess.run(
            command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=PATIENCE_S,
            check=False,
            user=_user(),
            extra_groups=[] if os.geteuid() == 0 else None,
            cwd="/",
        )
        if answer.returncode:
            log = self._folder / "log"
            log_text = log.read_text(errors="replace")[-2000:] if log.exists() else "it left no log"
            raise NoServer(f"{name} ended with {answer.returncode}: {log_text}")


@contextmanager
def running(folder: Path, *, waits_for_disk: bool = False) -> Iterator[PostgresServer]:
    """An empty server that keeps its data in `folder`; it ends with the block.

    `waits_for_disk`: a commit is on the disk, as in production; else it is as fast as tests like it.
    """
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not programs:
        raise NoServer("there is no PostgreSQL: install it with conf/deploy/system.sh postgresql")
    if (user := _user()) is not None:
        os.chown(folder, user, -1)
    server = PostgresServer(programs[-1].parent, folder, free_ports(1)[0], waits_for_disk)
    server.make()
    server.start()
    try:
        yield server
    finally:
        server.stop()


def _user() -> int | None:
    """PostgreSQL refuses to run as root."""
    return pwd.getpwnam("postgres").pw_uid if os.geteuid() == 0 else None
