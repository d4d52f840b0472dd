"""Who becomes champion by recorded evaluations, and the way back; also when killed around each write."""

import functools
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from planted_region import (
    DAY,
    FIRST,
    MLFLOW_WARNINGS,
    SECOND,
    TRAIN_UNTIL_S,
    Mlflow,
    evaluate,
    loaded,
    registry,
    serve,
    settings_of,
    tags_of,
)

from features.common.errors import ModelError, StaleInputError
from features.common.times import as_of_label
from features.results import CHAMPION_PLAN, LRU, PROMOTIONS, S3FIFO_PLAN
from jobs.ground.settings.tree import Settings
from jobs.ground.store.tables import Tables
from jobs.loop.evaluate import promote
from jobs.loop.evaluate.decisions import Promotion, decisions, last_decision
from jobs.loop.evaluate.record import candidates
from models.serving.mlflow_session import mlflow

pytestmark = MLFLOW_WARNINGS


def test_the_champion_follows_from_evaluations_and_can_be_taken_back(local: Mlflow, store: Tables) -> None:
    at = registry(local)

    def champion() -> str | None:
        return at.version_at("emea", "champion")

    def decide(now_s: int) -> Promotion:
        return promote.promote(settings_of(store, local), now_s=now_s)

    with pytest.raises(StaleInputError, match="cachecast evaluate"):
        decide(0)
    with pytest.raises(StaleInputError, match="never had a champion"):
        promote.rollback(settings_of(store, local), now_s=0)
    evaluate(store, FIRST, 40 * DAY, saving=0, champion=None)
    assert (decide(1).action, champion()) == ("refuse", None)
    evaluate(store, FIRST, 41 * DAY, saving=300, champion=None)
    assert (decide(2).champion, champion()) == (FIRST, FIRST)
    assert (decide(3).action, champion()) == ("promote", FIRST)
    evaluate(store, SECOND, 42 * DAY, saving=300, champion="cachecast-emea/9")
    assert "evaluate again" in decide(4).reasons[0]
    evaluate(store, SECOND, 43 * DAY, saving=300, champion=FIRST)
    assert (decide(5).champion, champion()) == (SECOND, SECOND)
    decision = last_decision(store, region="emea")
    assert (decision.action, decision.model_version, decision.evaluated_as_of) == (
        "promote",
        SECOND,
        as_of_label(43 * DAY),
    )
    assert {comparison.against for comparison in decision.comparisons} == {LRU, S3FIFO_PLAN, CHAMPION_PLAN}
    tags = tags_of(local, SECOND)
    assert (tags["decision"], tags["evaluated_as_of"]) == ("promote", as_of_label(43 * DAY))
    check_rollback(store, local)


def check_rollback(store: Tables, local: Mlflow) -> None:
    at = registry(local)
    assert tags_of(local, SECOND)["may_push"] == "yes"
    assert tags_of(local, FIRST)["may_push"] == f"no: the champion is {SECOND}"
    at.point("champion", FIRST)  # by hand: the records know of the second
    assert promote.rollback(settings_of(store, local), now_s=6).champion == SECOND
    assert at.version_at("emea", "champion") == SECOND
    assert promote.rollback(settings_of(store, local), now_s=7).champion == FIRST
    assert at.version_at("emea", "champion") == FIRST
    assert tags_of(local, FIRST)["may_push"] == "yes"
    assert tags_of(local, SECOND)["may_push"] == f"no: the champion is {FIRST}"
    assert promote.rollback(settings_of(store, local), now_s=8).champion is None
    assert tags_of(local, FIRST)["may_push"] == "no: the champion is none"
    assert at.version_at("emea", "champion") is None
    with pytest.raises(StaleInputError, match="never had a champion"):
        promote.rollback(settings_of(store, local), now_s=9)
    actions = [row["action"] for row in store.read_arrow(PROMOTIONS).sort_by("as_of").to_pylist()]
    assert actions == ["refuse", "promote", "promote", "refuse", "promote", "rollback", "rollback"]


def test_decisions_keep_their_order_though_the_clock_is_set_back(local: Mlflow, store: Tables) -> None:
    evaluate(store, FIRST, 41 * DAY, saving=300, champion=None)
    for now_s in (100, 50):
        promote.promote(settings_of(store, local), now_s=now_s)
        assert promote.rollback(settings_of(store, local), now_s=now_s).champion is None
    rows = store.read_arrow(PROMOTIONS).sort_by("as_of").to_pylist()
    assert [row["action"] for row in rows] == ["promote", "rollback"] * 2


def test_an_alias_moved_by_others_is_no_champion(local: Mlflow, store: Tables) -> None:
    at = registry(local)

    def predicting() -> str:
        return loaded(store, local, "champion").version

    at.point("champion", SECOND)  # nothing was ever promoted
    with pytest.raises(ModelError, match=f"champion.*{SECOND}.*names none"):
        predicting()
    assert promote.rollback(settings_of(store, local), now_s=1).champion is None
    assert at.version_at("emea", "champion") is None
    evaluate(store, FIRST, 40 * DAY, saving=300, champion=None)
    promote.promote(settings_of(store, local), now_s=2)
    assert predicting() == FIRST
    at.point("champion", SECOND)
    with pytest.raises(ModelError, match=f"champion.*{SECOND}.*names {FIRST}"):
        predicting()
    at.unpoint("emea", "champion")
    with pytest.raises(ModelError, match=f"no version.*names {FIRST}"):
        predicting()
    at.point("champion", SECOND)
    evaluate(store, SECOND, 41 * DAY, saving=0, champion=FIRST)
    decision = promote.promote(settings_of(store, local), now_s=3)
    assert (decision.action, decision.champion) == ("refuse", FIRST)  # not what the alias said
    assert SECOND in decision.reasons[0]
    assert predicting() == FIRST
    assert last_decision(store, region="emea").champion_digest == decision.champion_digest


def test_a_champion_too_old_to_serve_is_no_rival(local: Mlflow, store: Tables) -> None:
    serve(store, local, 0, champion=FIRST)
    evaluate(store, SECOND, 40 * DAY, saving=300, champion=None)
    registry(local).tag(FIRST, {"until": "2001-01-01T00:00:00Z"})  # of MLflow, so nobody believes it
    decision = promote.promote(settings_of(store, local), now_s=1)
    assert (decision.action, decision.champion) == ("refuse", FIRST)
    registry(local).tag(FIRST, {"until": "2099-01-01T00:00:00Z"})
    decision = promote.promote(settings_of(store, local, max_age_s=20 * DAY), now_s=2)
    assert (decision.action, decision.champion) == ("promote", SECOND)
    assert "so it is no rival" in decision.reasons[0]


def test_a_champion_that_was_deleted_in_mlflow_is_no_rival_and_serves_no_longer(
    local: Mlflow, store: Tables
) -> None:
    """As old versions are; else neither an evaluation nor a decision would come to its end ever again."""
    serve(store, local, 0, champion=FIRST)
    client = mlflow.tracking.MlflowClient(local.uri, registry_uri=local.uri)
    client.delete_model_version(*FIRST.split("/"))
    settings = settings_of(store, local)
    known = candidates(settings, from_s=TRAIN_UNTIL_S)
    assert (known.candidate, known.champion) == (SECOND, None)
    assert known.notes == (f"MLflow does not have the champion {FIRST} any more: it is no rival",)
    evaluate(store, SECOND, 40 * DAY, saving=0, champion=None)
    refused = promote.promote(settings, now_s=1)
    assert (refused.action, refused.champion) == ("refuse", None)
    assert refused.reasons[0] == f"MLflow does not have {FIRST} any more: it serves no longer"
    evaluate(store, SECOND, 41 * DAY, saving=300, champion=None)
    assert promote.promote(settings, now_s=2).champion == SECOND
    assert loaded(store, local, "champion").version == SECOND
    undone = [promote.rollback(settings, now_s=now_s) for now_s in (3, 4)]
    assert [(back.model_version, back.champion) for back in undone] == [(SECOND, None), (FIRST, None)]
    with pytest.raises(StaleInputError, match="never had a champion"):
        promote.rollback(settings, now_s=5)


WRITES = {
    mlflow.tracking.MlflowClient: ("set_registered_model_alias", "delete_registered_model_alias"),
    Tables: ("replace_rows",),
}


class Killed(BaseException):
    """Nothing catches it, as nothing does a kill."""


def state(settings: Settings, local: Mlflow) -> dict[str, Any]:
    at, tags = registry(local), {version: tags_of(local, version) for version in (FIRST, SECOND)}
    last = decisions(Tables(settings.tables.root), region="emea")[-1]
    return {
        "aliases": [at.version_at("emea", alias) for alias in ("champion", "steward")],
        "may": {version: [tags[version].get(tag) for tag in ("may_push", "may_evict")] for version in tags},
        "decided": (last.champion, last.steward, last.champion_digest),
    }


def ends(
    copied: Callable[[], tuple[Settings, Mlflow]], command: Callable[..., Any], *, killed_at: int | None
) -> dict[str, Any] | None:
    """What is left by a command that was killed at moment `killed_at` and repeated; None: it was not killed.

    Moments are before and after each write.
    """
    settings, local = copied()
    n_moments = 0

    def pass_moment() -> None:
        nonlocal n_moments
        n_moments += 1
        if n_moments == killed_at:
            raise Killed

    def counted(write: Callable[..., Any], *words: Any, **options: Any) -> Any:
        pass_moment()
        written = write(*words, **options)
        pass_moment()
        return written

    with pytest.MonkeyPatch.context() as patch:
        for kind, names in WRITES.items():
            for name in names:
                patch.setattr(kind, name, _counting(counted, getattr(kind, name)))
        try:
            command(settings, now_s=100)
        except Killed:
            command(settings, now_s=101)
        else:
            if killed_at is not None:
                return None
    return state(settings, local)


def _counting(counted: Callable[..., Any], write: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(write)
    def instead(self: Any, *words: Any, **options: Any) -> Any:
        return counted(functools.partial(write, self), *words, **options)

    return instead


@pytest.fixture
def copied(local: Mlflow, store: Tables, tmp_path: Path) -> Callable[[], tuple[Settings, Mlflow]]:
    """Makes copies of a site whose first version serves, and whose second won the newest evaluation."""
    n_copies = 0
    evaluate(store, FIRST, 41 * DAY, saving=300, champion=None)
    promote.promote(settings_of(store, local), now_s=1)
    evaluate(store, SECOND, 43 * DAY, saving=300, champion=FIRST)

    def copy() -> tuple[Settings, Mlflow]:
        nonlocal n_copies
        n_copies += 1
        folder = tmp_path / f"copy{n_copies}"
        shutil.copytree(tmp_path / "tables", folder / "tables")
        shutil.copy(tmp_path / "mlflow.db", folder / "mlflow.db")
        moved = local.model_copy(update={"uri": f"sqlite:///{folder}/mlflow.db"})
        return settings_of(Tables(str(folder / "tables")), moved), moved

    return copy


def check_every_kill(
    copied: Callable[[], tuple[Settings, Mlflow]],
    command: Callable[..., Any],
    champion: str,
    *,
    but_last: bool = False,
) -> None:
    """`but_last`: a command that was killed after its last write has done all, and does more if repeated."""
    expected = ends(copied, command, killed_at=None)
    last = 4 - but_last
    assert expected is not None and expected["aliases"][0] == champion
    for moment in range(1, last + 1):
        assert ends(copied, command, killed_at=moment) == expected, f"killed at moment {moment}"
    assert ends(copied, command, killed_at=5) is None


def test_a_promotion(copied: Callable[[], tuple[Settings, Mlflow]]) -> None:
    check_every_kill(copied, promote.promote, SECOND)


def test_a_rollback(copied: Callable[[], tuple[Settings, Mlflow]]) -> None:
    def promoted() -> tuple[Settings, Mlflow]:
        settings, local = copied()
        promote.promote(settings, now_s=50)
        return settings, local

    check_every_kill(promoted, promote.rollback, FIRST, but_last=True)
