"""What a cache and its origins give to jobs at distances: `cachecast site-test` over links that delay.

bench/site_test.py            seven pairs of distances, three rounds each
bench/site_test.py --short    one pair, one round

A real origin and a real XCache on loopback. Clients reach both, and the cache its origin, by links (a proxy
in this process) that deliver every byte half a round trip later, take a round trip to connect, and hold at
most 4 MiB per connection under way, as TCP does. They lose nothing and have no slow start, and the machine is
the bandwidth: what distance costs is seen, not what a busy network costs. A table compares with what CERN,
PIC and DOMA published.
Ends with 1 if a delay is not measured as it is, a file stays in the cache, or a distance is not seen.

Needs the environment that `make verify` makes: .venv/bin/python bench/site_test.py
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support" / "servers")]

import numpy as np  # noqa: E402
from trickling_proxy import TricklingProxy, door  # noqa: E402

from jobs.local_site.local.xrootd import Loopback, loopback  # noqa: E402
from replay.study.benefit import PUBLISHED_HIT_POINTS, PUBLISHED_POINTS, EfficiencyPoint  # noqa: E402

WINDOW_BYTES = 4 * 2**20
N_FILES, FILE_BYTES = 4, 32 * 2**20
JOB_RATE, LOCAL = 2.4e6, 0.98
COMMAND = "import sys; from jobs.cli.main import main; sys.argv = ['cachecast', *sys.argv[1:]]; main()"
READINGS = ("whole", "35 %", "5 %")
PLACES = ("direct", "cold", "warm")


class Distance(NamedTuple):
    """Round trips in ms: from clients to the cache, and from both to the origin."""

    cache: float
    origin: float


DISTANCES = (
    *(Distance(0, 0), Distance(0, 9), Distance(0, 30), Distance(0, 150)),
    *(Distance(9, 30), Distance(30, 150), Distance(150, 150)),
)


class Links(NamedTuple):
    """The links from clients to the cache and to the origin, and from the cache to the origin."""

    to_cache: TricklingProxy
    to_origin: TricklingProxy
    behind: TricklingProxy

    def set(self, distance: Distance) -> None:
        """Delay from now on."""
        for link, ms in zip(self, (distance.cache, distance.origin, distance.origin), strict=True):
            link.delay_s, link.window_bytes = ms / 2000, WINDOW_BYTES


def main() -> int:
    """Measure at each distance and print the tables; the exit code says whether the promises hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true")
    short = parser.parse_args().short
    answers, faults = dict[Distance, Any](), list[str]()
    with site() as (servers, links, conf):
        for distance in DISTANCES[2:3] if short else DISTANCES:
            links.set(distance)
            print(f"{distance}", file=sys.stderr, flush=True)
            answers[distance] = answer = tested(conf, links, rounds=1 if short else 3)
            faults += _faults(distance, answer, servers)
    print("Links delay by a proxy, with 4 MiB per connection under way; loopback is the bandwidth.")
    print("The cache fetches blocks of 1 MiB, and nothing ahead.\n")
    print_rates(answers)
    print_shapes(answers)
    for fault in faults:
        print(f"\nFAULT: {fault}")
    return 1 if faults else 0


@contextlib.contextmanager
def site() -> Iterator[tuple[Loopback, Links, Path]]:
    """The servers, their links, and settings by which the cache is reached over its link."""
    with tempfile.TemporaryDirectory(prefix="xc-") as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        folder.chmod(0o755)
        links = Links(*(stack.enter_context(door()) for _ in range(3)))
        more = f"pss.origin 127.0.0.1:{links.behind.port}\npfc.blocksize 1m\n"
        servers = stack.enter_context(loopback(folder / "lb", more=more))
        links.to_cache.upstream = servers.cache.port
        links.to_origin.upstream = links.behind.upstream = servers.origin.port
        for number in range(N_FILES):
            servers.add_file(f"/store/mc/file{number}.root", os.urandom(FILE_BYTES))
        conf = folder / "site.toml"
        conf.write_text(
            f'[tables]\nroot = "{folder}/tables"\n[caches.xc]\nname = "xc"\nkind = "xcache"\n'
            f'capacity = "1GB"\nurl = "root://127.0.0.1:{links.to_cache.port}"\n'
            f'namespace = "{servers.namespace}"\n'
        )
        yield servers, links, conf


def tested(conf: Path, links: Links, *, rounds: int) -> dict[str, Any]:
    """The answer of `cachecast site-test`."""
    files = [word for n in range(N_FILES) for word in ("--file", f"/store/mc/file{n}.root")]
    words = ["site-test", "--conf", str(conf), "--cache", "xc", *files, "--json", "--time", "5m"]
    words += ["--origin", f"root://localhost:{links.to_origin.port}", "--repeat", str(rounds)]
    words += ["--clients", "1,16"]
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def per_s(answer: Mapping[str, Any], place: str, reading: str = "whole", *, clients: int = 1) -> float:
    """The median rate, bytes per second."""
    place = "localhost" if place == "direct" else place
    for row in answer["rates"]:
        if (row["place"], row["reading"], row["clients"]) == (place, reading, clients):
            return float(row["rate_bytes_per_s"])
    raise SystemExit(f"no rate of {place}, {reading}, {clients} clients: {answer['notes']}")


def print_rates(answers: Mapping[Distance, Any]) -> None:
    """A line per distance and part of a file."""
    print("MB/s, medians: one client, and 16 clients together\n")
    print("| ms to cache, to origin | read | " + " | ".join(PLACES) + " | cold/direct | warm/direct |")
    print("|---|---|---|---|---|---|---|")
    for distance, answer in answers.items():
        for reading, clients in [*((kind, 1) for kind in READINGS), ("whole", 16)]:
            rates = [per_s(answer, place, reading, clients=clients) for place in PLACES]
            who = reading if clients == 1 else f"{reading}, {clients} clients"
            cells = [
                f"{distance.cache:g}, {distance.origin:g}",
                who,
                *(f"{rate / 1e6:.1f}" for rate in rates),
            ]
            print("| " + " | ".join([*cells, *(f"{rate / rates[0]:.2f}" for rate in rates[1:])]) + " |")


def efficiency(rate: float) -> float:
    """CPU efficiency of a job that computes 2.4 MB per second, waits for each read, and has 98 % locally."""
    return LOCAL * rate / (rate + JOB_RATE)


def published(points: tuple[EfficiencyPoint, ...], ms: float) -> float:
    """PIC's CPU efficiency at a round trip, interpolated."""
    return float(np.interp(ms, [at.rtt_ms for at in points], [at.cpu_efficiency for at in points]))


def print_shapes(answers: Mapping[Distance, Any]) -> None:
    """What distance does to a job that reads 35 %, beside what was published."""
    print("\nA job of 2.4 MB/s that waits for each read of 35 % of a file: CPU efficiency, %\n")
    print("| ms to cache, to origin | direct | PIC, direct | cold | warm | PIC, hits | cold longer by |")
    print("|---|---|---|---|---|---|---|")
    for distance, answer in answers.items():
        direct, cold, warm = (efficiency(per_s(answer, place, "35 %")) for place in PLACES)
        pic = published(PUBLISHED_POINTS, distance.origin), published(PUBLISHED_HIT_POINTS, distance.cache)
        shares = [direct, pic[0], cold, warm, pic[1], direct / cold - 1]
        cells = [f"{distance.cache:g}, {distance.origin:g}", *(f"{100 * share:.1f}" for share in shares)]
        print(f"| {' | '.join(cells)} % |")
    print("\nCERN: an empty cache is 10 % slower than direct reads (RNTuple), 39 % over the Atlantic (AGC);")
    print("a warm one is as direct reads are. DOMA: an empty cache takes 5 to 8 % longer than local reads.")


def _faults(distance: Distance, answer: Mapping[str, Any], servers: Loopback) -> Iterator[str]:
    """What was promised and does not hold."""
    for trip, ms in zip(answer["round_trips"], (distance.origin, distance.cache), strict=True):
        if not ms <= trip["round_trip_ms"] <= 1.2 * ms + 5:
            yield f"{distance}: {trip['place']} was measured at {trip['round_trip_ms']:.1f} ms"
    left = [path.name for path in servers.namespace.rglob("*.root*")]
    if left:
        yield f"{distance}: left in the cache: {', '.join(left)}"
    if answer["failures"]:
        yield f"{distance}: {answer['failures']}"
    if distance.origin > 3 * distance.cache and per_s(answer, "warm", "5 %") <= per_s(
        answer, "direct", "5 %"
    ):
        yield f"{distance}: sparse reads from the nearer cache are no faster than from the origin"


if __name__ == "__main__":
    sys.exit(main())
