"""Calibration, learners and bundles on problems whose answer is known."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from features.errors import ModelError
from features.spec import FeatureSpec
from models.baselines import Recency, baselines
from models.bundle import Bundle
from models.calibration import IDENTITY, Knots, calibrate, reads_if_any
from models.compare import best, evaluate_baseline, evaluate_learner
from models.fit import fit_best, fit_calibrated
from models.frame import Known, Sample
from models.learners import HistBoosting, LightGBM, load_payload
from models.linear import Blend, Linear
from models.metrics import auc, quality

SPEC = FeatureSpec(
    cycle_s=3600,
    windows_s=(3600, 86400),
    half_lives_s=(3600, 86400),
    horizons_s=(3600,),
    n_gaps=1,
    candidate_s=86400,
    active_dataset_s=3600,
)


def planted(n_as_ofs: int = 40, n_files: int = 150, *, seed: int = 7) -> Sample:
    """Files that are read periodically: the last gap against recency tells, recency alone tells little."""
    rng = np.random.default_rng(seed)
    n = n_as_ofs * n_files
    gap, recency = rng.integers(2, 30, n) * 3600.0, rng.integers(1, 30, n) * 3600.0
    p = np.where(np.abs(gap - recency) <= 3 * 3600, 0.8, 0.05)
    tier = rng.integers(0, 3, n).astype(float)
    p = np.where(tier == 2, p / 2, p)
    x = pd.DataFrame(
        {
            "recency_s": recency,
            "gap_1_s": gap,
            "decayed_1h": rng.random(n),
            "decayed_1d": 20 * rng.random(n),
            "tier": tier,
        }
    ).astype("float32")
    reads = np.where(rng.random(n) < p, 1 + rng.poisson(3, n), 0).astype(float)
    return Sample(x, reads, np.repeat(np.arange(n_as_ofs) * 3600, n_files))


def known(sample: Sample) -> Known:
    return Known(3600, sample, {}, int(sample.as_of.max()) + 3600)


@pytest.mark.parametrize(
    "learner",
    [LightGBM(trees=60, threads=1), HistBoosting(trees=60), Blend((LightGBM(trees=60, threads=1), Linear()))],
    ids=lambda learner: learner.name,
)
def test_a_planted_signal_is_found_and_beats_the_baselines(learner: LightGBM) -> None:
    train, test = planted(), planted(seed=8)
    found = evaluate_learner(learner, known(train), test)
    for baseline in baselines(SPEC, 3600):
        assert found.quality.auc > evaluate_baseline(baseline, test).quality.auc + 0.1
    assert found.quality.calibration_error < 0.05
    assert found.model is not None
    probability, expected = found.model.predict(test.x)
    assert expected.sum() == pytest.approx(test.reads.sum(), rel=0.1)
    assert (expected >= probability - 1e-12).all()


@pytest.mark.parametrize("learner", [LightGBM(trees=20, threads=1), HistBoosting(trees=20)])
def test_a_payload_brings_back_the_same_model(learner: LightGBM | HistBoosting) -> None:
    sample = planted(10, 60)
    fitted = learner.fit(sample.x, sample.y)
    again = load_payload(fitted.flavour, fitted.payload())
    np.testing.assert_array_equal(again.score(sample.x), fitted.score(sample.x))
    np.testing.assert_array_equal(learner.fit(sample.x, sample.y).score(sample.x), fitted.score(sample.x))


def test_an_unknown_flavour_is_refused() -> None:
    with pytest.raises(ModelError, match="torch"):
        load_payload("torch", b"")


def test_constraints_make_recent_files_likelier() -> None:
    sample = planted()
    fitted = LightGBM(trees=60, monotone=True, threads=1).fit(sample.x, sample.y)
    probe = pd.concat([sample.x.head(1)] * 30, ignore_index=True)
    probe["recency_s"] = (np.arange(30) * 3600.0).astype("float32")
    assert (np.diff(fitted.score(probe)) <= 1e-12).all()


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


def test_the_best_is_chosen_by_validation_and_never_by_the_test() -> None:
    train, test = planted(), planted(seed=8)
    weak, strong = LightGBM(trees=1, threads=1, name="weak"), LightGBM(trees=60, threads=1, name="strong")
    flipped = Sample(test.x, 1.0 - test.y, test.as_of)
    evaluations = [evaluate_learner(one, known(train), flipped) for one in (weak, strong)]
    assert evaluations[0].quality.log_loss < evaluations[1].quality.log_loss
    chosen = best([evaluate_baseline(Recency(), flipped), *evaluations])
    assert chosen is not None
    assert chosen.name == "strong"
    assert fit_best([weak, strong], train, horizon_s=3600).name == "strong"


def test_a_short_past_takes_the_first_learner_uncalibrated() -> None:
    model = fit_best([Linear(), LightGBM(trees=5, threads=1)], planted(4, 100), horizon_s=4 * 3600)
    assert (model.name, model.calibration, model.validation_log_loss) == ("linear", IDENTITY, None)


def test_one_class_cannot_be_learned() -> None:
    sample = planted(4, 20)
    with pytest.raises(ModelError, match="one label"):
        fit_calibrated(Linear(), Sample(sample.x, np.zeros(len(sample)), sample.as_of), horizon_s=3600)


def test_never_read_is_the_least_recent() -> None:
    scores = Recency().score(pd.DataFrame({"recency_s": [3600.0, np.nan, 0.0]}))
    assert list(np.argsort(scores)) == [1, 0, 2]
    assert auc([1, 0, 1], scores) == 1.0


def _bundle() -> Bundle:
    return Bundle(
        region="emea",
        horizon_s=3600,
        spec=SPEC,
        columns=("recency_s", "tier"),
        vocabulary={"tier": ["AOD"]},
        learner="lightgbm",
        flavour="lightgbm",
        calibration=Knots("platt", (0.0, 1.0), (0.1, 0.9)),
        reads=IDENTITY,
        trained_until_s=7200,
    )


def test_a_bundle_survives_json() -> None:
    assert Bundle.from_json(_bundle().to_json()) == _bundle()


@pytest.mark.parametrize("text", ["{}", "[]", "nonsense", '{"format": 99}', '{"format": 1}'])
def test_a_damaged_bundle_is_a_model_error(text: str) -> None:
    with pytest.raises(ModelError, match="train again"):
        Bundle.from_json(text)
