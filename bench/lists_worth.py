"""What lists are worth to a cache: prefetch, pin, evict, all three; with a queue, with a steward, by cycle.

bench/lists_worth.py [--accesses N] [--seeds 1,2,3] [--regions …] [--public …]

A cache of 10 % of the bytes read, warmed in the days before those that count. Lists are made by the planner
of production each hour, from scores of each quarter of an hour, of what was known then: by the models of a
steward's order, learned anew each week, which alone decide (`model_weight` 1). They know the files that were
read and those that the queue names (`queue_of_tasks.py`), and no catalogue. Public traces name no tasks, so
they have no queue; and no origins, so nobody waits. ± is the standard error over traces. `waiting` is what
jobs wait beyond a cache that has every file. S3-FIFO decides at each access, which no server offers; beside
a server it has the delays of a steward and the room that it keeps. Files are open as long as the trace says;
where it does not, beside a steward for ten minutes.

The last table has, of the files that lists name, the mean chance of a read that the plan states for each,
and the share of them that were read within the time stated; ± is the standard error over datasets.

Needs the environment that `make verify` makes: .venv/bin/python bench/lists_worth.py
"""

from __future__ import annotations

import argparse
import functools
import multiprocessing
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import NamedTuple

import numpy as np
from boards import PUBLIC, REGIONS
from listed import (
    ALL,
    SETTINGS,
    Noting,
    Only,
    Predictions,
    Reliability,
    Site,
    Waiting,
    public_site,
    region_site,
)
from queue_of_tasks import QueueOf, queue_of

from features.common.arrays import FloatArray
from features.common.errors import StaleInputError
from features.common.progress import unwatched
from features.common.times import DAY_S, HOUR_S
from features.results import LRU, S3FIFO, STEWARD
from jobs.loop.plan.planner import limits
from models.evaluation.promotion import daily_hours
from models.learning.order import Learning, horizon_models
from prefetch.actions import Action
from prefetch.plan.planner import ValuePlanner
from prefetch.plan.scores import Scores, with_known
from replay.access_context import NO_QUEUE
from replay.comparison import BOUND, Candidates, Row, compare
from replay.config import CacheConfig
from replay.planner import Planner
from replay.policies import PartPolicy, Policy
from replay.policies.learned import Order
from replay.steward.delayed_cache import XCACHE, Plans
from replay.steward.policies import steward_policy

BESIDE = f"{S3FIFO} beside a server"
SHARE, WARM_S, SCORED_S = 0.1, 7 * DAY_S, HOUR_S // 4
LEADS = {"none": None, "6 h": QueueOf(6 * HOUR_S), "24 h": QueueOf(24 * HOUR_S)}
LISTS: Mapping[str, tuple[Action, ...]] = {
    "prefetch": (Action.PREFETCH,),
    "pin": (Action.PIN,),
    "evict": (Action.EVICT,),
    "all lists": ALL,
}
KEEPING = (Action.PIN, Action.EVICT)
CYCLES = {"24 h": DAY_S, "6 h": 6 * HOUR_S, "1 h": HOUR_S, "15 min": HOUR_S // 4, "5 min": HOUR_S // 12}


class Figures(NamedTuple):
    """What one way to act gave; nan: not known."""

    gap: float
    wan: float
    byte_hits: float
    waiting: float
    core_hours: float
    precision: float
    waste: float
    pushed: float
    cpu_ms: float


def judged(site: Site, seed: int) -> tuple[dict[str, Figures], Reliability]:
    """Every way to act on one trace, by `lists, queue` or name; and the reliability of what lists state."""
    board, trace, size = site.board, site.board.trace, site.board.capacity(SHARE)
    end_s = int(trace.time_s[-1])
    warm_s = min(WARM_S, (board.from_s - int(trace.time_s[0])) // 2 // DAY_S * DAY_S)
    learning = Learning(trace, board.story, [size])
    moments = [board.from_s - warm_s, *range(board.from_s, end_s, 7 * DAY_S)]
    trees = {at_s: learning.learn(at_s, unwatched) for at_s in moments}
    learned = {at_s: of for at_s, of in trees.items() if of is not None}
    orders = [Order(at_s, horizon_models(of)) for at_s, of in learned.items()]
    first_s, predictions = min(learned), Predictions(board, learned)
    scores = {at: predictions.at(at) for at in range(-(-first_s // SCORED_S) * SCORED_S, end_s + 1, SCORED_S)}
    config = CacheConfig(size, *SETTINGS.replay.watermarks, SETTINGS.replay.purge_interval)
    is_task = (board.story.reader > 0) & (board.story.reader % 2 == 0)
    task = np.where(is_task, board.story.reader, -1)
    leads = LEADS if is_task.any() else {"none": None}
    reliability = Reliability(board)
    planners: dict[int, dict[str, Planner | None]] = {}
    stewards: dict[str, Policy | PartPolicy] = {}
    for lead, how in leads.items():
        queued = NO_QUEUE if how is None else queue_of(trace, task, how, np.random.default_rng(seed))
        waiting = Waiting(queued, trace.size_bytes)

        @functools.cache
        def scores_at(at_s: int, waiting: Waiting = waiting, how: QueueOf | None = how) -> Scores:
            of = scores.get(at_s - at_s % SCORED_S)
            if of is None:
                raise StaleInputError(f"no predictions at {at_s}")
            return of if how is None else with_known(of, waiting.at(at_s))

        def planner(cycle_s: int, at: Callable[[int], Scores] = scores_at) -> ValuePlanner:
            bounds = limits(SETTINGS.plan, cycle_s)
            return ValuePlanner(at, bounds, site.files, SETTINGS.plan.horizon)

        for name, acts in LISTS.items():
            noted = reliability if (name, how) == ("all lists", None) else None
            planners.setdefault(HOUR_S, {})[f"{name}, {lead}"] = Noting(
                planner(HOUR_S), acts, reliability=noted
            )
        if how is None:
            for name, cycle_s in CYCLES.items():
                planners.setdefault(cycle_s, {})[name] = Only(planner(cycle_s), KEEPING)
        story = board.story._replace(queued=queued)
        beside = Only(planner(HOUR_S).beside_a_steward, ALL)
        plans = Plans(beside, size, config.low_watermark, config.high_watermark, HOUR_S, first_s)
        follow = functools.partial(steward_policy, STEWARD, story, orders, delays=XCACHE)
        stewards |= {f"steward, {lead}": follow(), f"both, {lead}": follow(plans=plans)}
    stewards[BESIDE] = steward_policy(f"{STEWARD}-s3fifo", board.story, delays=XCACHE)
    served: dict[str, Row] = {}
    for cycle_s, of in planners.items():
        policies = {**stewards, S3FIFO: None, BOUND: None} if cycle_s == HOUR_S else {}
        lists = {LRU: None, **of} if cycle_s == HOUR_S else of
        at = Candidates(size, policies, config, lists, cycle_s, first_s)
        served |= compare(trace, [at], count_from_s=board.from_s, hours=_hours(site))[0].rows
    ways = {name: way for of in planners.values() for name, way in of.items() if isinstance(way, Only)}
    return {name: _figures(site, served, name, ways.get(name)) for name in served}, reliability


def _judged(name: str, make: Callable[[], Site], seed: int) -> tuple[str, dict[str, Figures], Reliability]:
    return name, *judged(make(), seed)


def _hours(site: Site) -> Callable[..., FloatArray] | None:
    per_byte = site.hours
    return None if per_byte is None else lambda of, hit: daily_hours(site.board.trace, of, hit, per_byte)


def _figures(site: Site, served: Mapping[str, Row], name: str, way: Only | None) -> Figures:
    result, lru, bound = (served[of].result for of in (name, LRU, BOUND))
    by_day = [served[of].core_hours for of in (name, LRU)]
    hours = [np.nan if days is None else float(days.sum()) for days in by_day]
    all_hit = np.nan
    if site.hours is not None:
        item = site.board.trace.item[site.board.trace.n_accesses - lru.requests :]
        all_hit = float((site.hours.hit[item] * site.board.trace.size_bytes[item]).sum())
    most = lru.wan_bytes - bound.wan_bytes
    return Figures(
        (lru.wan_bytes - result.wan_bytes) / most if most else 0.0,
        result.wan_bytes / lru.wan_bytes,
        result.byte_hit_ratio,
        (hours[0] - all_hit) / (hours[1] - all_hit),
        hours[0] / hours[1],
        np.nan if result.prefetch_precision is None else result.prefetch_precision,
        result.wasted_bytes / lru.wan_bytes,
        np.nan if way is None else way.n_pushed / way.n_lists,
        np.nan if way is None else 1000 * way.cpu_s / way.n_lists,
    )


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--accesses", type=int, default=20_000, help="of a region")
    parser.add_argument("--seeds", default="1,2,3", help="of the regions")
    parser.add_argument("--regions", nargs="*", default=("site", *REGIONS))
    parser.add_argument("--public", nargs="*", default=tuple(PUBLIC))
    given = parser.parse_args()
    seeds = [int(seed) for seed in given.seeds.split(",")]
    made: dict[str, list[Callable[[], Site]]] = {
        name: [functools.partial(public_site, name)] for name in given.public
    }
    made |= {
        name: [functools.partial(region_site, name, given.accesses, seed) for seed in seeds]
        for name in given.regions
    }
    runs_by_place: dict[str, list[dict[str, Figures]]] = {}
    stated: dict[str, list[Reliability]] = {}
    of_places = [
        (name, make, seed) for name, sites in made.items() for make, seed in zip(sites, seeds, strict=False)
    ]
    with ProcessPoolExecutor(os.cpu_count(), mp_context=multiprocessing.get_context("spawn")) as processes:
        for name, figures, reliability in processes.map(_judged, *zip(*of_places, strict=True)):
            runs_by_place.setdefault(name, []).append(figures)
            stated.setdefault(name, []).append(reliability)
            gaps = {way: f"{of.gap:.3f}" for way, of in figures.items()}
            print(
                f"{name}, {len(stated[name])} of {len(made[name])}: done, {gaps}", file=sys.stderr, flush=True
            )
    regions = [run for name in given.regions or given.public for run in runs_by_place[name]]
    n = f"{len(regions)} regions of {given.accesses} accesses (seeds {given.seeds})"
    print(f"{n}: {', '.join(given.regions)}; public traces: {', '.join(given.public)}\n")
    ways = [f"{what}, {lead}" for lead in LEADS for what in (*LISTS, "steward", "both")]
    ways = [way for way in ways if all(way in run for run in regions)]
    table([LRU, S3FIFO, *ways, BOUND], regions)
    by_place(runs_by_place)
    reliabilities(stated)


COLUMNS_SHOWN = (
    "gap closed",
    "WAN / LRU",
    "byte hits",
    "waiting / LRU",
    "core hours / LRU",
    "precision",
    "waste / LRU's WAN",
    "items per list",
)


def table(ways: Sequence[str], of: Sequence[Mapping[str, Figures]]) -> None:
    """A row per way to act: its figures over the regions."""
    print(f"| lists, lead of the queue | {' | '.join(COLUMNS_SHOWN)} |\n|{'---|' * (1 + len(COLUMNS_SHOWN))}")
    for way in ways:
        values = np.array([run[way][: len(COLUMNS_SHOWN)] for run in of])
        print(f"| {way} | {' | '.join(_mean(column) for column in values.T)} |")


def by_place(runs_by_place: Mapping[str, Sequence[Mapping[str, Figures]]]) -> None:
    """The gap that pins and evictions without a queue close in each place, by the time between lists."""
    lists = {f"lists per {cycle}": cycle for cycle in CYCLES}
    ways = {**lists, "S3-FIFO": S3FIFO, "S3-FIFO beside a server": BESIDE}
    ways |= {"steward": "steward, none", "both": "both, none"}
    print(f"\n| gap closed | runs | {' | '.join(ways)} |\n|{'---|' * (2 + len(ways))}")
    for place, runs in runs_by_place.items():
        cells = " | ".join(_mean(np.array([run[way].gap for run in runs])) for way in ways.values())
        print(f"| {place} | {len(runs)} | {cells} |")
    print(f"\n| items per list; CPU ms to make it | {' | '.join(lists)} |\n|{'---|' * (1 + len(lists))}")
    for place, runs in runs_by_place.items():
        means = (np.mean([[run[way].pushed, run[way].cpu_ms] for run in runs], axis=0) for way in CYCLES)
        cells = " | ".join(f"{pushed:.1f}; {cpu_ms:.1f}" for pushed, cpu_ms in means)
        print(f"| {place} | {cells} |")


def reliabilities(stated: Mapping[str, Sequence[Reliability]]) -> None:
    """Chances that lists state, and shares read."""
    print(
        "\n| place | action | items | chance stated | share read | read / stated |\n|---|---|---|---|---|---|"
    )
    totals = {
        place: {act: np.concatenate([run.sums[act] for run in of], axis=1) for act in ALL}
        for place, of in stated.items()
    }
    totals["all"] = {act: np.concatenate([of[act] for of in totals.values()], axis=1) for act in ALL}
    for place, of in totals.items():
        for act, sums in of.items():
            n, expected, read = sums.sum(axis=1)
            if n:
                ratio = read / expected
                error = np.sqrt(np.square(sums[2] - ratio * sums[1]).sum()) / expected
                shares = f"{expected / n:.3f} | {read / n:.3f} | {ratio:.2f} ± {error:.2f}"
                print(f"| {place} | {act} | {n:.0f} | {shares} |")


def _mean(values: FloatArray) -> str:
    """The mean and its standard error; – if it is not known."""
    values = values[~np.isnan(values)]
    if not values.size:
        return "–"
    error = f" ± {values.std(ddof=1) / values.size**0.5:.3f}" if values.size > 1 else ""
    return f"{values.mean():.3f}{error}"


if __name__ == "__main__":
    main()
