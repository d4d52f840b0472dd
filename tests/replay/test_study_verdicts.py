"""The study's verdicts, on sums and on a trace made for them."""

import itertools
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from replay.config import CacheConfig
from replay.study.benefit import BenefitModel, Region
from replay.study.categories import (
    CACHE,
    CACHE_SMALL,
    DO_NOT_CACHE,
    Sums,
    Thresholds,
    categories,
    judged,
    never_paying,
    refused,
)
from replay.study.study import StudyConfig, study
from replay.trace import Trace

DAY = 86400
THRESHOLDS = Thresholds(small_file_bytes=40)
REGIONS = (Region("near", ("*.es", "PIC*"), 9.0), Region("far", ("*.gov",), 150.0))


@pytest.mark.parametrize(
    ("whole", "small", "verdict", "words"),
    [
        (Sums(100, 99, 990, 1000, 1, 10, 990), Sums(), DO_NOT_CACHE, "read once: 99.0 %"),
        (Sums(100, 93, 930, 1000, 7, 70, 930), Sums(), DO_NOT_CACHE, "could save 0.075 even in a cache that"),
        (
            Sums(100, 50, 500, 1000, 2, 20, 980),
            Sums(),
            DO_NOT_CACHE,
            "96 % of that when it was gone (LRU age 2.0 days)",
        ),
        (Sums(100, 50, 500, 1000, 0, 0, 0), Sums(), DO_NOT_CACHE, "none of its files fits"),
        (Sums(100, 50, 500, 1000, 40, 400, 600), Sums(), CACHE, "80 % of that while still cached"),
        (
            Sums(200, 100, 5000, 9000, 50, 500, 8500),
            Sums(100, 50, 500, 1000, 50, 500, 500),
            CACHE_SMALL,
            "saves 1 for files up to 40 B, and 0 for larger ones",
        ),
    ],
)
def test_verdicts_and_their_reasons(whole: Any, small: Any, verdict: Any, words: str) -> None:
    judgement, reason = judged(whole, small, THRESHOLDS, lru_age_s=2 * DAY)
    assert judgement == verdict
    assert words in reason


def test_the_study_keeps_out_what_is_read_once_and_the_rest_gains() -> None:
    """Small files re-read every hour among a stream of large ones that nobody reads again."""
    hot, once = 20, 400
    pattern = list(itertools.chain.from_iterable((hot + k, k % hot) for k in range(once)))
    item = np.array(pattern)
    size = np.concatenate([np.full(hot, 30), np.full(once, 90)])
    trace = Trace(np.arange(item.size) * 600, item, size)
    categories_read = ["hot" if i < hot else "once" for i in pattern]
    details = pa.table({"category": categories_read, "origin": ["x.gov"] * len(pattern)})
    config = StudyConfig(CacheConfig(1000, 0.8, 0.9), THRESHOLDS, REGIONS, BenefitModel())
    done: list[Any] = []
    result = study(trace, details, config, on_done=done.append)
    # Among the stream nothing hot survives; judged without it, it pays.
    assert result.use.byte_hit_ratio == 0
    assert {row.name: row.verdict for row in result.categories} == {"once": DO_NOT_CACHE, "hot": CACHE}
    assert result.by_verdict is not None
    assert result.by_verdict.hits.sum() == once - hot
    labels = categories(trace, details)
    out = refused(trace, labels, result.categories, THRESHOLDS)
    assert out.tolist() == [False] * hot + [True] * once
    assert (never_paying(result.use, labels, THRESHOLDS) == out).all()
    roomy = StudyConfig(CacheConfig(4000, 0.8, 0.9), THRESHOLDS, REGIONS, BenefitModel())
    result = study(trace, details, roomy)
    assert result.use.byte_hit_ratio > 0
    assert result.benefit is not None
    assert result.benefit.known_share == 1
    assert result.benefit.cached.hs06_hours < result.benefit.direct.hs06_hours
    for point in result.ideal:
        assert point.lru == result.curve.byte_hit_ratio_at(point.capacity_bytes)
        assert result.curve.byte_hit_ratio_at(point.capacity_bytes) <= point.clairvoyant + 1e-12
        assert point.clairvoyant <= point.bound + 1e-12
    assert done == ["the cache", "categories", "the curve", "the bound"]
    large = Trace(np.arange(9), np.array([0, 1, 2] * 3), np.array([40, 1000, 50]))  # one fits no cache
    (at,) = (point for point in study(large, details[:9], config).ideal if point.capacity_bytes == 250)
    assert at.lru == pytest.approx(2 * 90 / (3 * 1090))
