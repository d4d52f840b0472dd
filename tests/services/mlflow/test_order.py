"""The order of eviction in MLflow: kept by a training, judged apart from plans, and served to stewards."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from ladders import rates_of
from planted_region import (
    DAY,
    FIRST,
    MLFLOW_WARNINGS,
    SECOND,
    TRAIN_UNTIL_S,
    Mlflow,
    bundle_of,
    evaluate,
    registry,
    serve,
    settings_of,
    tags_of,
)

from features.common.errors import ModelError
from features.results import CHALLENGER_PLAN, STEWARD, STEWARD_PLAN
from features.spec import COLUMNS
from jobs.ground.settings.tree import CacheSettings
from jobs.ground.store.tables import Tables
from jobs.loop.evaluate import promote
from jobs.loop.evaluate.decisions import Promotion, last_decision
from jobs.loop.trainings import keep_training, promoted_models
from models.serving.bundle_files import BUNDLE_FILE, bundle_digest, read_about, read_order
from models.serving.registry import load_order
from models.serving.versions import ModelVersion

pytestmark = MLFLOW_WARNINGS
CAPACITY = 100_000_000
CACHE = CacheSettings(name="xc1", kind="xcache", url="root://xc1:1094", capacity=CAPACITY)


def decide(store: Tables, at: Mlflow, now_s: int) -> Promotion:
    return promote.promote(settings_of(store, at), now_s=now_s)


def on_record(store: Tables) -> ModelVersion | None:
    """What our record lets evict."""
    return promoted_models(store, region="emea").get("steward")


def serving(at: Mlflow) -> tuple[str | None, str | None]:
    """The champion, and the version whose order may evict."""
    known = registry(at)
    return known.version_at("emea", "champion"), known.version_at("emea", "steward")


def test_a_training_keeps_an_order_that_says_why_it_may_not_evict_yet(own: Mlflow) -> None:
    assert load_order(registry(own), "emea", named=None) is None
    of_second = tags_of(own, SECOND)
    assert of_second["may_evict"] == "no: not evaluated yet"
    assert of_second["order"].startswith("within 90m, 3h")


def test_plans_and_order_serve_apart_and_a_rollback_restores_both(own: Mlflow, store: Tables) -> None:
    evaluate(store, FIRST, 40 * DAY, saving=300, champion=None, order_saving=0)
    decision = decide(store, own, 1)
    assert (decision.action, decision.may_evict, serving(own)) == ("promote", False, (FIRST, None))
    assert tags_of(own, FIRST)["may_evict"].startswith("no: is not significantly better than lru")
    evaluate(store, SECOND, 41 * DAY, saving=0, champion=FIRST, order_saving=200)
    decision = decide(store, own, 2)
    assert (decision.action, decision.champion) == ("refuse", FIRST)
    assert (decision.may_evict, decision.steward, serving(own)) == (True, SECOND, (FIRST, SECOND))
    assert {row.against for row in decision.comparisons if row.policy == "steward"} == {"lru", "s3fifo"}
    of_second = tags_of(own, SECOND)
    assert of_second["may_evict"] == "yes"
    assert of_second["may_push"].startswith("no: is not significantly better")
    assert last_decision(store, region="emea") == decision
    evaluate(store, FIRST, 42 * DAY, saving=300, champion=None, order_saving=200)
    assert decide(store, own, 3).steward == FIRST
    assert tags_of(own, SECOND)["may_evict"] == f"no: the order that evicts is of {FIRST}"
    expected = [(FIRST, SECOND), (FIRST, None), (None, None)]
    for now_s, versions in enumerate(expected, start=4):
        back = promote.rollback(settings_of(store, own), now_s=now_s)
        assert (back.champion, back.steward) == versions == serving(own)
    assert tags_of(own, SECOND)["may_evict"] == "no: the order that evicts is of none"


def test_while_an_order_serves_a_newer_one_is_refused_only_if_it_surely_misses_more(
    own: Mlflow, store: Tables
) -> None:
    max_age_s = settings_of(store, own).training.max_age
    decided: list[Promotion] = []
    for version, order_saving, at_s in (
        (FIRST, 0, 40 * DAY),  # none serves
        (FIRST, 200, 41 * DAY),
        (SECOND, -200, 42 * DAY),
        (SECOND, 0, 43 * DAY),
        (FIRST, 0, TRAIN_UNTIL_S + max_age_s + DAY),  # what serves is too old
    ):
        evaluate(store, version, at_s, saving=0, champion=None, order_saving=order_saving)
        decided.append(decide(store, own, len(decided) + 1))
    assert [decision.may_evict for decision in decided] == [False, True, False, True, False]
    assert [decision.steward for decision in decided] == [None, FIRST, FIRST, SECOND, SECOND]
    assert serving(own) == (None, SECOND)


@pytest.mark.parametrize("why", ["older", "taken back", "another capacity"])
def test_a_version_that_does_not_follow_the_one_that_serves_has_to_win_like_a_first_one(
    own: Mlflow, store: Tables, why: str
) -> None:
    evaluate(store, FIRST, 41 * DAY, saving=0, champion=None, order_saving=200)
    assert decide(store, own, 1).may_evict
    evaluate(store, SECOND, 42 * DAY, saving=0, champion=None, order_saving=0)
    if why == "older":
        digest = bundle_digest(bundle_of(own, SECOND))
        keep_training(store, region="emea", until_s=TRAIN_UNTIL_S - DAY, version=SECOND, digest=digest)
    elif why == "another capacity":
        at = {"capacity_fraction": 0.4}
        evaluate(store, SECOND, 42 * DAY, saving=0, champion=None, order_saving=0, **at)
    else:
        assert decide(store, own, 2).steward == SECOND
        assert promote.rollback(settings_of(store, own), now_s=3).steward == FIRST
    decision = decide(store, own, 4)
    assert (decision.may_evict, decision.steward) == (False, FIRST)


def test_a_model_without_an_order_may_not_evict_whatever_was_replayed(own: Mlflow, store: Tables) -> None:
    folder = bundle_of(own, FIRST)
    raw = json.loads((folder / BUNDLE_FILE).read_text())
    (folder / BUNDLE_FILE).write_text(json.dumps(raw | {"order": None, "no_order": "too few accesses"}))
    shutil.rmtree(folder / "order")
    keep_training(store, region="emea", until_s=TRAIN_UNTIL_S, version=FIRST, digest=bundle_digest(folder))
    evaluate(store, FIRST, 40 * DAY, saving=300, champion=None, order_saving=200)
    decision = decide(store, own, 1)
    assert (decision.action, decision.may_evict, decision.steward) == ("promote", False, None)
    assert decision.order_reasons == ("the challenger has no order of eviction: too few accesses",)
    assert serving(own) == (FIRST, None)
    serve(store, own, 2, steward=FIRST)  # by hand
    assert load_order(registry(own), "emea", named=on_record(store)) is None


def test_plans_of_a_site_with_stewards_are_judged_beside_one_and_win_only_with_its_order(
    own: Mlflow, tmp_path: Path
) -> None:
    def decided(
        at: float, *, order_saving: int, hours: float, caches: tuple[bool, ...] = (True,)
    ) -> Promotion:
        store = Tables(str(shutil.copytree(tmp_path / "tables", tmp_path / f"tables-{at}")))
        evaluate(store, SECOND, 40 * DAY, saving=300, champion=None, order_saving=order_saving, hours=hours)
        sites_caches = [CACHE.model_copy(update={"steward": has}) for has in caches]
        by_name = {str(i): caches for i, caches in enumerate(sites_caches)}
        site = settings_of(store, own).model_copy(update={"caches": by_name})
        return promote.promote(site, now_s=int(at))

    won = decided(1, order_saving=200, hours=9.0)
    assert (won.action, won.may_evict) == ("promote", True)
    assert {comparison.policy for comparison in won.comparisons} == {STEWARD_PLAN, STEWARD}
    waits = decided(2, order_saving=200, hours=0.0)
    assert (waits.action, waits.may_evict) == ("refuse", True)
    assert any(reason.startswith("saves no waiting") for reason in waits.reasons)
    alone = decided(3, order_saving=0, hours=9.0)
    assert (alone.action, alone.may_evict) == ("refuse", False)
    assert any("which may not evict" in reason for reason in alone.reasons)
    mixed = decided(4, order_saving=200, hours=9.0, caches=(True, False))
    assert {comparison.policy for comparison in mixed.comparisons} == {CHALLENGER_PLAN, STEWARD_PLAN, STEWARD}
    plain = decided(5, order_saving=0, hours=0.0, caches=())
    assert (plain.action, plain.may_evict) == ("promote", False)


def test_a_steward_gets_the_order_that_was_trained(own: Mlflow, store: Tables) -> None:
    at = registry(own)
    serve(store, own, 1, steward=SECOND)
    served = load_order(at, "emea", named=on_record(store))
    assert served is not None
    assert (served.version, served.until_s, served.kinds) == (SECOND, TRAIN_UNTIL_S, ("tar", "root"))
    folder = bundle_of(own, SECOND)
    model = read_about(folder).order
    assert model is not None
    assert served.order.from_s == TRAIN_UNTIL_S
    rows = np.random.default_rng(1).random((9, len(COLUMNS))).astype(np.float32)
    np.testing.assert_array_equal(
        rates_of(served.order.models, rows), rates_of(read_order(folder, model), rows)
    )
    assert load_order(at, "emea", named=on_record(store), known=served) is served


def test_a_changed_order_serves_nobody(own: Mlflow, store: Tables) -> None:
    at, folder = registry(own), bundle_of(own, SECOND)
    serve(store, own, 1, steward=SECOND)
    trees = folder / "order" / "90m.lgb"
    before = bundle_digest(folder)
    trees.write_text(trees.read_text().replace("shrinkage=1", "shrinkage=2"))
    assert bundle_digest(folder) != before
    with pytest.raises(ModelError, match="not those that were trained"):
        load_order(at, "emea", named=on_record(store))
    evaluate(store, SECOND, 40 * DAY, saving=0, champion=None, order_saving=200)
    with pytest.raises(ModelError, match="not those that were trained"):
        decide(store, own, 2)
    trees.write_text(trees.read_text()[:600])
    model = read_about(folder).order
    assert model is not None
    with pytest.raises(ModelError, match=r"order/90m\.lgb: .*cut short.*train again"):
        read_order(folder, model)
    trees.unlink()
    with pytest.raises(ModelError, match=r"order/90m\.lgb cannot be read"):
        read_order(folder, model)
    (folder / "order" / "code.py").write_text("raise SystemExit")
    with pytest.raises(ModelError, match=r"order/code\.py"):
        bundle_digest(folder)
