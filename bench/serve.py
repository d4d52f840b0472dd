"""The placement service beside a plain FastAPI JSON route: requests, latency, memory, start; and its floods.

bench/serve.py            1 M placements, 32 connections, medians of nine rounds; needs wrk
                          (conf/deploy/system.sh bench)
bench/serve.py --floods   how long `/serverRanges` takes while others do their worst, 10 s of each; no wrk

Datasets are asked for by Zipf's law (the i-th as often as 1/i). On a machine that others use wrk's own time
weighs as much as the server's and hides part of the ratio: the servers' CPU time per request does not.

Needs the environment that `make verify` makes: .venv/bin/python bench/serve.py
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support" / "servers")]

import floods  # noqa: E402
from placement_server import configured  # noqa: E402

from prefetch.placement.build import Holding, snapshot_of  # noqa: E402
from prefetch.placement.database import Database  # noqa: E402
from prefetch.placement.decide import Supply, placed  # noqa: E402
from prefetch.placement.snapshot import dump  # noqa: E402
from replay.rendezvous import keys_of  # noqa: E402

N_DATASETS, N_SITES, N_SERVERS = 1_000_000, 10, 24
CONNECTIONS, ROUNDS, SECONDS = 32, 9, 2
PACED_ROUNDS, PACED_SECONDS = 7, 2
TOKEN = "benchmark-token-0123456789"
FLOOD_S, FLOOD_TARGET_S = 10, 1.0
PLAN_ITEMS = 100_000
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
            Holding(np.arange(N_DATASETS), held[:, i] * size, held[:, i] * size) for i in range(N_SITES)
        ],
    )
    with closing(Database(str(database))) as opened:
        items = [{"did": name, "action": "pin", "rank": i} for i, name in enumerate(names[:PLAN_ITEMS])]
        plan = gzip.compress(json.dumps({"cache": "xc1", "items": items}).encode())
        opened.refresh(dump(snapshot), snapshot.as_of, {"xc1": plan})


@contextmanager
def ours(database: Path) -> Iterator[tuple[str, int, float]]:
    """The service with a million placements and 24 servers: URL, process, and seconds until it answered."""
    env = {"CACHECAST_SERVE__DATABASE": str(database), "CACHECAST_SERVE__TOKEN": TOKEN}
    conf = database.parent / "conf"
    configured(conf, {f"xc{i}": (f"SITE{i % N_SITES}", 96 + i) for i in range(N_SERVERS)})
    command = [sys.executable, "-c", "from jobs.cli.main import main; main()", "serve", "--port", "0"]
    command += ["--conf", str(conf)]
    began = time.monotonic()
    process = subprocess.Popen(command, cwd=ROOT, env=os.environ | env, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        found = re.search(r"(http://[^ ,]+)", process.stderr.readline())
        assert found is not None
        _until(lambda: json.loads(read(f"{found[1]}/health"))["datasets"] == N_DATASETS)
        took_s = time.monotonic() - began
        for i in range(N_SERVERS):
            read(f"{found[1]}/liveness", json.dumps({"id": f"xc{i}"}).encode())
        yield found[1], process.pid, took_s
    finally:
        process.terminate()
        process.wait(30)


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


def read(url: str, body: bytes | None = None) -> bytes:
    """The reply to a GET, or to a POST with the bench's token."""
    headers = {"authorization": f"Bearer {TOKEN}", "content-type": "application/json"}
    request = urllib.request.Request(url, data=body, headers=headers)
    with urllib.request.urlopen(request, timeout=10) as reply:
        return bytes(reply.read())


def per_second(url: str, script: Path | None, pid: int) -> tuple[float, float]:
    """Requests a second with 32 connections, as wrk counts them, and the server's CPU time of each in µs."""
    words = [] if script is None else ["-s", str(script)]
    began_s = cpu_s(pid)
    command = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{SECONDS}s", *words, url]
    report = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "Non-2xx" not in report, report
    found = re.search(r"(\d+) requests in(?s:.*)Requests/sec: *([0-9.]+)", report)
    assert found is not None, report
    return float(found[2]), (cpu_s(pid) - began_s) / int(found[1]) * 1e6


def cpu_s(pid: int) -> float:
    """CPU seconds that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


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


def memory_mb(pid: int) -> tuple[float, float]:
    """Resident megabytes of a process now, and at their highest."""
    status = Path(f"/proc/{pid}/status").read_text()
    now, peak = (re.search(rf"{key}:\s+(\d+) kB", status) for key in ("VmRSS", "VmHWM"))
    assert now is not None
    assert peak is not None
    return int(now[1]) / 1000, int(peak[1]) / 1000


def _until(report: object) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        try:
            if report():  # type: ignore[operator]
                return
        except OSError:
            pass
        time.sleep(0.02)
    raise SystemExit("a server did not answer within 120 s")


def main() -> None:
    """Print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a target is missed")
    parser.add_argument("--floods", action="store_true", help="the floods alone")
    given = parser.parse_args()
    if not given.floods and shutil.which("wrk") is None:
        raise SystemExit("wrk is missing: install it with conf/deploy/system.sh bench")
    with tempfile.TemporaryDirectory() as folder:
        missed = flooded(Path(folder)) if given.floods else measured(Path(folder))
    print(f"targets missed: {missed}")
    raise SystemExit(bool(given.strict and missed))


def flooded(folder: Path) -> int:
    """Ask on new connections during each flood, and before any; the number of targets missed."""
    stored(folder / "placement.db")
    missed = 0
    with ours(folder / "placement.db") as (url, pid, _):
        address = floods.address_of(url)
        for name, flood in {"none": lambda _: nullcontext(), **floods.FLOODS}.items():
            with flood(address):
                missed += _asked_during(name, address, pid)
    return missed


def _asked_during(name: str, address: floods.Address, pid: int) -> int:
    took_s: list[float] = []
    deadline = time.monotonic() + FLOOD_S
    while time.monotonic() < deadline:
        try:
            took_s.append(floods.ranges_s(address))
        except OSError:
            took_s.append(float("inf"))
        time.sleep(0.02)
    took_s.sort()
    print(
        f"flood: {name:12} {len(took_s)} asked, median {statistics.median(took_s) * 1e3:.0f} ms, longest "
        f"{took_s[-1] * 1e3:.0f} ms (target {FLOOD_TARGET_S * 1e3:.0f}); memory {memory_mb(pid)[0]:.0f} MB",
        flush=True,
    )
    return took_s[-1] > FLOOD_TARGET_S


def measured(folder: Path) -> int:
    """Run both servers side by side, alternating; the number of targets missed."""
    stored(folder / "placement.db")
    asked, pause = folder / "asked.lua", folder / "pause.lua"
    asked.write_text(_LUA % N_DATASETS)
    pause.write_text(_PAUSE)
    with ours(folder / "placement.db") as (url, pid, took_s):
        (folder / "ranges.json").write_bytes(read(f"{url}/serverRanges"))
        with plain(folder / "ranges.json", 8399) as (other, other_pid):
            servers = {"cachecast": (url, pid), "FastAPI": (other, other_pid)}
            missed = _ratio(servers, "/serverRanges", None) + _ratio(servers, "/ds", asked)
            asked.write_text(asked.read_text() + _PAUSE)
            missed += _paced(servers, "/serverRanges", pause) + _paced(servers, "/ds", asked)
        now, peak = memory_mb(pid)
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
        [statistics.median(one[i][k] for one in rounds) for k in (0, 1)] for i in (0, 1)
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
