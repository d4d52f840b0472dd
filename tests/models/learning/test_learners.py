"""Calibration, learners and bundles on problems whose answer is known."""

import numpy as np
import pandas as pd
import pytest

from features.common.errors import ModelError
from features.spec import FeatureSpec
from models.evaluation.metrics import ranking_quality
from models.learning.baselines import S3FifoCounts, baselines
from models.learning.fit import earlier_parts, fit_calibrated, refit
from models.learning.frame import Known, Sample, horizon_parts, known_by, model_matrix
from models.learning.learners import Learner, LightGBM
from models.learning.sklearn_learners import HistBoosting, Logistic, RandomForest
from models.training.compare import best, best_learned, evaluate

SPEC = FeatureSpec(cycle_s=3600, horizons_s=(3600,), candidate_s=86400, active_dataset_s=3600)


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
            "gap_0_s": gap,
            "gap_1_s": rng.integers(2, 30, n) * 3600.0,
            "gap_2_s": np.nan,
            "decayed_2h": rng.random(n),
            "decayed_48h": 20 * rng.random(n),
            "n_reads": rng.integers(1, 4, n),
            "dataset_decayed_2h": rng.random(n),
            "size_bytes": rng.integers(1, 100, n) * 1e8,
            "tier": tier,
        }
    ).astype("float32")
    reads = np.where(rng.random(n) < p, 1 + rng.poisson(3, n), 0).astype(float)
    return Sample(x, reads, np.repeat(np.arange(n_as_ofs) * 3600, n_files))


def known(sample: Sample) -> Known:
    return Known(3600, sample, {}, int(sample.as_of.max()) + 3600)


@pytest.mark.parametrize(
    "learner",
    [LightGBM(trees=60), HistBoosting(trees=60), RandomForest(max_rows=3000)],
    ids=lambda learner: learner.name,
)
def test_a_planted_signal_is_found_and_beats_the_baselines(learner: Learner) -> None:
    train, test = planted(), planted(seed=8)
    evaluation = evaluate(learner, known(train), test)
    for baseline in baselines(SPEC, 3600):
        assert evaluation.quality.auc > evaluate(baseline, known(train), test).quality.auc + 0.1
    assert evaluation.quality.calibration_error < 0.05
    assert evaluation.model is not None
    reads_if_any = evaluation.model.reads(evaluation.scores)
    assert (evaluation.scores * reads_if_any).sum() == pytest.approx(test.reads.sum(), rel=0.1)
    assert (reads_if_any >= 1).all()


@pytest.mark.parametrize(
    "learner",
    [LightGBM(trees=20), HistBoosting(trees=20), RandomForest(trees=10, max_rows=300), Logistic()],
    ids=lambda learner: learner.name,
)
def test_the_same_rows_give_the_same_model(learner: Learner) -> None:
    sample = planted(10, 60)
    sample.x.loc[::3, ["recency_s", "gap_0_s"]] = np.nan
    sample.x["decayed_48h"] = np.float32(np.nan)
    fitted = learner.fit(sample.x, sample.y)
    again = learner.fit(sample.x, sample.y)
    np.testing.assert_array_equal(again.score(sample.x), fitted.score(sample.x))


def test_constraints_make_recent_files_likelier() -> None:
    sample = planted()
    fitted = LightGBM(trees=60, monotone=True).fit(sample.x, sample.y)
    probe = pd.concat([sample.x.head(1)] * 30, ignore_index=True)
    probe["recency_s"] = (np.arange(30) * 3600.0).astype("float32")
    assert (np.diff(fitted.score(probe)) <= 1e-12).all()

    probe = pd.concat([sample.x.head(1)] * 5, ignore_index=True)
    probe["n_reads"] = np.arange(5).astype("float32")
    assert (np.diff(fitted.score(probe)) >= -1e-12).all()


def test_the_lightgbm_that_serves_is_chosen_by_validation_and_never_by_the_test() -> None:
    train, test = planted(), planted(seed=8)
    weak, strong = LightGBM(trees=1, name="weak"), LightGBM(trees=20, name="strong")
    rival = HistBoosting(trees=60, rate=0.1, name="rival")
    flipped = Sample(test.x, 1.0 - test.y, test.as_of)
    evaluations = [evaluate(each, known(train), flipped) for each in (rival, weak, strong)]
    assert evaluations[1].quality.log_loss < evaluations[2].quality.log_loss
    losses = {row.name: row.model.validation_log_loss for row in evaluations if row.model}
    assert min(losses, key=lambda name: losses[name] or 1) == "rival"
    learned = best_learned(evaluations)
    assert learned is not None
    assert learned.name == "strong"
    rest = [evaluate(each, known(train), test) for each in baselines(SPEC, 3600)]
    assert best(rest).name == "recency"


def test_what_serves_is_fitted_on_all_rows_and_calibrated_on_rows_it_had_not_seen() -> None:
    learner = LightGBM(trees=30)
    sample = planted(60, 100)
    before, later = sample.where(sample.as_of < 39 * 3600), sample.where(sample.as_of >= 40 * 3600)
    model = fit_calibrated(learner, before, horizon_s=3600)
    refitted = refit(learner, model, later, sample)
    probe = planted(seed=9).x
    np.testing.assert_array_equal(refitted.scorer.score(probe), learner.fit(sample.x, sample.y).score(probe))
    assert model.scored is not None
    assert refitted.scored is not None
    assert len(refitted.scored.reads) == len(model.scored.reads) + len(later)
    np.testing.assert_array_equal(refitted.scored.scores[-len(later) :], model.scorer.score(later.x))
    assert refitted.predict(probe).mean() == pytest.approx(planted(seed=9).y.mean(), abs=0.03)


def test_no_label_reaches_into_the_block_that_is_scored() -> None:
    sample, horizon_s = planted(40, 50), 3 * 3600
    hours = np.unique(sample.as_of)
    until_s = int(hours[30])
    parts = list(earlier_parts(sample, until_s, horizon_s))
    assert sum(len(part) for _, part in parts) == (sample.as_of < until_s).sum()
    for rest, part in parts:
        first, last = part.as_of.min(), part.as_of.max()
        before, after = rest.as_of[rest.as_of < first], rest.as_of[rest.as_of >= first]
        assert (before + horizon_s <= first).all()
        assert (after >= last + horizon_s).all()
        assert len(rest) + len(part) >= len(sample) - 2 * 50 * (horizon_s // 3600)


def test_one_class_cannot_be_learned() -> None:
    sample = planted(4, 20)
    with pytest.raises(ModelError, match="one label"):
        fit_calibrated(Logistic(), Sample(sample.x, np.zeros(len(sample)), sample.as_of), horizon_s=3600)


def test_files_in_the_main_queue_come_before_those_in_the_small_one() -> None:
    hours = pd.DataFrame(
        {
            "recency_s": [1, 20, 0.1, np.nan, 2, 25],
            "gap_0_s": [23, 1, 30, np.nan, 2, 1],
            "gap_1_s": [5, 1, np.nan, np.nan, 20, 1],
            "gap_2_s": [np.nan, 1, np.nan, np.nan, 9, 1],
        }
    )
    scores = S3FifoCounts(24 * 3600).score(hours * 3600)
    n_reads = [2, 4, 1, 0, 3, 0]  # in the last 24 hours
    assert np.argsort(-scores).tolist() == [1, 4, 0, 2, 5, 3]
    assert np.floor(5 * scores).tolist() == [n if n > 1 else 0 for n in n_reads]
    assert scores[3] == 0
    assert ((scores >= 0) & (scores <= 1)).all()


def test_files_never_read_are_told_apart_by_their_dataset() -> None:
    def cold(seed: int) -> Sample:
        rng = np.random.default_rng(seed)
        n = 6000
        own = pd.DataFrame({c: rng.random(n) for c in ("recency_s", "gap_0_s", "since_first_s")})
        never = rng.random(n) < 0.5
        own[never] = np.nan
        x = own.assign(dataset_decayed_2h=5 * rng.random(n), n_reads=np.where(never, 0, 2), size_bytes=1e9)
        p = np.where(never, np.where(x["dataset_decayed_2h"] > 4, 0.7, 0.02), 0.3)
        reads = (rng.random(n) < p).astype(float)
        return Sample(x.astype("float32"), reads, np.repeat(np.arange(20) * 3600, n // 20))

    evaluation = evaluate(LightGBM(trees=60), known(cold(1)), cold(2))
    parts = {part.part: part.quality for part in evaluation.slices if part.weighting == "file"}
    assert parts["cold"].auc > 0.85
    assert parts["warm"].auc < 0.6
    assert parts["cold"].n_rows + parts["warm"].n_rows == parts["all"].n_rows


def test_shuffling_the_future_changes_no_past_prediction() -> None:
    """What is fitted and predicted as of a moment is the same whatever comes after it."""
    rows = pd.DataFrame({name: np.random.default_rng(3).random(1200) for name in SPEC.numeric_columns})
    words = {name: ["AOD", "RAW", "DST"] for name in SPEC.categorical_columns}
    rows = rows.assign(
        as_of_s=np.repeat(np.arange(40) * 3600, 30), **dict.fromkeys(words, ["AOD", "RAW", "DST"] * 400)
    )
    rows["n_access_within_1h"] = (rows["decayed_2h"] > 0.6).astype(float)
    until_s = 25 * 3600
    later = rows["as_of_s"] + 3600 > until_s
    shuffled = rows.copy()
    shuffled[later] = rows[later].sample(frac=1, random_state=1).set_axis(rows.index[later])
    shuffled.loc[later, "as_of_s"] = rows.loc[later, "as_of_s"]
    shuffled.loc[later, "n_access_within_1h"] = 1.0
    shuffled.loc[later, "tier"] = "FUTURE"
    assert not shuffled.equals(rows)

    def predicted(frame: pd.DataFrame) -> list[np.ndarray]:
        everything = known_by(frame, SPEC, horizon_s=3600, until_s=until_s, vocabulary=words)
        part = horizon_parts(frame, SPEC, everything, share=0.3, until_s=until_s)
        past = model_matrix(rows[~later], SPEC, words)
        return [
            fit_calibrated(LightGBM(trees=10, min_rows=5), rows_of.sample, horizon_s=3600).predict(past)
            for rows_of in (part.train, part.everything)
        ]

    for with_future, without in zip(predicted(shuffled), predicted(rows), strict=True):
        np.testing.assert_array_equal(with_future, without)


def test_fits_that_share_bins_learn_from_their_rows_alone() -> None:
    sample, learner = planted(), LightGBM(trees=20)
    bins, all_rows = learner.binned(sample.x), np.arange(len(sample))
    assert learner.fit_some(bins, all_rows, sample.y) == learner.fit(sample.x, sample.y)
    first, last = np.split(all_rows, [len(sample) // 2])
    alike, opposite = (
        learner.fit_some(bins, first, y).score(sample.x.iloc[last])
        for y in (sample.y[first], 1 - sample.y[first])
    )
    assert ranking_quality(sample.y[last], alike).auc > 0.7
    assert ranking_quality(sample.y[last], opposite).auc < 0.3
