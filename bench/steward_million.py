"""A steward beside a cache of a million files: its time to start, memory and share of a core.

bench/steward_million.py [--files N] [--minutes M] [--policy NAME]     exit code 1 if a promise breaks

A namespace in memory holds N files and their records (`cinfo`): hard links to one file and to a thousand
records. A real XCache serves it, and has read them. A collector gets 50 reports of reads per second, each
with its open, one in ten of a file that is not there. Nothing is evicted. Promised: it starts within 30 s,
takes 550 MB at most, and 5 % of a core. Needs root, for a file system in memory, and the environment that
`make verify` makes: .venv/bin/python bench/steward_million.py
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support" / "servers")]

from cinfo_writer import dump  # noqa: E402
from commands import COMMAND  # noqa: E402
from measured import cpu_s, memory_bytes  # noqa: E402
from monitoring import Sender, close, closing, opening  # noqa: E402
from steward_site import memory_disk  # noqa: E402

from jobs.local_site.local.process import free_ports  # noqa: E402
from jobs.local_site.local.xrootd import loopback  # noqa: E402
from prefetch.journal.journal import Journal  # noqa: E402
from prefetch.target import ServerIdentity  # noqa: E402
from prefetch.xcache.cinfo import AccessRecord, CInfo  # noqa: E402
from prefetch.xcache.client import XCacheTarget  # noqa: E402

USER = "xrootd"
START_S, MEMORY_BYTES, SHARE = 30.0, 550 * 10**6, 0.05
IDLE_S = 2.0
PER_SECOND, N_DIFFERENT, PER_FOLDER = 50, 1000, 1000
MB = 10**6
FILE_BYTES, BLOCK_BYTES = 500 * MB, MB


def record(used_s: int) -> bytes:
    """The cinfo of a file that is whole on disk, and was used last at `used_s`."""
    n_blocks = FILE_BYTES // BLOCK_BYTES
    access = AccessRecord(used_s - 5, used_s, 1, 5, 0, 0, 0, FILE_BYTES, 0)
    blocks = b"\xff" * (n_blocks // 8) + bytes([(1 << n_blocks % 8) - 1])
    return dump(CInfo(BLOCK_BYTES, FILE_BYTES, used_s - 9, 0, 1, 0, blocks, (access,)))


def name(number: int) -> str:
    """The name of file `number`."""
    return f"/store/mc/campaign/dataset{number // PER_FOLDER:05}/{number:08}-0123-4567-89AB-CDEF01234567.root"


def fill(namespace: Path, n_files: int) -> None:
    """Records of `n_files`, each beside its file."""
    content, records = namespace / "content", [namespace / f"record{at}" for at in range(N_DIFFERENT)]
    now_s = int(time.time())
    for at, path in enumerate(records):
        path.write_bytes(record(now_s - 600 - 600 * at))
    with content.open("wb") as file:  # a record that claims more than its file has is not believed
        os.posix_fallocate(file.fileno(), 0, FILE_BYTES)
    for one in (content, *records):
        shutil.chown(one, USER)
    for number in range(n_files):
        link = f"{namespace}{name(number)}"
        if number % PER_FOLDER == 0:
            Path(link).parent.mkdir(parents=True)
        os.link(content, link)
        os.link(records[number % N_DIFFERENT], f"{link}.cinfo")
    for one in (content, *records):
        one.unlink()


class Reports:
    """What `server` sends to `port`: a g-stream and an f-stream, each datagram numbered."""

    def __init__(self, server: ServerIdentity, port: int, n_files: int) -> None:
        self._to = ("127.0.0.1", port)
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._server = Sender(server.host, int(server.port), server.instance, "s", server.started_s, 7)
        self._pseq, self._id = 0, 0
        self._chance, self._n_files = random.Random(1), n_files

    def send(self, n_reads: int) -> None:
        """A second's reads, each opened and closed; one in ten of a file that is new."""
        names = [name(int(self._chance.random() ** 3 * 1.1 * self._n_files)) for _ in range(n_reads)]
        now_s, records = int(time.time()), []
        self._pseq += 1
        for lfn in names:
            self._id += 1
            records += [
                opening(self._id, lfn, size=FILE_BYTES, user=self._id),
                closing(self._id, FILE_BYTES, 0),
            ]
        self._socket.sendto(self._server.fstream(self._pseq, now_s, *records), self._to)
        n_blocks = FILE_BYTES // BLOCK_BYTES
        blocks = {"blk_size": BLOCK_BYTES, "n_blks": n_blocks, "n_blks_done": n_blocks, "access_cnt": 2}
        closed = [close(lfn, FILE_BYTES, now_s, b_hit=FILE_BYTES, b_miss=0, **blocks) for lfn in names]
        self._socket.sendto(self._server.gstream(*closed, ahead=self._pseq) + b"\0", self._to)


def await_idle(pid: int) -> None:
    """Wait until a process rests: a server that was just started reads all records, as a steward does."""
    used_s = -IDLE_S
    while cpu_s(pid) - used_s > IDLE_S / 10:
        used_s = cpu_s(pid)
        time.sleep(IDLE_S)


@contextmanager
def started(folder: Path, words: list[str], when: str) -> Iterator[int]:
    """A command of ours, whose log says `when` it works; its process number."""
    log = folder / f"{words[0]}.log"
    with log.open("wb") as out, subprocess.Popen([*COMMAND, *words], stderr=out) as process:
        try:
            while when not in log.read_text():
                if process.poll() is not None:
                    raise SystemExit(log.read_text())
                time.sleep(0.05)
            yield process.pid
        finally:
            process.terminate()


def main() -> int:
    """Measure, and say by the exit code whether it is within what is promised."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--files", type=int, default=1_000_000)
    options.add_argument("--minutes", type=float, default=2.0)
    options.add_argument("--policy", default="auto")
    chosen = options.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="xc-")))
        folder.chmod(0o755)
        namespace, captures = folder / "lb" / "ns", folder / "captures"
        stack.enter_context(memory_disk(namespace, 2 * 2**30))
        fill(namespace, chosen.files)
        servers = stack.enter_context(loopback(folder / "lb"))
        (port,) = free_ports(1)
        conf = folder / "conf"
        (conf / "caches").mkdir(parents=True)
        journal = Journal(f"{folder}/journal.db")
        journal.make()
        journal.close()
        (conf / "base.toml").write_text(
            f'[tables]\nroot = "{folder}/tables"\n[push]\njournal = "{folder}/journal.db"\n'
            f'[steward]\nstate = "{folder}/steward"\npolicy = "{chosen.policy}"\n'
        )
        (conf / "caches" / "cache.toml").write_text(
            f'name = "cache"\nkind = "xcache"\nurl = "{servers.cache_url}"\nwatermarks = [0.8, 0.9]\n'
            f'capacity = "{2 * chosen.files * FILE_BYTES}B"\nnamespace = "{namespace}"\n'
            f'gstream = "{captures}"\nsteward = true\n'
        )
        words = ["collect", "--port", str(port), "--out", str(captures), "--conf", str(conf)]
        stack.enter_context(started(folder, words, "listening"))
        server = XCacheTarget("cache", servers.cache_url, namespace).identity()
        await_idle(server.pid)
        began = time.monotonic()
        words = ["steward", "--cache", "cache", "--conf", str(conf)]
        pid = stack.enter_context(started(folder, words, "began"))
        start_s, started_cpu_s = time.monotonic() - began, cpu_s(pid)
        reports = Reports(server, port, chosen.files)
        reports.send(PER_SECOND)
        time.sleep(30)  # the server's start brings an inventory; that is apart
        from_cpu_s, from_s = cpu_s(pid), time.monotonic()
        until = from_s + 60 * chosen.minutes
        while time.monotonic() < until:
            reports.send(PER_SECOND)
            time.sleep(1)
        followed_s = time.monotonic() - from_s
        share = (cpu_s(pid) - from_cpu_s) / followed_s
        used, most = memory_bytes(pid), memory_bytes(pid, "VmHWM")
        of = f"{chosen.files} files, policy {chosen.policy}"
        print(f"{of}: starts in {start_s:.1f} s ({started_cpu_s:.1f} s of CPU)")
        print(f"memory {used / MB:.0f} MB, at most {most / MB:.0f} MB")
        print(f"{PER_SECOND} reads/s take {share:.1%} of a core")
        log = (folder / "steward.log").read_text().splitlines()
        print([line for line in log if "ALARM" not in line][-1])
    return 0 if start_s <= START_S and most <= MEMORY_BYTES and share <= SHARE else 1


if __name__ == "__main__":
    sys.exit(main())
