"""The placement service beside a plain FastAPI JSON route: requests, latency, memory and start.

bench/serve.py            1 M placements, 32 connections, medians of nine rounds; needs wrk
                          (conf/deploy/system.sh bench)

Datasets are asked for by Zipf's law (the i-th as often as 1/i). On a machine that others use wrk's own time
weighs as much as the server's and hides part of the ratio: the servers' CPU time per request does not.

Needs the environment that `make verify` makes: .venv/bin/python bench/serve.py
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support" / "servers")]

from measured import cpu_s, memory_bytes  # noqa: E402
from placement_server import serving  # noqa: E402

from prefetch.placement.database import PlacementTables  # noqa: E402
from prefetch.placement.snapshot import CacheHolding, Supply, dump, placed, snapshot_of  # noqa: E402
from replay.ranges import keys_of  # noqa: E402

N_DATASETS, N_SITES, N_SERVERS = 1_000_000, 10, 24
CONNECTIONS, ROUNDS, SECONDS = 32, 9, 2
PACED_ROUNDS, PACED_SECONDS = 7, 2
TARGETS = {"/serverRanges": 10.0, "/ds": 3.0}
_PLAIN = """
import json, sys, uvicorn
from fastapi import FastAPI
app = FastAPI()
ranges = json.load(open(sys.argv[2]))
placements = {f"cms:/P{i}/E/AOD": [f"SITE{i % 10}"] for i in range(int(sys.argv[3]))}
@app.get("/serverRanges")
async def server_ranges(): return ranges
@app.get("/ds/{n}/{did:path}")
async def dataset(n: int, did: str): return placements.get(did, ["other"])[:n]
quiet = {"log_level": "warning", "access_log": False}
uvicorn.run(app, port=int(sys.argv[1]), loop="uvloop", http="httptools", **quiet)
"""
_LUA = """
local asked, at = {}, 0
init = function()
  math.randomseed(os.time())
  for i = 1, 100000 do
    local dataset = math.floor(math.exp(math.random() * math.log(%d)))
    asked[i] = wrk.format("GET", "/ds/5/cms:/P" .. dataset .. "/E/AOD")
  end
end
request = function() at = at %% 100000 + 1; return asked[at] end
"""
_PAUSE = f"""
function delay() return math.random({CONNECTIONS - 12}, {CONNECTIONS + 10}) end
"""


def stored(database: Path) -> None:
    """A million datasets with a placement each, popular ones at several sites."""
    random = np.random.default_rng(1)
    names = [f"cms:/P{i}/E/AOD" for i in range(N_DATASETS)]
    keys = keys_of(names)
    sites = tuple(f"SITE{i}" for i in range(N_SITES))
    supply = Supply(sites, tuple([1.0] * N_SITES), tuple([1e8] * N_SITES))
    held = random.random((N_DATASETS, N_SITES)) * (random.random((N_DATASETS, N_SITES)) < 0.2)
    demand = random.pareto(1.2, N_DATASETS) * 1e7
    rows = placed(keys, held, demand, np.ones(N_DATASETS), supply, min_reads=0.0)
    size = np.full(N_DATASETS, 1e12)
    snapshot = snapshot_of(
        as_of="2026-03-01T00:00:00Z",
        sites=sites,
        caches=[(f"xc{i}", site) for i, site in enumerate(sites)],
        capacities={},
        datasets=keys,
        placed=rows,
        items=names,
        size_bytes=size,
        holdings=[
            CacheHolding(np.arange(N_DATASETS), held[:, i] * size, held[:, i] * size) for i in range(N_SITES)
        ],
    )
    with closing(PlacementTables(str(database))) as opened:
        opened.refresh(dump(snapshot), snapshot.as_of)


@contextmanager
def ours(database: Path) -> Iterator[tuple[str, int, float]]:
    """The service with a million placements and 24 servers: URL, process, and seconds until it answered."""
    caches = {f"xc{i}": (f"SITE{i % N_SITES}", 96 + i) for i in range(N_SERVERS)}
    began = time.monotonic()
    with serving(database, caches=caches) as server:
        _until(lambda: json.loads(read(f"{server.url}/health"))["datasets"] == N_DATASETS)
        took_s = time.monotonic() - began
        for name in caches:
            server.beat(name)
        assert server.process is not None
        yield server.url, server.process.pid, took_s


@contextmanager
def plain(ranges: Path, port: int) -> Iterator[tuple[str, int]]:
    """Two FastAPI routes that answer the same from dictionaries."""
    command = [sys.executable, "-c", _PLAIN, str(port), str(ranges), str(N_DATASETS)]
    process = subprocess.Popen(command)
    try:
        _until(lambda: bool(read(f"http://127.0.0.1:{port}/serverRanges")))
        yield f"http://127.0.0.1:{port}", process.pid
    finally:
        process.terminate()
        process.wait(30)


def read(url: str) -> bytes:
    """The reply to a GET."""
    with urllib.request.urlopen(url, timeout=10) as reply:
        return bytes(reply.read())


def per_second(url: str, script: Path | None, pid: int) -> tuple[float, float]:
    """Requests a second with 32 connections, as wrk counts them, and the server's CPU time of each in µs."""
    words = [] if script is None else ["-s", str(script)]
    began_s = cpu_s(pid)
    command = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{SECONDS}s", *words, url]
    report = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "Non-2xx" not in report, report
    totals = re.search(r"(\d+) requests in(?s:.*)Requests/sec: *([0-9.]+)", report)
    assert totals is not None, report
    return float(totals[2]), (cpu_s(pid) - began_s) / int(totals[1]) * 1e6


def paced_ms(url: str, script: Path) -> tuple[float, float]:
    """Requests a second with pauses on each connection, and the 99th percentile of their latency."""
    command = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{PACED_SECONDS}s", "--latency", "-s", str(script), url]
    report = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "Non-2xx" not in report, report
    p99 = re.search(r"99% +([0-9.]+)(us|ms|s)", report)
    rate = re.search(r"Requests/sec: *([0-9.]+)", report)
    assert p99 is not None, report
    assert rate is not None, report
    return float(rate[1]), float(p99[1]) * {"us": 1e-3, "ms": 1.0, "s": 1e3}[p99[2]]


def _until(report: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        try:
            if report():
                return
        except OSError:
            pass
        time.sleep(0.02)
    raise SystemExit("a server did not answer within 120 s")


def main() -> None:
    """Print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a target is missed")
    options = parser.parse_args()
    if shutil.which("wrk") is None:
        raise SystemExit("wrk is missing: install it with conf/deploy/system.sh bench")
    with tempfile.TemporaryDirectory() as folder:
        missed = compared(Path(folder))
    print(f"targets missed: {missed}")
    raise SystemExit(bool(options.strict and missed))


def compared(folder: Path) -> int:
    """Run both servers side by side, alternating; the number of targets missed."""
    stored(folder / "placement.db")
    lookups, pause = folder / "asked.lua", folder / "pause.lua"
    lookups.write_text(_LUA % N_DATASETS)
    pause.write_text(_PAUSE)
    with ours(folder / "placement.db") as (url, pid, took_s):
        (folder / "ranges.json").write_bytes(read(f"{url}/serverRanges"))
        with plain(folder / "ranges.json", 8399) as (other, other_pid):
            servers = {"cachecast": (url, pid), "FastAPI": (other, other_pid)}
            missed = _ratio(servers, "/serverRanges", None) + _ratio(servers, "/ds", lookups)
            lookups.write_text(lookups.read_text() + _PAUSE)
            missed += _paced(servers, "/serverRanges", pause) + _paced(servers, "/ds", lookups)
        now, peak = (memory_bytes(pid, what) / 1e6 for what in ("VmRSS", "VmHWM"))
        print(
            f"memory         {now:.0f} MB, peak {peak:.0f} MB (target 300); start {took_s:.1f} s (target 3)"
        )
        return missed + (peak > 300) + (took_s > 3)


def _ratio(servers: Mapping[str, tuple[str, int]], route: str, script: Path | None) -> int:
    path = route if script is None else ""
    rounds = [
        [per_second(f"{base}{path}", script, pid) for base, pid in servers.values()] for _ in range(ROUNDS)
    ]
    (mine, my_us), (theirs, their_us) = (
        [statistics.median(turn[i][k] for turn in rounds) for k in (0, 1)] for i in (0, 1)
    )
    ratio = statistics.median(mine[0] / theirs[0] for mine, theirs in rounds)
    target = TARGETS[route]
    print(
        f"{route:14} {mine:.0f}/s, plain FastAPI {theirs:.0f}/s: {ratio:.1f} x (target {target:.0f} x); "
        f"CPU {my_us:.0f} and {their_us:.0f} µs a request: {their_us / my_us:.1f} x"
    )
    return ratio < target


def _paced(servers: Mapping[str, tuple[str, int]], route: str, script: Path) -> int:
    report = {
        name: [paced_ms(f"{base}{route}", script) for _ in range(PACED_ROUNDS)]
        for name, (base, _) in servers.items()
    }
    rate = statistics.median(rate for rate, _ in report["cachecast"])
    mine, theirs = (sorted(p99 for _, p99 in report[name]) for name in ("cachecast", "FastAPI"))
    p99 = statistics.median(mine)
    print(
        f"{route:14} at {rate:.0f}/s: 99 % within {p99:.1f} ms, best round {mine[0]:.1f} (target 5); "
        f"plain FastAPI {statistics.median(theirs):.1f}, best {theirs[0]:.1f}"
    )
    return p99 > 5


if __name__ == "__main__":
    main()
