"""`promote` and its rollback, killed around each write they decide by and repeated, end as if not killed."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from planted_region import DAY, FIRST, MLFLOW_WARNINGS, SECOND, Mlflow, evaluate, registry, settings_of

from jobs.ground.settings.tree import Settings
from jobs.ground.store.tables import Tables
from jobs.loop.evaluate import promote
from jobs.loop.evaluate.decisions import decisions
from models.serving.mlflow_session import mlflow

pytestmark = MLFLOW_WARNINGS
WRITES = {
    mlflow.tracking.MlflowClient: ("set_registered_model_alias", "delete_registered_model_alias"),
    Tables: ("replace_rows",),
}


class Killed(BaseException):
    """Nothing catches it, as nothing does a kill."""


def state(settings: Settings, local: Mlflow) -> dict[str, Any]:
    client, at = mlflow.tracking.MlflowClient(local.uri), registry(local)
    tags = {one: client.get_model_version(*one.split("/")).tags for one in (FIRST, SECOND)}
    last = decisions(Tables(settings.tables.root), region="emea")[-1]
    return {
        "aliases": [at.version_at("emea", alias) for alias in ("champion", "steward")],
        "may": {one: [tags[one].get(tag) for tag in ("may_push", "may_evict")] for one in tags},
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
def copied(local: Mlflow, tmp_path: Path) -> Iterator[Callable[[], tuple[Settings, Mlflow]]]:
    """Makes copies of a site whose first version serves, and whose second won the newest evaluation."""
    store, n_copies = Tables(str(tmp_path / "tables")), 0
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

    yield copy


def check_every_kill(
    copied: Callable[[], tuple[Settings, Mlflow]],
    command: Callable[..., Any],
    champion: str,
    *,
    but_last: bool = False,
) -> None:
    """`but_last`: a command that was killed after its last write has done all, and does more if repeated."""
    wanted = ends(copied, command, killed_at=None)
    last = 4 - but_last
    assert wanted is not None and wanted["aliases"][0] == champion
    for moment in range(1, last + 1):
        assert ends(copied, command, killed_at=moment) == wanted, f"killed at moment {moment}"
    assert ends(copied, command, killed_at=5) is None


def test_a_promotion(copied: Callable[[], tuple[Settings, Mlflow]]) -> None:
    check_every_kill(copied, promote.promote, SECOND)


def test_a_rollback(copied: Callable[[], tuple[Settings, Mlflow]]) -> None:
    def promoted() -> tuple[Settings, Mlflow]:
        settings, local = copied()
        promote.promote(settings, now_s=50)
        return settings, local

    check_every_kill(promoted, promote.rollback, FIRST, but_last=True)
