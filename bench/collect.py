"""The collector on loopback: what it keeps at rising rates, and whether it counts all that it does not.

bench/collect.py          the highest rate without loss, and the loss beyond it

Sent are numbered g-stream datagrams of 497 to 499 bytes. What is missing shows twice: by the gaps in their
numbers, in the captures read back, and by the kernel's count of what it dropped.

Needs the environment that `make verify` makes: .venv/bin/python bench/collect.py
"""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support" / "servers")]

from daemons import wait  # noqa: E402
from monitoring import Sender, close  # noqa: E402

from prefetch.xcache.gstream import PSEQ_MODULUS, CaptureReader, Numberings  # noqa: E402

WANTED_RATE = 5_000
RATES = (WANTED_RATE, 10_000, 20_000, 40_000, 80_000, 160_000)
SECONDS = 3
START_S = 1_772_323_200
# As fast as a sender of this process can: the kernel must drop some.
FLOOD = 400_000


class Told(NamedTuple):
    """One run: datagrams, and what two independent counts say is missing of them."""

    sent: int
    seconds: float
    kept: int
    dropped: int
    gaps: int

    @property
    def line(self) -> str:
        rate, lost = self.sent / self.seconds, self.sent - self.kept
        counted = "all counted" if lost == self.dropped else f"COUNTED {self.dropped}"
        return (
            f"{rate:8.0f}/s for {self.seconds:4.1f} s: sent {self.sent}, kept {self.kept}, "
            f"lost {lost} ({counted} by the kernel; gaps in the numbers tell at least {self.gaps})"
        )


def collected(n_datagrams: int, rate: int | None) -> Told:
    """Send to a collector of its own at `rate` a second, or as fast as it goes."""
    with tempfile.TemporaryDirectory() as folder:
        captures, log = Path(folder, "captures"), Path(folder, "collect.log")
        command = [sys.executable, "-c", "from jobs.cli.main import main; main()", "collect", "--json"]
        with log.open("wb") as stderr:
            daemon = subprocess.Popen(
                [*command, "--port", "0", "--out", str(captures)],
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=stderr,
            )
        wait(lambda: "\n" in log.read_text(), log.parent, daemon)
        listening = re.search(r":(\d+), writing", log.read_text())
        assert listening is not None
        seconds = send(int(listening[1]), n_datagrams, rate)
        daemon.send_signal(signal.SIGTERM)
        counts = json.loads(daemon.communicate()[0])
        numberings = Numberings()
        readers = (CaptureReader(path, numberings) for path in sorted(captures.glob("gstream-*")))
        events = sum(1 for reader in readers for _ in reader.poll())
        assert events == counts["datagrams"], "what was counted is not what is in the captures"
        return Told(n_datagrams, seconds, counts["datagrams"], counts["dropped"], numberings.n_lost)


def send(port: int, n_datagrams: int, rate: int | None) -> float:
    """Seconds it took."""
    cache = Sender("vm", 41104, "cache4", "XC_TEST_6", START_S, 1)
    record = close("/store/data/l/f0000.root", 52428800, START_S + 1)
    datagrams = [cache.gstream(record, ahead=number) + b"\0" for number in range(PSEQ_MODULUS)]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.connect(("127.0.0.1", port))
        began = time.monotonic()
        for number in range(n_datagrams):
            sender.send(datagrams[number % PSEQ_MODULUS])
            if rate is not None and number % 50 == 0:
                time.sleep(max(0.0, began + number / rate - time.monotonic()))
        return time.monotonic() - began


def main() -> None:
    """Print a line a rate; fails if the wanted rate lost one, or a loss was not counted."""
    best = 0.0
    for rate in RATES:
        run = collected(rate * SECONDS, rate)
        print(run.line, flush=True)
        assert run.sent - run.kept == run.dropped, "a loss that nobody counted"
        assert run.dropped == 0 or rate > WANTED_RATE, f"lost some at {WANTED_RATE} a second"
        if run.dropped:
            break
        best = max(best, run.sent / run.seconds)
    flood = collected(FLOOD, None)
    print(f"flooded: {flood.line}")
    assert flood.sent - flood.kept == flood.dropped, "a loss that nobody counted"
    print(f"highest rate without loss: {best:.0f} datagrams/s, {best / WANTED_RATE:.1f} x the rate wanted")


if __name__ == "__main__":
    main()
