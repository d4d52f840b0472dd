"""The scores of a walk: numbered by file, as they stand at any decision time, and shared by plans in step."""

import itertools
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from score_rows import by_item

from features.common.errors import StaleInputError
from features.spec import FeatureSpec
from jobs.loop.evaluate import score_store
from jobs.loop.evaluate.score_store import Reader, ScoreStore
from models.learning.baselines import Recency
from models.learning.calibration import IDENTITY, Knots
from models.serving.bundle import Bundle, HorizonModel, RegionModels
from models.serving.drift import Reference
from prefetch.plan.forecasts import hit_rate
from prefetch.plan.scores import UNKNOWN, places

FROM_S = 1_773_014_400  # 2026-03-09


def by_recency(spec: FeatureSpec, *maps: Knots) -> RegionModels:
    """Models that know when files were read, with a calibration for each horizon."""
    horizons = (
        HorizonModel(h, "recency", to, to, 0, Reference((), (1.0, 0.0), 0.0))
        for h, to in zip(spec.horizons_s, maps, strict=True)
    )
    bundle = Bundle("r", spec, ("recency_s",), {}, 0, (), {}, {})
    return RegionModels(bundle, tuple((model, Recency()) for model in horizons), "1")


@pytest.mark.parametrize("is_coded", [True, False])
def test_rows_are_numbered_whatever_their_order_and_encoding_and_strangers_are_left_out(
    is_coded: bool, tmp_path: Path
) -> None:
    store = ScoreStore(tmp_path, pa.array(["a:1", "a:2", "a:3"]), FeatureSpec(3600, (3600,), 7200, 3600))

    def features(*rows: tuple[str, float | None]) -> pa.Table:
        dids = pa.array([did for did, _ in rows], pa.string())
        dids = dids.dictionary_encode() if is_coded else dids
        sizes = pa.array([size for _, size in rows], pa.float64())
        return pa.table({"did": dids, "dataset": dids, "size_bytes": sizes})

    pieces = [features(("a:3", 1.0), ("b:9", 2.0), ("a:1", None)), features(), features(("a:2", 3.0))]
    numbered = [rows.to_pydict() for rows in store.numbered(pieces)]
    assert [rows["item"] for rows in numbered] == [[2], [], [1]]
    assert [rows["size_bytes"] for rows in numbered] == [[1.0], [], [3.0]]


def test_a_decision_time_without_a_file_has_no_scores_and_one_that_was_not_scored_is_an_error(
    tmp_path: Path,
) -> None:
    spec = FeatureSpec(3600, (3600, 7200), 7200, 3600)
    store = ScoreStore(tmp_path, pa.array(["a:1"]), spec, {FROM_S})
    none = pa.array([], pa.float32())
    sizes = {"item": none.cast(pa.int32()), "size_bytes": none}
    rows = pa.table(sizes | {"recency_s": none, "dataset_recency_s": none})
    store.score(rows, {"recency": by_recency(spec, IDENTITY, IDENTITY)}, FROM_S)
    reader = Reader(store, "recency", 3600)
    scores = reader(FROM_S)
    assert scores.horizons_s == (3600, 7200)
    assert by_item(store, "recency", FROM_S).shape == (4, 0)
    assert not scores.longest().any()
    assert not hit_rate(scores).any()
    assert [reader(FROM_S, of).horizons_s for of in (7200, 9000)] == [(7200,), (3600,)]
    with pytest.raises(StaleInputError, match="recency made no predictions at 2026-03-09T01"):
        reader(FROM_S + 3600)


@pytest.fixture
def four_times(tmp_path: Path) -> ScoreStore:
    """Scores of four files at four decision times, an hour apart; at the last all are scored anew."""
    hour, spec = 3600, FeatureSpec(3600, (3600, 7200), 7200, 3600)
    store = ScoreStore(tmp_path, pa.array(["a", "b", "c", "d"]), spec, {FROM_S, FROM_S + 3 * hour})
    models = by_recency(spec, Knots("half", (0.0, 1.0), (0.0, 0.5)), IDENTITY)

    def scored(after: int, *rows: tuple[int, float, float | None, float]) -> None:
        names = ("item", "size_bytes", "recency_s", "dataset_recency_s")
        columns = dict(zip(names, map(pa.array, zip(*rows, strict=True)), strict=True))
        columns["item"] = columns["item"].cast(pa.int32())
        store.score(pa.table(columns), {"x": models}, FROM_S + after * hour)

    scored(0, (0, 10.0, 0.0, 0.0), (1, 11.0, 1800.0, 60.0), (2, 12.0, None, 1800.0))
    scored(1, (0, 20.0, 100.0, 100.0), (3, 13.0, 0.0, 0.0))
    scored(2, (3, 14.0, 60.0, 60.0))
    scored(3, (2, 15.0, 60.0, 60.0))
    return store


def test_scores_stand_until_their_file_is_scored_anew_or_no_candidate(four_times: ScoreStore) -> None:
    store, hour, spec = four_times, 3600, four_times.spec
    at_each = [[0, 1, 2], [0, 1, 3], [0, 3], [2]]
    sizes = [[10, 11, 12], [20, 11, 13], [20, 14], [15]]
    hourly = Reader(store, "x", hour)
    for order in ([0, 1, 2, 3], [3, 2, 1, 0], [0, 2, 2, 3], [1, 3, 1]):
        for after in order:
            scores = hourly(FROM_S + after * hour)
            item = np.flatnonzero(places(scores, 4) != UNKNOWN)
            assert [item.tolist(), scores.size_bytes[item].tolist()] == [at_each[after], sizes[after]]
            assert (by_item(store, "x", FROM_S + after * hour)[2:] == scores.probability[:, item]).all()
            read = [file for file in at_each[after] if (after, file) != (0, 2)]
            for k, within_s in enumerate(spec.horizons_s):  # what looks back need of them
                look = hourly(FROM_S + after * hour, within_s)
                assert (look.probability == scores.probability[k]).all()
                assert (look.last_read_s == scores.last_read_s).all()
            assert (scores.probability[0] < scores.probability[1]).any()
            assert hourly(FROM_S + after * hour) is scores, "what plans work out of them is shared"
            assert np.flatnonzero(scores.was_read).tolist() == read
            assert (hit_rate(scores)[read] > 0).all()
            assert not np.delete(hit_rate(scores), at_each[after]).any()
            assert np.delete(scores.size_bytes, at_each[after]).sum() == 0
        hourly.forget()
    reader = Reader(store, "x", 2 * hour)  # a cache that plans less often sees all that came between
    assert np.flatnonzero(places(reader(FROM_S + 3 * hour - 1), 4) >= 0).tolist() == [0, 3]


def test_plans_in_step_share_a_reader(four_times: ScoreStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """They ask for one time together, and while one of them takes what was scored, others ask."""
    take, hour, waits_s = ScoreStore._take, 3600, itertools.cycle([0.001, 0.01, 0.002, 0.02])

    def slowly(*of: Any) -> None:
        time.sleep(next(waits_s))
        take(*of)

    def asked(reader: Reader, after: int, within_s: int | None) -> bytes:
        scores = reader(FROM_S + after * hour, within_s)
        return scores.probability.tobytes() + scores.last_read_s.tobytes()

    ways, steps = [None, *four_times.spec.horizons_s] * 4, [0, 2, 1, 2, 3, 0, 2] * 4
    alone = [[asked(Reader(four_times, "x", hour), after, way) for way in ways] for after in steps]
    monkeypatch.setattr(ScoreStore, "_take", slowly)
    reader = Reader(four_times, "x", hour)
    with ThreadPoolExecutor(6) as pool:
        assert [list(pool.map(partial(asked, reader, after), ways)) for after in steps] == alone


def test_looks_go_on_from_those_before_and_idle_ones_are_forgotten(
    four_times: ScoreStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    take, hour, horizons_s, taken = ScoreStore._take, 3600, four_times.spec.horizons_s, []

    def counted(store: ScoreStore, name: str, standing: Any, at_s: int) -> None:
        taken.append(((at_s - FROM_S) // hour, standing.within_s))
        take(store, name, standing, at_s)

    monkeypatch.setattr(ScoreStore, "_take", counted)
    reader = Reader(four_times, "x", hour)

    def plan(after: int, *within: int) -> list[tuple[int, int | None]]:
        """What is read for a plan that looks back by one hour and by two, at each horizon."""
        taken.clear()
        reader(FROM_S + after * hour)
        for within_s in within:
            reader(FROM_S + (after - 1) * hour, within_s)
            reader(FROM_S + (after - 2) * hour, within_s)
        return list(taken)

    short, long = horizons_s
    assert len(plan(2, short, long)) == 3 + 2 * (2 + 1)
    assert plan(3, short, long) == [(3, None), (2, short), (1, short), (2, long), (1, long)]
    assert len(reader._looks) == 4
    reader.forget()
    monkeypatch.setattr(score_store, "IDLE_S", hour)
    reader(FROM_S + hour)
    reader(FROM_S, short)
    assert plan(2, long)[-2:] == [(1, long), (0, long)], "a look an hour ago was not idle for longer"
    assert [look.within_s for look in reader._looks] == [short, long, long]
    plan(3, long)
    assert [look.within_s for look in reader._looks] == [long, long]
    monkeypatch.setattr(score_store, "MOST_LOOKS", 2)
    plan(3, short)
    assert [look.within_s for look in reader._looks] == [short, short]


def test_looks_whose_plans_read_elsewhere_are_not_idle(four_times: ScoreStore) -> None:
    hour, within_s = 3600, four_times.spec.horizons_s[0]
    reader = Reader(four_times, "x", hour)
    first, second = (reader(FROM_S + after * hour, within_s) for after in (3, 1))
    reader._looks[0].asked_s = 0
    assert reader(FROM_S + 2 * hour, within_s) is not second
    assert reader(FROM_S + 3 * hour, within_s) is first
