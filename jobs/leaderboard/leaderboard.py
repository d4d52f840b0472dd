"""Step `leaderboard`: every policy × every trace × every capacity, resumable, in one table."""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from features import files
from features.arrays import IntArray
from features.errors import InputError
from features.results import LRU, STEWARD
from jobs.leaderboard.claims import compared, read_claims
from jobs.leaderboard.entries import Contest, Entry, opened
from jobs.leaderboard.parts import Part, Parts, capacity, part_of
from jobs.progress import Advance
from jobs.report import leaderboard_page
from jobs.text import Row, as_row
from models.evaluation.bootstrap import ratio_interval
from models.evaluation.rivals import BOUND
from models.learning.order import Learning
from replay.bounds import byte_bound
from replay.policies import POLICIES, run_policy
from replay.policies.learned import Learned
from replay.result import Result

TABLE = "leaderboard.parquet"

_Replay = Callable[[], Result]


@dataclasses.dataclass(frozen=True)
class LeaderboardRow:
    """One policy at one capacity on one trace, over the counted days.

    `byte_gap_closed`: share of the way from LRU's WAN bytes to the bound's, with one-sided 95 % bounds by a
    block bootstrap over days; None where LRU reaches the bound, its bounds also where days are too few.
    `cpu_us_per_access`: of the replay.
    """

    trace: str
    capacity_fraction: float
    policy: str
    byte_gap_closed: float | None
    byte_gap_closed_lower: float | None
    byte_gap_closed_upper: float | None
    byte_hit_ratio: float
    hit_ratio: float | None
    wan_bytes: int
    capacity_bytes: int
    accesses: int
    requests: int
    n_days: int
    cpu_us_per_access: float


@dataclasses.dataclass(frozen=True)
class LeaderboardAnswer:
    """The rows, how many replays had been done before, and what papers claim beside ours."""

    rows: tuple[LeaderboardRow, ...]
    n_replayed: int
    n_found: int
    claims: tuple[Row, ...]
    table: str
    page: str


def run(
    entries: Sequence[Entry], *, fractions: Sequence[float], out: Path, on_progress: Advance
) -> LeaderboardAnswer:
    """Replay what is not yet in folder `out`, and write its table. Raises InputError, SchemaError."""
    parts = Parts(out)
    n_found = n_replayed = 0
    rows: list[LeaderboardRow] = []
    claims, errors = read_claims(), {}
    with tempfile.TemporaryDirectory(prefix="cachecast-board-") as scratch, _writing_to(out):
        for done, entry in enumerate(entries):
            progress = partial(_within, on_progress, done, len(entries), entry.name)
            progress("reading")
            contest = opened(entry, Path(scratch))
            found, replayed = _complete(contest, fractions, parts, progress)
            n_found, n_replayed = n_found + found, n_replayed + replayed
            progress("forecasts")
            errors[entry.name] = parts.errors(contest)
            for fraction in fractions:
                rows += _rows(list(parts.beside(contest, fraction)))
        on_progress(len(entries), len(entries), "writing")
        columns = [field.name for field in dataclasses.fields(LeaderboardRow)]
        table = pa.table({name: [getattr(row, name) for row in rows] for name in columns})
        with files.replaced(out / TABLE) as draft:
            pq.write_table(table, draft)
        shown = [as_row(row) for row in rows]
        beside = compared(claims, shown, errors)
        page = leaderboard_page.write(shown, out, claims=beside)
    return LeaderboardAnswer(tuple(rows), n_replayed, n_found, tuple(beside), str(out / TABLE), str(page))


def _within(on_progress: Advance, done: int, total: int, trace: str, what: str) -> None:
    on_progress(done, total, f"{trace}: {what}")


@contextlib.contextmanager
def _writing_to(out: Path) -> Iterator[None]:
    try:
        out.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise InputError(f"cannot write to {out}: {error.strerror}; choose another --out") from None


def _complete(
    contest: Contest, fractions: Sequence[float], parts: Parts, progress: Callable[[str], None]
) -> tuple[int, int]:
    """Replay what is missing; how many parts there were already, and how many were made."""
    wanted = [(f, policy) for f in fractions for policy in (*POLICIES, STEWARD, BOUND)]
    missing = [one for one in wanted if parts.find(contest, *one) is None]
    learned = [fraction for fraction, policy in missing if policy == STEWARD]
    replays = _learned(contest, learned, progress)
    _ = contest.trace.following  # computed once, before several threads ask for it
    for fraction, policy in missing:
        replay = byte_bound if policy == BOUND else partial(run_policy, policy)
        if policy != STEWARD:
            room = capacity(contest, fraction)
            replays[fraction, policy] = partial(replay, contest.trace, room, count_from_s=contest.from_s)
    with ThreadPoolExecutor() as pool:
        tasks = {key: pool.submit(_timed, replay) for key, replay in replays.items()}
        for (fraction, policy), task in tasks.items():
            result, cpu_s = task.result()
            progress(f"{policy} at {fraction:.0%}")
            parts.keep(part_of(contest, fraction, result, cpu_s, is_bound=policy == BOUND))
    return len(wanted) - len(missing), len(missing)


def _learned(
    contest: Contest, fractions: Sequence[float], progress: Callable[[str], None]
) -> dict[tuple[float, str], _Replay]:
    """Replays of the order that is learned from what lies before the counted days."""
    if not fractions:
        return {}
    rooms = [capacity(contest, fraction) for fraction in fractions]
    learning = Learning(contest.trace, contest.story, rooms)
    orders = learning.orders(contest.from_s, lambda _done, _total, what: progress(what))
    return {
        (fraction, STEWARD): partial(
            run_policy,
            STEWARD,
            contest.trace,
            room,
            count_from_s=contest.from_s,
            policy=Learned(contest.story, order),
        )
        for fraction, room, order in zip(fractions, rooms, orders, strict=True)
    }


def _timed(replay: _Replay) -> tuple[Result, float]:
    """A replay's result, and the CPU seconds of the thread that it ran in."""
    began_s = time.thread_time()
    result = replay()
    return result, time.thread_time() - began_s


def _rows(parts: Sequence[Part]) -> list[LeaderboardRow]:
    """The parts of one trace at one capacity as rows, the best first."""
    by_policy: Mapping[str, Part] = {part.policy: part for part in parts}
    lru, bound = (np.array(by_policy[name].wan_bytes) for name in (LRU, BOUND))
    rows = [_row(part, lru, bound) for part in parts]
    return sorted(rows, key=lambda row: row.wan_bytes)


def _row(part: Part, lru: IntArray, bound: IntArray) -> LeaderboardRow:
    wan = np.array(part.wan_bytes)
    gap = ratio_interval(lru - wan, lru - bound)
    total = int(wan.sum())
    return LeaderboardRow(
        trace=part.trace,
        capacity_fraction=part.capacity_fraction,
        policy=part.policy,
        byte_gap_closed=None if gap is None else gap.mean,
        byte_gap_closed_lower=None if gap is None else gap.lower,
        byte_gap_closed_upper=None if gap is None else gap.upper,
        byte_hit_ratio=1 - total / part.bytes_requested if part.bytes_requested else 0.0,
        hit_ratio=None if part.hits is None or not part.requests else part.hits / part.requests,
        wan_bytes=total,
        capacity_bytes=part.capacity_bytes,
        accesses=part.accesses,
        requests=part.requests,
        n_days=wan.size,
        cpu_us_per_access=1e6 * part.cpu_s / max(1, part.accesses),
    )
