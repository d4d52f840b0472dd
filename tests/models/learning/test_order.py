"""Orders learned from what lies before them, and what they save; from scores to probabilities."""

import functools
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from cases import IS_THOROUGH

from features.common.progress import unwatched
from features.common.times import DAY_S
from features.results import LRU
from jobs.loop.traces import TraceFile
from jobs.studies.simulate import workload
from models.evaluation.metrics import quality
from models.learning.calibration import (
    IDENTITY,
    by_hour,
    calibrate,
    hour_of_week,
    reads_if_any,
    shift,
    weekly,
)
from models.learning.order import Learning, learn_horizons
from replay.access_context import CONTEXT, AccessContext, context_of
from replay.comparison import Candidates, compare
from replay.steward.policies import AUTO, steward_policy
from replay.trace import Trace

pytestmark = pytest.mark.long


class Region(NamedTuple):
    """The accesses of a generated region."""

    trace: Trace
    story: AccessContext

    def day_at(self, share: float) -> int:
        """When the day begins at which that share of its time is over."""
        first_s, last_s = (int(self.trace.time_s[at]) for at in (0, -1))
        return int(first_s + share * (last_s - first_s)) // DAY_S * DAY_S


@functools.cache
def region(name: str, accesses: int, seed: int = 1) -> Region:
    with tempfile.TemporaryDirectory() as folder:
        written = workload.write(workload.load(name, seed=seed, accesses=accesses), out=Path(folder))
        loaded = TraceFile(Path(written.traces), {}, "s", "auto", False, {}, None).load(keep=CONTEXT)
        return Region(loaded.trace, context_of(loaded))


def capacity(board: Region, share: float) -> int:
    return int(share * board.trace.footprint_bytes)


def test_learning_an_order_does_not_write_past_its_memory(tmp_path: Path) -> None:
    """As LightGBM does with some rows of bundled columns: in a process of its own, which would crash."""
    code = (
        "from test_order import *; board = region('prague', 12_000);"
        "Learning(board.trace, board.story, [capacity(board, 0.1)]).orders(board.day_at(0.5), unwatched)"
    )
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=os.environ | {"PYTHONPATH": path}, check=False
    )
    assert done.returncode == 0


def test_each_order_is_learned_from_what_lies_before_it() -> None:
    board = region("prague", 10_000)
    room, from_s = capacity(board, 0.1), board.day_at(0.3)
    every_s = (int(board.trace.time_s[-1]) - from_s) * 2 // 3
    first, second = Learning(board.trace, board.story, [room]).orders(from_s, unwatched, every_s=every_s)
    assert (first.from_s, second.from_s) == (from_s, from_s + every_s)
    past = board.trace.until(int(second.from_s))
    (alone,) = Learning(past, board.story, [room]).orders(int(second.from_s), unwatched)
    for mine, theirs in zip(second.models.forest, alone.models.forest, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert not np.array_equal(first.models.forest.leaf, second.models.forest.leaf)


def test_what_became_known_later_is_not_learned_from() -> None:
    """As where a source publishes the reads of a day on the next."""
    board = region("prague", 10_000)
    from_s = board.day_at(0.5)
    room, known_s = [capacity(board, 0.1)], board.trace.time_s + DAY_S
    late = Learning(board.trace, board.story, room, known_s).learn(from_s, unwatched)
    past = board.trace.until(from_s - DAY_S)
    alone = Learning(past, board.story, room).learn(from_s, unwatched)
    assert late is not None
    assert late == alone
    known_s += from_s
    assert Learning(board.trace, board.story, room, known_s).learn(from_s, unwatched) is None


def test_too_short_a_past_teaches_nothing() -> None:
    """Of one access there is no row to learn from."""
    board = region("prague", 3000)
    until_s = int(board.trace.time_s[0]) + 1
    horizons = learn_horizons(board.trace, board.story, [3600.0], to_s=until_s)
    assert horizons is None


N_ACCESSES, SEEDS = (120_000, (1, 2, 3)) if IS_THOROUGH else (20_000, (1,))


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "share"), [("mwt2", 0.05), ("prague", 0.1), ("pic", 0.1)][: 3 if IS_THOROUGH else 1]
)
def test_auto_misses_no_more_than_lru(name: str, share: float) -> None:
    """By the mean over generated worlds, as one run moves by some hundredths; the models alone may."""

    def against_lru(seed: int) -> float:
        board = region(name, N_ACCESSES, seed)
        room, from_s = capacity(board, share), board.day_at(0.5)
        orders = Learning(board.trace, board.story, [room]).orders(from_s, unwatched)
        lineup = {LRU: None, AUTO: steward_policy(AUTO, board.story, orders)}
        (comparison,) = compare(board.trace, [Candidates(room, lineup)], count_from_s=from_s)
        lru, auto = (int(comparison.rows[name].result.daily.wan_bytes.sum()) for name in (LRU, AUTO))
        return auto / lru

    assert np.mean([against_lru(seed) for seed in SEEDS]) <= 1.01


def test_calibration_repairs_overconfidence() -> None:
    rng = np.random.default_rng(5)
    truth = rng.random(8000)
    y = (rng.random(8000) < truth).astype(float)
    odds = truth / (1 - truth)
    bold = odds**3 / (1 + odds**3)
    as_of = np.repeat(np.arange(8), 1000)
    half = as_of < 4
    knots = calibrate(bold[half], y[half], as_of[half])
    before, after = quality(y[~half], bold[~half]), quality(y[~half], knots(bold[~half]))
    assert knots.kind in {"platt", "isotonic"}
    assert after.calibration_error < before.calibration_error / 3
    assert after.log_loss < before.log_loss


def test_calibration_of_few_rows_changes_nothing() -> None:
    assert calibrate(np.array([0.1, 0.9]), np.array([0.0, 1.0]), np.array([1, 2])) is IDENTITY


def test_reads_if_any_rise_and_are_at_least_one() -> None:
    p = np.linspace(0, 1, 1000)
    reads = np.where(p > 0.2, np.round(1 + 9 * p), 0.0)
    knots = reads_if_any(p, reads)
    assert (np.diff(knots.y) >= 0).all()
    assert knots(np.array([0.95]))[0] == pytest.approx(9.5, rel=0.1)
    assert reads_if_any(p, np.zeros(1000))(np.array([0.5]))[0] == 1.0


def test_a_shift_moves_the_mean_and_nothing_else() -> None:
    rng = np.random.default_rng(4)
    true = rng.uniform(0.02, 0.6, 40_000)
    labels = (rng.random(true.size) < true).astype(np.float64)
    odds = true / (1 - true) * 3
    fitted = shift(odds / (1 + odds), labels)
    np.testing.assert_allclose(fitted(odds / (1 + odds)), true, atol=0.015)
    assert fitted.kind == "shift"
    assert shift(true, np.zeros(true.size)) is IDENTITY


def weeks(rng: np.random.Generator, *, weekend: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Four weeks of predictions that know no weekend, what was read, and when; its odds are x `weekend`."""
    as_of = np.repeat(np.arange(28 * 4) * 6 * 3600, 400)
    p = rng.random(as_of.size)
    odds = p / (1 - p) * np.where(np.isin(as_of // 86400 % 7, (2, 3)), weekend, 1.0)
    return p, (rng.random(p.size) < odds / (1 + odds)).astype(float), as_of


def test_a_rhythm_of_the_week_is_learned_and_predicted_for_the_next() -> None:
    rng = np.random.default_rng(3)
    p, y, as_of = weeks(rng, weekend=0.4)
    week = weekly(p, y, as_of)
    saturday, tuesday = 2 * 24, 5 * 24
    assert week[saturday] == pytest.approx(np.log(0.4) * 4 / 5, abs=0.15)
    assert abs(week[tuesday]) < 0.15
    later, truth, times = weeks(rng, weekend=0.4)
    on_weekend = np.isin(times // 86400 % 7, (2, 3))
    corrected = by_hour(later, week, hour_of_week(times))
    assert later[on_weekend].mean() > 1.3 * truth[on_weekend].mean()
    assert corrected[on_weekend].mean() == pytest.approx(truth[on_weekend].mean(), rel=0.08)


def test_no_rhythm_is_learned_from_noise_or_few_rows() -> None:
    p, y, as_of = weeks(np.random.default_rng(4), weekend=1.0)
    assert weekly(p, y, as_of) == ()
    assert weekly(p[:60], y[:60], as_of[:60]) == ()
