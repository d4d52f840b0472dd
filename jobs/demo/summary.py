"""What the demo says at its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.markup import escape

from features.schema import OUTCOMES, PLANS
from jobs.cli import console
from jobs.demo.caches import NAME
from jobs.demo.walk import Walk
from jobs.report.build import answers

_PLAN = ("action", "rank", "name", "reason")
_OUTCOME = ("did", "action", "n_hits", "bytes_saved", "bytes_spent", "bytes_wasted")
_NAME_CHARS = 18
_PLAN_ROWS, _OUTCOME_ROWS = 2, 8


def models(walk: Walk, report: Sequence[Any]) -> None:
    """Print how the models did on days that none of them had seen."""
    if not walk.quiet:
        _table([console.chosen(console.as_row(row), console.MODEL_COLUMNS) for row in report], "")


def show(walk: Walk, replays: Sequence[console.Row], told: Mapping[str, Any], page: Path) -> None:
    """Print the tables, the answers, and where to look further."""
    _table([console.chosen(row, console.REPLAY_COLUMNS) for row in replays], "Replay of the held-out week")
    plan = walk.tables.read_arrow(PLANS, as_of=walk.as_of, owner=NAME).to_pylist()
    first = [row for row in plan if row["rank"] <= _PLAN_ROWS]
    _table([_chosen(row, _PLAN) for row in first], "The plan: the first of each list")
    for name, answer in told.items():
        facts = ", ".join(
            f"{key.replace('_', ' ')} {console.text(key, value)}" for key, value in _facts(answer)
        )
        walk.say(f"[bold]{name}[/bold]: {escape(facts)}")
    earned = walk.tables.read_arrow(OUTCOMES, as_of=walk.as_of, owner=NAME)
    best = earned.sort_by([("bytes_saved", "descending")]).slice(0, _OUTCOME_ROWS).to_pylist()
    _table([_chosen(row, _OUTCOME) for row in best], "What each pushed file earned")
    walk.say(
        f"The best {len(best)} of {earned.num_rows} pushed files; the page and the outcomes table have all."
    )
    _table([{"step": name, "seconds": s} for name, s in walk.seconds.items()], "Time")
    for line in answers(replays):
        walk.say(f"[bold]{escape(line)}[/bold]")
    walk.say(f"Page:  {escape(str(page))}")
    uri = walk.settings.mlflow.uri
    walk.say(f"Runs:  .venv/bin/mlflow ui --backend-store-uri {escape(uri)}   then http://127.0.0.1:5000")


def _facts(answer: Any) -> list[tuple[str, object]]:
    return [(key, value) for key, value in console.as_row(answer).items() if key not in ("cache", "as_of")]


def _chosen(row: console.Row, keys: Sequence[str]) -> console.Row:
    return {key: _tail(row[key]) if key in ("name", "did") else row[key] for key in keys}


def _tail(name: str) -> str:
    """The end of a long name, which tells files apart; the tables and the page have all of it."""
    return name if len(name) <= _NAME_CHARS else f"…{name[-_NAME_CHARS:]}"


def _table(rows: Sequence[console.Row], title: str) -> None:
    if rows:
        console.out.print(console.table(rows, title=title))
