"""The summary that the demo shows at its end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from features.common.units import format_bytes
from features.schema import OUTCOMES, PLANS
from jobs.ground import text
from jobs.ground.text import Row, as_row, chosen, percent
from jobs.local_site.demo.pair import Pair, Side
from jobs.local_site.demo.serve import UNPROVEN
from jobs.local_site.demo.side import Seen
from jobs.local_site.demo.site import Demo, Screen
from jobs.local_site.demo.xcache import NAME
from jobs.pages.verdicts import savings
from replay.comparison import PLAN

_PLAN = ("action", "rank", "name", "reason")
_OUTCOME = ("did", "action", "n_hits", "bytes_saved", "bytes_spent", "bytes_wasted")
_NAME_CHARS = 18
_PLAN_ROWS, _OUTCOME_ROWS = 2, 8


def models(demo: Demo, report: Sequence[Any]) -> None:
    """Show the metrics of the models on days that none of them was trained on."""
    demo.screen.table([chosen(as_row(row), text.MODEL_COLUMNS) for row in report])


def show(demo: Demo, replays: Sequence[Row], answers_by_step: Mapping[str, Any], page: Path) -> None:
    """Show the tables, the answers, and the places of page and runs."""
    screen = demo.screen
    screen.table([chosen(row, text.REPLAY_COLUMNS) for row in replays], "Replay of the held-out week")
    plan = demo.tables.read_arrow(PLANS, as_of=demo.as_of, owner=NAME).to_pylist()
    first = [row for row in plan if row["rank"] <= _PLAN_ROWS]
    screen.table([_shortened(row, _PLAN) for row in first], "The plan: the first of each list")
    for name, answer in answers_by_step.items():
        facts = ", ".join(f"{key.replace('_', ' ')} {text.text(key, value)}" for key, value in _facts(answer))
        screen.line(f"{name}: {facts}")
    earned = demo.tables.read_arrow(OUTCOMES, as_of=demo.as_of, owner=NAME)
    best = earned.sort_by([("bytes_saved", "descending")]).slice(0, _OUTCOME_ROWS).to_pylist()
    screen.table([_shortened(row, _OUTCOME) for row in best], "What each pushed file earned")
    screen.line(
        f"The best {len(best)} of {earned.num_rows} pushed files; the page and the outcomes table have all."
    )
    screen.table([{"step": name, "seconds": s} for name, s in demo.seconds.items()], "Time")
    screen.line(f"The plan was {UNPROVEN}.")
    for line in savings(replays, "capacity_bytes", (PLAN,)):
        screen.line(line)
    screen.line(f"Page:  {page}")
    uri = demo.settings.mlflow.uri
    screen.line(f"Runs:  .venv/bin/mlflow ui --backend-store-uri {uri}   then http://127.0.0.1:5000")


def side_by_side(screen: Screen, pair: Pair) -> None:
    """Show what two caches reported of the same reads, and which of them fetched less."""
    title = f"Two XCaches of {format_bytes(pair.capacity_bytes)} side by side, with the same reads"
    screen.table(side_by_side_rows(pair), title)
    for line in side_by_side_answers(pair):
        screen.line(line)


def side_by_side_rows(pair: Pair) -> list[Row]:
    """A row per cache: what it reported, and what its replay says."""
    return [_side(pair.plain), _side(pair.steward)]


def side_by_side_answers(pair: Pair) -> Iterator[str]:
    """Sentences: which of two caches fetched less, whether replay agrees, and what the plain one is."""
    plain, steward = pair.plain, pair.steward
    replayed = f"In replay it {_saving(plain.replayed_wan_bytes, steward.replayed_wan_bytes)}."
    if plain.seen is None or steward.seen is None:
        yield f"No real caches, only the replay of the {steward.evicts_by} order: {pair.missing}. {replayed}"
    else:
        live = f"{_saving(plain.seen.wan_bytes, steward.seen.wan_bytes)} of WAN traffic against plain"
        yield (
            f"Side by side in two real caches, the {steward.evicts_by} order {live}, by their own records. "
            f"{replayed}"
        )
        apart = f"{_points(plain, plain.seen)} points (plain) and {_points(steward, steward.seen)} (steward)"
        yield f"Byte hits of the caches and of their replay differ by {apart}."
    purge = percent(pair.purge_byte_hit_ratio, 1)
    yield (
        f"Plain is {plain.evicts_by}, by a steward too: XCache's own purge is LRU, but comes at most once a "
        f"minute. Replayed as if it came at each look of a steward, its byte hits are {purge}."
    )


def _points(side: Side, seen: Seen) -> str:
    return f"{100 * abs(seen.byte_hit_ratio - side.replayed_byte_hit_ratio):.1f}"


def _side(side: Side) -> Row:
    seen = side.seen
    return {
        "cache": side.cache,
        "evicts_by": side.evicts_by,
        "reads": None if seen is None else seen.reads,
        "byte_hit_ratio": None if seen is None else seen.byte_hit_ratio,
        "wan_bytes": None if seen is None else seen.wan_bytes,
        "replayed_byte_hit_ratio": side.replayed_byte_hit_ratio,
        "replayed_wan_bytes": side.replayed_wan_bytes,
    }


def _saving(plain_bytes: int, steward_bytes: int) -> str:
    saved = plain_bytes - steward_bytes
    share = percent(abs(saved) / max(1, plain_bytes), 1)
    return f"{'saves' if saved >= 0 else 'costs'} {format_bytes(abs(saved))} ({share})"


def _facts(answer: Any) -> list[tuple[str, object]]:
    return [(key, value) for key, value in as_row(answer).items() if key not in ("cache", "as_of")]


def _shortened(row: Row, keys: Sequence[str]) -> Row:
    return {key: _tail(row[key]) if key in ("name", "did") else row[key] for key in keys}


def _tail(name: str) -> str:
    """The end of a long name, which distinguishes files; the tables and the page have all of it."""
    return name if len(name) <= _NAME_CHARS else f"…{name[-_NAME_CHARS:]}"
