"""The planner on small caches whose best plan is known, and the reasons that it gives."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from plain_files import plain_files

from prefetch.actions import Action
from prefetch.plan.explain import explain, reasons
from prefetch.plan.items import Cause, PlanLimits
from prefetch.plan.planner import ValuePlanner
from prefetch.plan.scores import NEVER_S, Scores
from prefetch.plan.value import Objective
from replay.planner import CacheState

DAY_S = 86400
UNEVEN = np.array([45, 15, 30])
LIMITS = PlanLimits(cycle_s=3600, prefetch_share=0.1, min_prefetch_probability=0.5)


def cache(**changed: Any) -> CacheState:
    state = CacheState(
        as_of_s=0,
        capacity_bytes=100,
        low_watermark=0.74,
        high_watermark=0.95,
        item=np.array([0, 1, 2]),
        bytes_on_disk=np.array([30, 30, 30]),
        last_access_s=np.array([-10_000] * 3),
        pinned=np.array([False, True, False]),
        is_open=np.zeros(3, bool),
        inflow_bytes=20,
        peak_inflow_bytes=20,
        lru_age_s=None,
    )
    return dataclasses.replace(state, **changed)


def one_horizon(item: list[int], size: list[int], probability: list[float], was_read: list[bool]) -> Scores:
    ids, sizes = np.array(item, np.int64), np.array(size, np.int64)
    return Scores(0, ids, sizes, (DAY_S,), np.array([probability]), np.where(was_read, -DAY_S, NEVER_S))


FEW = one_horizon([2, 0, 3], [30, 30, 1], [0.9, 0.004, 0.8], [True, True, False])


def test_the_likeliest_are_pinned_and_reasons_say_so() -> None:
    judged = ValuePlanner(lambda _: FEW, LIMITS, plain_files(4), DAY_S).judge(cache(bytes_on_disk=UNEVEN))
    plan = judged.plan
    assert [plan.of(a).tolist() for a in Action] == [[1], [1], [2], [3]]
    assert reasons(plan, horizon_s=judged.horizon_s).to_pylist() == [
        "hardly any chance of a read within 1d, as nobody read it for longer than candidates are kept; "
        "no. 1 least worth its room: makes room for arrivals",
        "hardly any chance of a read within 1d, as nobody read it for longer than candidates are kept; "
        "no longer among the best on disk",
        "90 % chance of a read within 1d; no. 1 most worth its room: among the best on disk",
        "80 % chance of a read within 1d; unread file of a dataset in use",
    ]
    assert plan.bound_by[Action.PIN] == "a fifth of the capacity stays free of pins"


def test_every_file_can_be_explained() -> None:
    files = plain_files(7, treatment=np.array([0, 0, 0, 0, 0, 1, 3]))
    judged = ValuePlanner(lambda _: FEW, LIMITS, files, DAY_S).judge(cache(bytes_on_disk=UNEVEN))
    told = [explain(judged, item) for item in range(7)]
    assert [one.action for one in told] == [None, "evict", "pin", "prefetch", None, None, None]
    assert [one.rank for one in told] == [2, 3, 1, 1, None, None, None]
    assert told[2].predictions == {"1d": 0.9} and told[2].value == pytest.approx(27)
    assert "within the pin limit" in told[0].because and "nothing predicts" in told[4].because
    assert "rule excludes" in told[5].because and "out of the cache" in told[6].because
    assert told[0].limits["pin"] == "54 B: a fifth of the capacity stays free of pins"


def test_a_file_that_came_after_the_predictions_is_judged_by_its_siblings() -> None:
    scores = dataclasses.replace(
        one_horizon([0, 3, 4, 5], [30] * 4, [0.9, 0.1, 0.3, 0.8], [True] * 4), as_of_s=-600
    )
    files = plain_files(6, dataset=np.array([1, 0, 2, 0, 0, 1]), tier=np.array([0, 0, 1, 0, 0, 1]))
    state = cache(last_access_s=np.array([-10_000, -60, -60]))
    disk = ValuePlanner(lambda _: scores, LIMITS, files, DAY_S).judge(state).case.disk
    assert disk.probability == pytest.approx([0.9, 0.2, 0.8])  # its own; its dataset's mean; its tier's
    assert disk.cause.tolist() == [Cause.VALUE, Cause.SIBLINGS, Cause.SIBLINGS]


def test_a_file_read_since_the_predictions_is_judged_by_its_own_state() -> None:
    scores = dataclasses.replace(one_horizon([0, 1, 2], [30] * 3, [0.4] * 3, [True] * 3), as_of_s=-600)
    state = cache(last_access_s=np.array([-10_000, -60, -600]))
    planner = ValuePlanner(lambda _: scores, LIMITS, plain_files(3), DAY_S, model_weight=lambda _: 0.5)
    disk = planner.judge(state).case.disk
    assert disk.cause.tolist() == [Cause.VALUE] * 3
    assert disk.density[1] / disk.density[0] == pytest.approx((10_000 / 60) ** 0.5)


def test_requests_prefer_small_files_and_cpu_hours_far_ones() -> None:
    scores = one_horizon([0, 1, 2], [10, 30, 30], [0.5, 0.6, 0.55], [True] * 3)
    state = cache(bytes_on_disk=np.array([10, 30, 30]), inflow_bytes=0, peak_inflow_bytes=0)
    files = plain_files(3, saved_hours_per_byte=np.array([1.0, 1.0, 5.0]))
    first = {
        objective: ValuePlanner(lambda _: scores, LIMITS, files, DAY_S, objective)
        .plan(state)
        .of(Action.PIN)[0]
        for objective in Objective
    }
    assert first == {Objective.BYTES: 1, Objective.REQUESTS: 0, Objective.CPU_HOURS: 2}
