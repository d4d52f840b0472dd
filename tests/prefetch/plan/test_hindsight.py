"""Chances that are corrected by what came of earlier predictions."""

import dataclasses
import math
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.common.errors import InputError, ServiceError, StaleInputError
from features.common.times import DAY_S, HOUR_S
from prefetch.plan.hindsight import LOOKS, _came_of, proved
from prefetch.plan.scores import NEVER_S, KnownWork, Scores, with_known

H, N = 6 * HOUR_S, 6000
NOW_S = 100 * DAY_S


def past(read_share: float, stated: Any = 0.8, *, seed: int = 0) -> dict[int, Scores]:
    """Predictions each `H`: of `N` files, `read_share` are read in each, the last one at its end."""
    rng, last = np.random.default_rng(seed), np.full(N, NEVER_S)
    chance = np.broadcast_to(np.asarray(stated, np.float64), (1, N))
    made = {}
    for k in range(LOOKS, -1, -1):
        at_s = NOW_S - k * H
        made[at_s] = Scores(at_s, np.arange(N), np.full(N, 10), (H,), chance, last.copy())
        last[rng.random(N) < read_share] = at_s + 1
        last[-1] = at_s + H - 1
    return made


def within(made: dict[int, Scores], scores: Scores | None = None) -> Any:
    """The corrected chances of the newest predictions, or of others made then."""
    newest = made[NOW_S] if scores is None else scores
    return proved(partial(within_reach, made), newest, 0, N).of()


def within_reach(made: dict[int, Scores], at_s: int) -> Scores:
    if at_s not in made:
        raise StaleInputError("no predictions")
    return made[at_s]


def corrected(made: dict[int, Scores], stated: float = 0.8) -> float:
    scores = dataclasses.replace(made[NOW_S], probability=np.full((1, N), stated))
    return float(within(made, scores)[0])


@pytest.mark.parametrize("read_share", [0.0, 0.05, 0.4, 0.79, 1.0])
def test_a_stated_chance_becomes_the_share_that_was_read_but_is_not_raised(read_share: float) -> None:
    assert corrected(past(read_share)) == pytest.approx(min(0.8, read_share), abs=0.01)


@pytest.mark.parametrize("stated", [1e-9, 1e-4, 0.02, 0.0999999, 0.1000001, 0.7])
@pytest.mark.parametrize("known_share", [0.0, 0.01, 0.5, 0.999, 1.0, 1.7])
def test_the_reads_expected_in_a_part_of_the_time_are_right_to_a_billionth(
    stated: float, known_share: float
) -> None:
    item, known_s = np.arange(N), int(known_share * H)
    earlier = Scores(0, item, item, (H,), np.full((1, N), stated), np.full(N, NEVER_S))
    later = dataclasses.replace(earlier, as_of_s=2 * H, last_read_s=np.full(N, known_s))
    sums = _came_of(earlier, later, H, N)
    assert sums is not None
    expected = -math.expm1(known_s / H * math.log1p(-stated))
    assert sums.sum(axis=1) == pytest.approx([N * stated, N * expected, N, N], rel=1e-9)


@pytest.mark.parametrize("late_s", [H // 3, H])
def test_reads_until_the_next_predictions_count_as_far_as_they_were_to_be_expected(late_s: int) -> None:
    """Predictions were made a while before they were needed, and their chances were right."""
    made = past(1 - 0.5 ** ((H + late_s) / H), 0.5)
    earlier = {
        at_s: dataclasses.replace(of, as_of_s=NOW_S - (NOW_S - of.as_of_s) // H * (H + late_s))
        for at_s, of in made.items()
    }
    early = {of.as_of_s + late_s * (of.as_of_s < NOW_S): of for of in earlier.values()}
    assert corrected(early, 0.5) == pytest.approx(0.5, abs=0.02)


def test_reads_that_are_reported_late_or_not_at_all_are_no_promises_in_vain() -> None:
    """All records are pulled days late, a site rests, or old predictions say nothing of last reads."""
    for last_s in (NEVER_S, NOW_S - LOOKS * H - 1):
        made = {at_s: dataclasses.replace(of, last_read_s=np.full(N, last_s)) for at_s, of in past(0).items()}
        assert (within(made) == 0.8).all()


def test_half_of_the_reads_of_a_horizon_are_no_less_than_half_of_them() -> None:
    """Of the last horizon the records of the first half are known: by then half of the reads are expected."""
    made = past(1 - 0.5**0.5, 0.5)
    before, now = made[NOW_S - H], made[NOW_S]
    last = now.last_read_s.copy()
    last[-1] = before.as_of_s + H // 2
    chances = within({NOW_S - H: before, NOW_S: dataclasses.replace(now, last_read_s=last)})
    assert chances[0] == pytest.approx(0.5, abs=0.03)


def test_a_plan_goes_without_predictions_before_that_cannot_be_read(caplog: pytest.LogCaptureFixture) -> None:
    made = past(0.0)

    def scores_at(at_s: int) -> Scores:
        if at_s < NOW_S:
            raise ServiceError("part-0.parquet is damaged: restore it")
        return made[at_s]

    assert (proved(scores_at, made[NOW_S], 0, N).of() == 0.8).all()
    assert "part-0.parquet is damaged: restore it" in caplog.text


def test_only_predictions_a_horizon_before_the_next_ones_count() -> None:
    made = past(0.0)
    assert within(made)[0] < 0.01
    early = {at_s: dataclasses.replace(of, as_of_s=of.as_of_s - 2 * H) for at_s, of in made.items()}
    other = {at_s: dataclasses.replace(of, horizons_s=(H + 1,)) for at_s, of in made.items()}
    for before in (early, other, {}):
        assert (within({**before, NOW_S: made[NOW_S]}) == 0.8).all()


def test_predictions_of_no_file_tell_nothing_of_those_before() -> None:
    made, none = past(0.0), np.empty(0, np.int64)
    nothing = Scores(NOW_S, none, none, (H,), np.empty((1, 0)), none)
    assert within(made, nothing).size == 0


def test_chances_that_are_no_numbers_and_reads_to_come_spoil_nothing() -> None:
    made = past(0.3)
    for at_s, of in made.items():
        chance, last = of.probability.copy(), of.last_read_s.copy()
        chance[0, :100], last[100:200], chance[0, 200:300] = np.nan, 2**60, 0.002
        made[at_s] = dataclasses.replace(of, probability=chance, last_read_s=last)
    chances = within(made)
    assert np.isnan(chances[:100]).all() and chances[300:] == pytest.approx(0.3, abs=0.03)
    assert chances[200:300] == pytest.approx(0.002), "more of these were read than was predicted"


def test_looks_at_one_horizon_tell_the_same_as_whole_predictions() -> None:
    rng, made, horizons_s = np.random.default_rng(3), past(0.3), (H // 2, H, 2 * H)
    for at_s, of in made.items():
        chance = np.sort(rng.beta(0.3, 2, (3, N)) * rng.integers(0, 2, N), axis=0)
        made[at_s] = dataclasses.replace(of, horizons_s=horizons_s, probability=chance)

    def look(at_s: int, within_s: int) -> Scores:
        of = made[at_s]
        chance = of.probability[[of.horizons_s.index(within_s)]]
        return dataclasses.replace(of, horizons_s=(within_s,), probability=chance)

    whole, looked = (proved(made.__getitem__, made[NOW_S], 1, N, before) for before in (None, look))
    assert looked.share.size > 2 and (whole.share < 1).any()
    assert (looked.stated == whole.stated).all() and (looked.share == whole.share).all()


def test_predictions_of_files_that_nobody_numbered_are_an_error() -> None:
    made = past(0.3)
    made[NOW_S - H] = dataclasses.replace(made[NOW_S - H], item=np.arange(N) + N)
    with pytest.raises(IndexError, match="none of those planned for"):
        within(made)
    with pytest.raises(InputError, match="last read"):
        dataclasses.replace(made[NOW_S], last_read_s=np.zeros(1, np.int64))


def test_what_a_queue_names_keeps_its_chance() -> None:
    made = past(0.1)
    work = KnownWork(*(np.array([n]) for n in (3, 10, 1, 0, 1.0, 0)))
    scores = with_known(made[NOW_S], work)
    chances = within(made, scores)
    assert chances[3] == scores.within(0)[3] > 0.9 and chances[4] == pytest.approx(0.1, abs=0.02)


def test_what_queues_said_before_teaches_nothing() -> None:
    made, items = past(0.0), np.arange(0, N, 2)
    work = KnownWork(items, *(np.full(N // 2, n) for n in (10, 1, 0, 1.0, 0)))
    queued = {at_s: with_known(of, work) if at_s < NOW_S else of for at_s, of in made.items()}
    assert 0 < within(queued)[0] < 0.01


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=60))
def test_no_chance_is_raised_or_falls_below_0(files: list[tuple[float, bool]]) -> None:
    chance, was_read = (np.array(column) for column in zip(*files, strict=True))
    n = chance.size
    before, now = (
        Scores(at_s, np.arange(n), np.full(n, 10), (H,), chance[None, :], np.where(was_read, last, NEVER_S))
        for at_s, last in ((NOW_S - H, NEVER_S), (NOW_S, NOW_S - 1))
    )
    chances = within({NOW_S - H: before, NOW_S: now})
    assert ((chances >= 0) & (chances <= chance)).all()


def test_a_later_plan_looks_back_only_at_what_is_new() -> None:
    made, asked = past(0.3), list[int]()

    def scores_at(at_s: int) -> Scores:
        asked.append(at_s)
        return within_reach(made, at_s)

    proved(scores_at, made[NOW_S - H], 0, N)
    asked.clear()
    assert (proved(scores_at, made[NOW_S], 0, N).of() == within(made)).all()
    assert asked == [NOW_S - H]


def test_plans_in_threads_look_one_after_the_other_at_arrays_that_change() -> None:
    """As replays beside a steward do, which share what gives earlier predictions, at times of their own."""
    made = past(0.3) | {at_s - (LOOKS + 1) * H: of for at_s, of in past(0.6, seed=1).items()}
    chances = np.linspace(0.5, 0.9, len(made))
    made = {
        at_s: dataclasses.replace(of, as_of_s=at_s, probability=np.full((1, N), chance))
        for (at_s, of), chance in zip(made.items(), chances, strict=True)
    }
    arrays = {slot: (np.zeros((1, N)), np.zeros(N, np.int64)) for slot in (0, 1)}

    def look(at_s: int, _within_s: int) -> Scores:
        of = within_reach(made, at_s)
        chance, last = arrays[at_s // H % 2]
        chance[:], last[:] = of.probability, of.last_read_s
        time.sleep(0.002)  # others come now
        return dataclasses.replace(of, probability=chance, last_read_s=last)

    def share(at_s: int, before: Any) -> list[float]:
        return proved(made.__getitem__, made[at_s], 0, N, before).share.tolist()

    times = sorted(made)
    with ThreadPoolExecutor(8) as pool:
        shares = list(pool.map(lambda at_s: share(at_s, look), times))
    assert shares == [share(at_s, lambda at_s, _: within_reach(made, at_s)) for at_s in times]
    assert len({tuple(share) for share in shares}) > 3
