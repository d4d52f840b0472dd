"""Step `leaderboard`: every policy × every trace × every capacity, resumable, in one table."""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from features.common import files
from features.common.errors import InputError
from features.common.progress import Advance
from features.results import LRU, STEWARD
from jobs.ground.settings.tree import MlflowSettings
from jobs.ground.text import Row
from jobs.studies.leaderboard import leaderboard_page
from jobs.studies.leaderboard.claims import compared, read_claims
from jobs.studies.leaderboard.entries import BoardTrace, Entry, opened
from jobs.studies.leaderboard.parts import Part, Parts, capacity, part_of
from models.evaluation.bootstrap import gap_columns
from models.learning.order import Learning
from replay.comparison import BOUND, Candidates, Gap, replay_candidates
from replay.policies import POLICIES
from replay.policies.learned import Order
from replay.steward.policies import AUTO, steward_policy

TABLE = "leaderboard.parquet"

STEWARDS = (STEWARD, AUTO)
"""The learned order alone; and that or a heuristic, whichever misses least, as a live steward chooses."""
POLICY_NAMES = (*POLICIES, *STEWARDS, BOUND)


@dataclasses.dataclass(frozen=True)
class LeaderboardAnswer:
    """The rows (see `_row`), the numbers of replays done now and found, and the claims of papers."""

    rows: tuple[Row, ...]
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
    rows: list[Row] = []
    claims, errors = read_claims(), {}
    with tempfile.TemporaryDirectory(prefix="cachecast-board-") as scratch, _writing_to(out):
        for done, entry in enumerate(entries):
            progress = partial(_within, on_progress, done, len(entries), entry.name)
            progress("reading")
            board = opened(entry, Path(scratch))
            replayed = _complete(board, fractions, parts, progress)
            n_found += len(fractions) * len(POLICY_NAMES) - replayed
            n_replayed += replayed
            progress("forecasts")
            errors[entry.name] = parts.errors(board)
            for fraction in fractions:
                rows += _rows(list(parts.beside(board, fraction)))
        on_progress(len(entries), len(entries), "writing")
        with files.replaced(out / TABLE) as draft:
            pq.write_table(pa.table({name: [row[name] for row in rows] for name in rows[0]}), draft)
        beside = compared(claims, rows, errors)
        page = leaderboard_page.write(rows, out, claims=beside)
    return LeaderboardAnswer(tuple(rows), n_replayed, n_found, tuple(beside), str(out / TABLE), str(page))


def record_run(mlflow: MlflowSettings, answer: LeaderboardAnswer) -> str:
    """Write a leaderboard as a run of MLflow with its page and table; return its id. Raises ServiceError."""
    from jobs.pages import runs  # noqa: PLC0415  it loads MLflow, which few need

    def copy(folder: Path) -> None:
        for file in (answer.page, answer.table):
            shutil.copy(file, folder)

    traces = dict.fromkeys(str(row["trace"]) for row in answer.rows)
    run = runs.comparison(
        "Leaderboard", "leaderboard", answer.rows, params={"traces": ", ".join(traces)}, tags={}
    )
    return runs.keep(mlflow, run, made_by="leaderboard", files=copy)


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
    board: BoardTrace, fractions: Sequence[float], parts: Parts, progress: Callable[[str], None]
) -> int:
    """Replay what is missing, and keep each part as it is done; how many there were to replay."""
    learned_for = {name: sorted(fractions) if name in STEWARDS else [] for name in POLICY_NAMES}
    missing = {
        fraction: [name for name, of in learned_for.items() if parts.find(board, fraction, name, of) is None]
        for fraction in fractions
    }
    rooms = {fraction: capacity(board, fraction) for fraction in fractions}
    is_learning = any(not set(STEWARDS).isdisjoint(names) for names in missing.values())
    learned = _learned(board, sorted(fractions) if is_learning else [], progress)
    lineups = [
        Candidates(
            rooms[one],
            {
                name: steward_policy(name, board.story, learned) if name in STEWARDS else None
                for name in names
            },
        )
        for one, names in missing.items()
    ]
    for row in replay_candidates(board.trace, lineups, count_from_s=board.from_s):
        for fraction, names in missing.items():
            if row.policy in names and row.capacity_bytes == rooms[fraction]:
                progress(f"{row.policy} at {fraction:.0%}")
                parts.keep(part_of(board, fraction, row, learned_for[row.policy]))
    return sum(len(names) for names in missing.values())


def _learned(board: BoardTrace, fractions: Sequence[float], progress: Callable[[str], None]) -> list[Order]:
    """The orders that are learned from what lies before the counted days, and each week.

    They depend on all the capacities, for which they are learned together.
    """
    if not fractions:
        return []
    rooms = [capacity(board, fraction) for fraction in fractions]
    return Learning(board.trace, board.story, rooms).orders(board.from_s, lambda _, __, what: progress(what))


def _rows(parts: Sequence[Part]) -> list[Row]:
    """The parts of one trace at one capacity as rows, the best first."""
    by_policy: Mapping[str, Part] = {part.policy: part for part in parts}
    lru, bound = (np.array(by_policy[name].wan_bytes) for name in (LRU, BOUND))
    rows = [_row(part, Gap.of(np.array(part.wan_bytes), lru=lru, bound=bound)) for part in parts]
    return sorted(rows, key=lambda row: row["wan_bytes"])


def _row(part: Part, gap: Gap) -> Row:
    """One policy at one capacity on one trace, over the counted days; `cpu_us_per_access`: of the replay."""
    total = sum(part.wan_bytes)
    return {
        "trace": part.trace,
        "capacity_fraction": part.capacity_fraction,
        "policy": part.policy,
        **gap_columns(gap),
        "byte_hit_ratio": 1 - total / part.bytes_requested if part.bytes_requested else 0.0,
        "hit_ratio": None if part.hits is None or not part.requests else part.hits / part.requests,
        "wan_bytes": total,
        "capacity_bytes": part.capacity_bytes,
        "accesses": part.accesses,
        "requests": part.requests,
        "n_days": len(part.wan_bytes),
        "cpu_us_per_access": 1e6 * part.cpu_s / max(1, part.accesses),
    }
