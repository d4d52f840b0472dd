"""Figures by weight, by part and at the bytes a cache holds, against plain loops; drift by its formula."""

import math

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

from models.learning.frame import Sample
from models.serving.drift import drifts, psi, reference, references
from models.training.compare import CAPACITY_FRACTIONS, holdings, slices


@pytest.fixture(scope="module")
def sample() -> tuple[Sample, np.ndarray]:
    rng = np.random.default_rng(6)
    n = 900
    x = pd.DataFrame(
        {
            "recency_s": np.where(rng.random(n) < 0.4, np.nan, rng.random(n)),
            "size_bytes": np.where(rng.random(n) < 0.1, np.nan, rng.integers(1, 9, n) * 1e9),
            "tier": rng.integers(0, 2, n),
        }
    ).astype("float32")
    scores = rng.random(n)
    reads = np.where(rng.random(n) < scores, rng.integers(1, 5, n), 0).astype(float)
    return Sample(x, reads, np.repeat([0, 3600, 7200], n // 3), rng.integers(0, 40, n)), scores


def test_slices_are_the_figures_of_their_rows(sample: tuple[Sample, np.ndarray]) -> None:
    rows, scores = sample
    parts = {
        (part.weighting, part.part): part.quality
        for part in slices(rows, scores, {"tier": ["AOD", "RAW"]}, are_probabilities=True)
    }
    cold = rows.x["recency_s"].isna().to_numpy()
    assert parts["file", "cold"].auc == pytest.approx(roc_auc_score(rows.y[cold], scores[cold]))
    size = rows.x["size_bytes"].fillna(0).to_numpy(dtype=float)
    known = cold & (size > 0)
    expected = roc_auc_score(rows.y[known], scores[known], sample_weight=size[known])
    assert parts["byte", "cold"].auc == pytest.approx(expected)
    aod = (rows.x["tier"] == 0).to_numpy()
    assert parts["file", "tier AOD"].n_rows == aod.sum()
    assert parts["file", "cold"].n_rows + parts["file", "warm"].n_rows == len(rows)
    pairs = list(zip(rows.as_of, rows.dataset if rows.dataset is not None else [], strict=True))
    weights = np.array([1 / pairs.count(pair) for pair in pairs])
    assert parts["dataset", "all"].brier == pytest.approx(np.average((scores - rows.y) ** 2, weights=weights))
    assert not math.isnan(parts["dataset", "all"].calibration_error)


def test_holdings_fill_each_moment_by_score(sample: tuple[Sample, np.ndarray]) -> None:
    rows, scores = sample
    size = rows.x["size_bytes"].to_numpy(dtype=float)
    of_files = [holding for holding in holdings(rows, scores) if holding.weighting in ("file", "byte")]
    assert len(of_files) == 2 * len(CAPACITY_FRACTIONS)
    for held in of_files:
        hit = n_kept = read = 0.0
        for as_of in np.unique(rows.as_of):
            there = [i for i in np.flatnonzero(rows.as_of == as_of) if not math.isnan(size[i])]
            room, used = held.capacity_fraction * sum(size[i] for i in there), 0.0
            for i in sorted(there, key=lambda i: -scores[i]):
                used += size[i]
                w = size[i] if held.weighting == "byte" else 1.0
                inside = used <= room
                n_kept += w * inside
                read += w * rows.y[i]
                hit += w * inside * rows.y[i]
        assert held.precision == pytest.approx(hit / n_kept)
        assert held.recall == pytest.approx(hit / read)


def test_psi_is_its_formula_and_0_where_nothing_moved() -> None:
    values = np.repeat(np.arange(10.0), 50)
    then = reference(values, np.zeros(500, np.int64))
    assert psi(then, values) == 0
    now = np.where(values == 9, np.nan, values)
    old, new = dict.fromkeys(range(10), 0.1), {**dict.fromkeys(range(9), 0.1), 9: 1e-4}
    expected = sum((new[b] - old[b]) * math.log(new[b] / old[b]) for b in old)
    expected += (0.1 - 1e-4) * math.log(0.1 / 1e-4)
    assert psi(then, now) == pytest.approx(expected)
    (drift,) = drifts({"x": then}, {"x": now})
    assert drift.drifted
    assert (drift.null_share, drift.null_share_then) == (0.1, 0.0)


def test_what_training_days_differed_by_is_no_alarm() -> None:
    rng = np.random.default_rng(2)
    as_of = np.repeat(np.arange(20), 300)
    restless = rng.normal(3 * (as_of % 2), 1)
    steady = rng.normal(0, 1, len(as_of))
    matrix = pd.DataFrame({"restless": restless, "steady": steady, "hour": (as_of % 24) * 1.0})
    matrix["since_first_s"] = as_of + rng.random(len(as_of))  # it grows with the records
    then = references(matrix.astype("float32"), as_of)
    assert set(then) == {"restless", "steady"}
    one_day = {"restless": rng.normal(3, 1, 5000), "steady": rng.normal(0, 1, 5000)}
    assert not any(drift.drifted for drift in drifts(then, one_day))
    assert then["restless"].usual_psi > 0.25 > then["steady"].usual_psi
    measured = drifts(then, {**one_day, "steady": rng.normal(1, 1, 5000)})
    assert [drift.column for drift in measured if drift.drifted] == ["steady"]
    assert max(drift.psi for drift in measured) >= 0.25
