"""Plans for 24 caches from a million candidates on one core: at most 30 s for all, rows included.

bench/plan.py [--candidates N] [--caches K]     seconds of CPU per part; 1 if above what is promised

`alone`: each cache may take any of the candidates; `federation`: each belongs to one. Capacities are
SoCal's (12 × 24 TB, 11 × 96–388 TB, 44 TB), predictions have 8 horizons, caches are full of candidates, and
of files that came since the predictions.

Needs the environment that `make verify` makes: .venv/bin/python bench/plan.py
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
import pyarrow as pa
from plain_files import plain_files

from features.common.arrays import BoolArray, IntArray
from jobs.ground.caches.paths import Paths
from jobs.ground.settings.tree import CacheSettings
from jobs.ground.store.commits import MomentKey
from jobs.loop.ingest.queued_files import NO_FILES, Queued
from jobs.loop.plan.items import items
from models.serving.versions import ModelVersion
from prefetch.plan.items import PlanLimits
from prefetch.plan.planner import ValuePlanner
from prefetch.plan.rules import Rule, is_control, treatments
from prefetch.plan.scores import NEVER_S, Files, Scores
from replay.planner import CacheState
from replay.ranges import layout_of

PROMISED_S = 30.0
AS_OF_S = 1_772_323_200
CANDIDATES_PER_NEW_FILE = 50
"""A new file is one that nothing predicts yet; every other is of no dataset."""
HORIZONS = tuple(h * 3600 for h in (1, 6, 12, 24, 48, 96, 168, 720))
CAPACITIES_TB = [24] * 12 + [96 + 292 * k // 10 for k in range(11)] + [44]
LIMITS = PlanLimits(3600, 0.05, 0.6, read_once_below=0.02, hysteresis=0.1, cached_fraction=0.9)


def main() -> int:
    """Print the seconds of each part; 1 if they are more than promised."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--candidates", type=int, default=1_000_000)
    parser.add_argument("--caches", type=int, default=24)
    args = parser.parse_args()
    pa.set_cpu_count(1)
    rng = np.random.default_rng(1)
    n_files = args.candidates + args.candidates // CANDIDATES_PER_NEW_FILE
    scores = predicted(args.candidates, n_files, rng)
    dids = pa.array([f"cms:/store/mc/ERA/P{i // 100}/AODSIM/v1/{i:07}.root" for i in range(n_files)])
    tier = pa.array(rng.integers(0, 6, n_files)).dictionary_encode()
    tiers = pa.array(["AODSIM", "MINIAODSIM", "NANOAODSIM", "RAW", "USER", "AOD"]).take(tier.indices)
    started = time.process_time()
    files, origins = known(dids, tiers), four_origins(n_files)
    new = np.setdiff1d(np.arange(n_files), scores.item)
    files.dataset[new[::2]] = -1
    print(f"rules, control group: {time.process_time() - started:.1f} s, once for all caches")
    capacities = {f"xc{k:02}": int(tb * 10**12) for k, tb in enumerate(CAPACITIES_TB[: args.caches])}
    slowest = 0.0
    for kind in ("alone", "federation"):
        started, n, planning = time.process_time(), 0, 0.0
        for cache, here in shared(dids, capacities, kind):
            mine = dataclasses.replace(files, is_here=here)
            state = full(scores, here, capacities[cache], rng)
            began = time.process_time()
            judged = ValuePlanner(lambda _: scores, LIMITS, mine, 2 * 86400).judge(state)
            planning += time.process_time() - began
            settings = CacheSettings(
                name=cache, kind="xcache", url="root://127.0.0.1:1", capacity=capacities[cache]
            )
            paths = Paths(settings, {})
            key, made_by = MomentKey("2026-03-01", "2026-03-01T00:00:00Z", cache), ModelVersion("bench", None)
            within_s = judged.horizon_s
            more = items(
                judged.plan,
                dids,
                origins,
                paths,
                key=key,
                as_of_s=AS_OF_S,
                horizon_s=within_s,
                model=made_by,
                queued=Queued(NO_FILES),
            )
            n += len(more)
        seconds = time.process_time() - started
        slowest = max(slowest, seconds)
        print(f"{kind}: {planning:.1f} s planning, {seconds:.1f} s with {n:,} rows, {len(capacities)} caches")
    return int(slowest > PROMISED_S)


def predicted(n: int, n_files: int, rng: np.random.Generator) -> Scores:
    """Predictions of `n` files as a model's: most unlikely, with chances that rise with the horizon."""
    size = rng.lognormal(21, 0.5, n).astype(np.int64)
    odds = rng.beta(0.5, 2, n)
    chance = np.array([1 - (1 - odds) ** (h / HORIZONS[4]) for h in HORIZONS])
    last_read_s = np.where(rng.random(n) < 0.8, AS_OF_S - rng.integers(0, 30 * 86400, n), NEVER_S)
    return Scores(AS_OF_S, rng.permutation(n_files)[:n], size, HORIZONS, chance, last_read_s)


def known(dids: pa.Array, tiers: pa.Array) -> Files:
    """What production knows of the files: rules, datasets of 100 files, six tiers, four origins."""
    n = len(dids)
    rules = (
        Rule("never", tiers=("RAW",)),
        Rule("exclude", users=("alice",)),
        Rule("pin", names=("*/000001?.root",)),
    )
    index = np.arange(n)
    codes = tiers.dictionary_encode().indices.to_numpy().astype(np.int64)
    return plain_files(
        n,
        is_control=is_control(dids.to_pylist(), 0.05),
        treatment=treatments(rules, dids, tiers)[0],
        dataset=index // 100,
        tier=codes,
        origin=index % 4,
    )


def four_origins(n: int) -> pa.Table:
    """The origin of each file, and why it is that one, as `jobs.loop.plan.file_facts.nearest` tells it."""
    index = pa.array(np.arange(n) % 4)
    names = [f"root://origin{k}.example:1094" for k in range(4)]
    why = [f"{name}: the nearest of 2" for name in names]
    return pa.table({"origin": pa.array(names).take(index), "why": pa.array(why).take(index)})


def shared(dids: pa.Array, capacities: dict[str, int], kind: str) -> Iterator[tuple[str, BoolArray]]:
    """The caches, and which files belong to each."""
    if kind == "alone":
        yield from ((cache, np.ones(len(dids), np.bool_)) for cache in capacities)
        return
    owner = layout_of(capacities).owners_of(dids.to_pylist())
    yield from ((cache, owner == cache) for cache in capacities)


def full(scores: Scores, here: BoolArray, capacity: int, rng: np.random.Generator) -> CacheState:
    """A cache filled to 93 % with files that belong there, as they come; what is new came in this hour."""
    size_bytes = np.full(here.size, int(scores.size_bytes.mean()))
    size_bytes[scores.item] = scores.size_bytes
    last_s: IntArray = AS_OF_S - rng.integers(0, 3600, here.size)
    last_s[scores.item] = AS_OF_S - rng.integers(0, 10**6, scores.item.size)
    mine = rng.permutation(np.flatnonzero(here))
    held = mine[: int(np.searchsorted(np.cumsum(size_bytes[mine]), 0.93 * capacity))]
    inflow = capacity // 30
    return CacheState(
        AS_OF_S, capacity, 0.9, 0.95, held, size_bytes[held], last_s[held],
        rng.random(held.size) < 0.5, rng.random(held.size) < 0.01, inflow, 2 * inflow, None,
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
