"""An attacker as a process of its own: sends a collector what an account of its host can make up.

forger.py PORT CAPTURES SEED. Each line that it reads is a kind of `KINDS`, a tab, and seconds; when they are
over it prints how many datagrams it has sent. It knows what captures show: the server's name, start and
session number, its files' names and numbers, and its real datagrams. bench/drill_attacker.py starts it
in the environment that `make verify` makes.
"""

from __future__ import annotations

import base64
import dataclasses
import itertools
import json
import random
import re
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support" / "servers")]

from monitoring import Sender, close, closing, opening, users  # noqa: E402

from prefetch.xcache.events import FileClose  # noqa: E402
from prefetch.xcache.fstream import Packet  # noqa: E402
from prefetch.xcache.gstream import FolderReader  # noqa: E402

MIB = 2**20
PAUSE_S = 0.005
N_REPLAYED = 500
N_NAMES = 200
_FRAME = re.compile(rb"@@\d+ \d+ (\d+)\n")
_BROKEN = ("", "/", "a", "/../../etc/passwd", "/store/\0", "/store/\ud800", "/" + "x" * 5000, "/é\n/%2e")


class Forger:
    """Makes up datagrams; `chance` decides all that is random."""

    def __init__(self, captures: Path, chance: random.Random) -> None:
        self.chance, self.us = chance, Sender.heard(captures)
        self._reader = FolderReader(captures)
        self._real = list(itertools.islice(_datagrams(captures), N_REPLAYED))
        self._names, self._files = dict[str, None](), dict[int, None]()
        self.look()

    def look(self) -> None:
        """Take the newest names and files' numbers from the captures."""
        for event in self._reader.events():
            if isinstance(event, FileClose) and event.lfn.startswith("/store/mc/"):
                self._names[event.lfn] = None
            if isinstance(event, Packet) and event.stod == self.us.stod:
                self._files |= dict.fromkeys(opened.file_id for opened in event.opened)
        self._names = dict.fromkeys(list(self._names)[-N_NAMES:])
        self._files = dict.fromkeys(list(self._files)[-N_NAMES:])

    def absurd_sizes(self) -> Iterator[bytes]:
        size = 2 ** self.chance.randint(31, 62)
        yield self._gstream(close(self._name(), size, _now_s(), b_hit=self.chance.choice([0, size])))
        yield self._fstream(opening(self._file(), self._name(), size=size))

    def plausible_sizes(self) -> Iterator[bytes]:
        done = self.chance.randint(0, 8)
        blocks = {"blk_size": MIB // 8, "n_blks": 8, "n_blks_done": done}
        yield self._gstream(*(close(self._name(), MIB, _now_s(), **blocks) for _ in range(20)))

    def broken_names(self) -> Iterator[bytes]:
        name = self.chance.choice(_BROKEN)
        yield self._gstream(close(name, MIB, _now_s()))
        yield self._gstream(close("/store/\xff", MIB, _now_s())).replace(b"\\u00ff", b"\xff\xfe")
        yield self._fstream(opening(self._file(), name.encode("utf-8", "replace").decode()))

    def opens_of_its_own(self) -> Iterator[bytes]:
        user = self.chance.randint(0, 50)
        yield self.us.login(user, "nobody")
        yield self._fstream(*(opening(self._file(), self._name(), size=MIB, user=user) for _ in range(9)))

    def closes_of_its_own(self) -> Iterator[bytes]:
        yield self._fstream(*(closing(self._file(), MIB, self.chance.choice([0, MIB])) for _ in range(20)))
        yield users(b"i", f"xroot/a.1:{self.us.sid}@h\nwork", stod=self.us.stod)

    def restarts(self) -> Iterator[bytes]:
        later = dataclasses.replace(self.us, stod=self.us.stod + self.chance.randint(-9999, 9999), pseq=0)
        yield self.chance.choice([later.ident(), later.gstream(), later.fstream(0, _now_s(), opening(1))])

    def other_servers(self) -> Iterator[bytes]:
        changed = self.chance.choice([{"inst": "anon"}, {"host": "else"}, {"port": 1094}, {"sid": 7}])
        other = dataclasses.replace(self.us, **changed)  # type: ignore[arg-type]
        yield self.chance.choice([other.ident(), other.gstream(close(self._name(), MIB, _now_s()))])
        yield other.fstream(self.chance.randrange(256), _now_s(), opening(self._file(), self._name()))

    def replays(self) -> Iterator[bytes]:
        some = self.chance.choices(self._real, k=10)
        yield from some
        yield from reversed(some)

    def floods(self) -> Iterator[bytes]:
        names = [f"/store/{self.chance.getrandbits(99):x}/{n}.root" for n in range(40)]
        yield self._fstream(*(opening(self.chance.getrandbits(32), name, size=MIB) for name in names))
        yield self._gstream(*(close(name, MIB, _now_s()) for name in names))

    def strange_times(self) -> Iterator[bytes]:
        at_s = self.chance.choice([0, 1, _now_s() - 10**8, _now_s() + 10**8, 2**31 - 1, 2**62])
        yield self._gstream(close(self._name(), MIB, at_s + 1))
        yield self.us.fstream(0, min(at_s, 2**31 - 1), opening(self._file(), self._name()))

    def jumps(self) -> Iterator[bytes]:
        yield self.us.gstream(close(self._name(), MIB, _now_s()), ahead=self.chance.randrange(1000))
        yield self._fstream()

    def noise(self) -> Iterator[bytes]:
        real = self.chance.choice(self._real)
        yield real[: self.chance.randrange(len(real))]
        yield self.chance.randbytes(self.chance.randrange(1400))

    def everything(self) -> Iterator[bytes]:
        some = [each for kind in self.chance.sample(list(KINDS.values())[:-1], 3) for each in kind(self)]
        self.chance.shuffle(some)
        yield from some

    def _gstream(self, *records: dict[str, object]) -> bytes:
        self.us = dataclasses.replace(self.us, pseq=self.us.pseq + 1)
        return self.us.gstream(*records)

    def _fstream(self, *records: bytes) -> bytes:
        return self.us.fstream(self.chance.randrange(256), _now_s(), *records)

    def _name(self) -> str:
        """A file that the cache has or had, or one that nobody has."""
        return self.chance.choice([*self._names, f"/store/mc/none{self.chance.randrange(99)}.root"])

    def _file(self) -> int:
        """The number of a file that is or was open, or of none."""
        return self.chance.choice([*self._files, self.chance.getrandbits(32)])


KINDS: dict[str, Callable[[Forger], Iterator[bytes]]] = {
    "closes of absurd sizes": Forger.absurd_sizes,
    "closes of plausible sizes": Forger.plausible_sizes,
    "names of broken text": Forger.broken_names,
    "opens in its name": Forger.opens_of_its_own,
    "closes in its name": Forger.closes_of_its_own,
    "restarts in its name": Forger.restarts,
    "other servers": Forger.other_servers,
    "replays, reordered and doubled": Forger.replays,
    "floods of names": Forger.floods,
    "times of the future and the past": Forger.strange_times,
    "jumps in the numbering": Forger.jumps,
    "noise": Forger.noise,
    "a mix of all": Forger.everything,
}


def _datagrams(captures: Path) -> Iterator[bytes]:
    """Real datagrams, as they were sent."""
    for path in sorted(captures.glob("gstream-*")):
        text, at = path.read_bytes(), 0
        while frame := _FRAME.match(text, at):
            body, at = text[frame.end() : frame.end() + int(frame[1])], frame.end() + int(frame[1])
            record = json.loads(body.partition(b"\n")[0])
            yield base64.b64decode(record["data"]) if "data" in record else body


def _now_s() -> int:
    return int(time.time())


def main() -> None:
    """Make the attacks that stdin names, a line each, until it ends."""
    port, captures, seed = int(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    forger = Forger(captures, random.Random(seed))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for line in sys.stdin:
            kind, _, seconds = line.rstrip("\n").partition("\t")
            forger.look()
            n_sent, until = 0, time.monotonic() + float(seconds)
            while time.monotonic() < until:
                for datagram in KINDS[kind](forger):
                    sender.sendto(datagram, ("127.0.0.1", port))
                    n_sent += 1
                time.sleep(PAUSE_S)
            sys.stdout.write(f"{n_sent}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
