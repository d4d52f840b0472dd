"""Every command's screen at 80 and 200 characters, with large answers: no word, number or time is broken."""

from __future__ import annotations

import dataclasses
import importlib
import io
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from features.common.errors import TargetUnavailable, UnprovenError
from features.results import REPLAYS, WORTH
from features.schema import Table
from jobs.cli import console, layout
from jobs.cli.main import COMMANDS, app
from jobs.ground import text
from jobs.local_site.demo import summary

AT, DAY = "2026-03-01T04:00:00Z", "2026-03-01"
SENTENCE = "the cache's records of that day end two hours before midnight: pull the rest, and judge it again"
WORDS = {
    ("at", "as_of", "push_at", "plan_at", "inventory_at", "decided_at", "predictions_at", "oldest"): AT,
    ("day", "first_day", "last_day", "evaluated_as_of"): DAY,
    ("model_version", "version", "champion", "steward", "scored_by"): "cachecast-emea-ministo/12",
    (
        "out",
        "file",
        "report",
        "traces",
        "catalogue",
        "configured",
        "log",
    ): "/srv/cachecast/emea/tables/x",
    ("detail", "text", "because", "note", "reason", "withheld", "takes_effect", "unproven"): SENTENCE,
    ("policy", "against", "model"): "lru+s3fifo_counts",
    ("within", "cycle"): "2d12h",
}


def value(name: str, kind: Any) -> Any:
    """A large value of a field."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return value(name, inner[0])
    if dataclasses.is_dataclass(kind):
        return filled(kind)
    if origin in (list, tuple):
        return origin(value(name, inner[0]) for _ in range(3))
    if origin in (dict, Mapping):
        return {key: value(name, inner[1]) for key in ("prefetch", "pin", "evict")}
    if kind is str:
        return next((found for names, found in WORDS.items() if name in names), "prefetched")
    if kind is bool:
        return True
    is_bytes = "bytes" in name.split("_")
    if name in ("horizon", "cuts"):
        return 104
    if kind is int:
        return 45_678_901_234_567 if is_bytes else 1_234_567
    return -4.5e12 if is_bytes else 0.54321


def filled(kind: Any) -> Any:
    """An answer with a large value in every field."""
    hints = typing.get_type_hints(kind)
    return kind(**{field.name: value(field.name, hints[field.name]) for field in dataclasses.fields(kind)})


def rows(table: Table) -> list[dict[str, object]]:
    """Rows of a table of figures."""
    kinds = {"string": str, "long": int, "double": float}
    return [{column.name: value(column.name, kinds[column.kind]) for column in table.columns}] * 3


STEWARD_BYTES = ("wan_bytes", "lru_wan_bytes", "saved_wan_bytes")
OUTCOME = {name: value(name, int) for name in text.OUTCOME_COLUMNS}
GAP = {f"byte_gap_closed{end}": 0.54321 for end in ("", "_lower", "_upper")}
NAMED = {"policy": "lru+challenger", "cycle": "15m", "trace": "mwt2"}
EVALUATED = {name: value(name, int) for name in (*text.EVALUATION_COLUMNS, "wan_bytes")} | GAP | NAMED
REST: Mapping[str, Callable[[Any], Any]] = {
    "replay": lambda kind: kind(rows(REPLAYS), (SENTENCE,)),
    "fleet": lambda kind: kind([{name: value(name, int) for name in text.FLEET_COLUMNS}] * 3, (SENTENCE,)),
    "history": lambda kind: kind(
        [{"as_of": AT, "model_version": "cachecast-emea/12", "n_hits": 1, **OUTCOME}] * 3,
        [{"model_version": "cachecast-emea/12", "n_hits": 1, **OUTCOME}] * 3,
        [{"day": DAY, **row} for row in rows(WORTH)],
        [{"day": DAY, "orders": "learned, s3fifo", **{name: value(name, int) for name in STEWARD_BYTES}}] * 3,
    ),
    "evaluation": lambda kind: kind("cachecast-emea/12", DAY, DAY, (EVALUATED,) * 3, (SENTENCE,)),
}
"""Answers whose rows are no dataclasses."""

NOW = ["--as-of", AT]
CACHE = ["--cache", "xc1"]
DAYS = ["--from", DAY, "--to", DAY]
Case = tuple[list[str], str, str]
CASES: list[Case] = [
    (["pull", "--source", "rucio_traces", "--input", "x", "--day", DAY], "jobs.loop.ingest.pull.run", ""),
    (["arrivals", *NOW], "jobs.loop.ingest.arrivals.run", ""),
    (["scan", *CACHE], "jobs.loop.ingest.scan.run", ""),
    (["features", *NOW], "jobs.loop.train.features.run", ""),
    (["train", *NOW], "jobs.loop.train.training.run", ""),
    (["predict", *NOW], "jobs.loop.train.predict.run", ""),
    (["cycle", *NOW], "jobs.loop.cycle.run", ""),
    (["evaluate", "--from", DAY], "jobs.loop.evaluate.evaluate.run", "evaluation"),
    (["promote"], "jobs.loop.evaluate.promote.promote", ""),
    (["promote", "--why"], "jobs.loop.evaluate.decisions.last_decision", ""),
    (["plan", *CACHE, *NOW], "jobs.loop.plan.plan.run", ""),
    (["plan", *CACHE, *NOW, "--explain", "f"], "jobs.loop.plan.plan.explained", ""),
    (["push", "run", *CACHE, *NOW], "jobs.loop.push.push.run", ""),
    (["push", "status", *CACHE], "jobs.loop.push.push.status", ""),
    (["push", "cancel", *CACHE], "jobs.loop.push.push.cancel", ""),
    (["push", "run", *CACHE, *NOW, "--dry-run"], "jobs.loop.push.push.dry_run", ""),
    (["outcomes", *CACHE], "jobs.loop.outcomes.history.history", "history"),
    (["outcomes", *CACHE, *NOW], "jobs.loop.outcomes.outcomes.of_plan", ""),
    (["outcomes", *CACHE, "--day", DAY], "jobs.loop.outcomes.outcomes.of_day", ""),
    (["replay", *DAYS], "jobs.studies.simulate.site_replay.run", "replay"),
    (["replay", "--trace", "x", "--policy", "lru"], "jobs.studies.simulate.replay_trace.run", "replay"),
    (["replay", "--caches", __file__], "jobs.studies.simulate.fleet.run", "fleet"),
    (["curve", *DAYS], "jobs.studies.simulate.curve.run", ""),
    (["worth-it", "--trace", "x", "--capacity", "9TB"], "jobs.studies.simulate.worth.run", ""),
    (["storage", "--trace", "x", "--capacity", "9TB"], "jobs.studies.simulate.storage.run", ""),
    (["efficiency", *DAYS], "jobs.studies.efficiency.efficiency.run", ""),
    (["cached-fraction"], "jobs.studies.simulate.cached_fraction.run", ""),
    (["report"], "jobs.operator.site_report.build.run", ""),
    (["report", "--trace", "x"], "jobs.studies.simulate.study.run", ""),
    (["workload", "--out", "x", "--report"], "jobs.studies.simulate.workload.run", ""),
    (["forecast", "--series", __file__, "--as-of", "9", "--horizons", "1", "--out", "x"], "F.run", ""),
    (
        ["forecast", "--series", __file__, "--as-of", "9", "--horizons", "1", "--out", "x", "--cuts", "5"],
        "F.judge",
        "",
    ),
    (["caches"], "jobs.operator.operate.due.listed", ""),
    (["prefill", *CACHE], "jobs.loop.push.prefill.run", ""),
    (["site-test", *CACHE], "jobs.studies.site_test.run.run", ""),
    (["queue", "--name", "htcondor", "--input", "x"], "jobs.loop.ingest.queue.run", ""),
    (["never-cache", *CACHE, "--out", "x"], "jobs.loop.plan.never_cache.run", ""),
    (["place", *NOW], "jobs.operator.placement.refresh.run", ""),
    (["rucio", "setup-rse", *CACHE], "jobs.loop.push.rucio_sync.set_up", ""),
    (["rucio", "check"], "jobs.loop.push.rucio_sync.check", ""),
    (["rucio", "sync", *CACHE], "jobs.loop.push.rucio_sync.sync", ""),
    (["status"], "jobs.operator.operate.status.run", ""),
    (["doctor"], "jobs.operator.operate.doctor.run", ""),
    (["up"], "jobs.local_site.local.services.up", ""),
    (["down"], "jobs.local_site.local.services.down", ""),
]
COMPARED = {"curve", "evaluate", "replay", "promote", "train", "doctor"}
"""Commands whose rows are read against each other: they need columns."""
NO_SCREEN = {
    *("serve", "collect", "steward", "package", "init", "due", "unlock", "refit", "halves"),
    "compare-caches",
}
"""Services, commands whose answer is a fact or two, and one that answers with commands to copy."""


@pytest.fixture(params=[80, 200])
def screen(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Screen:
    return Screen(request.param, monkeypatch)


class Screen:
    """A terminal of some width, and every table and answer that was to be shown on it."""

    def __init__(self, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.width, self.asked = width, list[text.Row]()
        self._file = io.StringIO()
        terminal = Console(file=self._file, width=width, force_terminal=True, color_system=None)
        monkeypatch.setattr(console, "out", terminal)
        table, facts = layout.table, layout.facts

        def spied_table(rows: Any, **more: Any) -> Any:
            self.asked.extend(rows)
            return table(rows, **more)

        def spied_facts(row: Any, **more: Any) -> Any:
            self.asked.append(row)
            return facts(row, **more)

        monkeypatch.setattr(layout, "table", spied_table)
        monkeypatch.setattr(layout, "facts", spied_facts)

    @property
    def lines(self) -> list[str]:
        return self._file.getvalue().splitlines()

    def check(self) -> None:
        """Every word of headers and cells is there, and every line of more than a word fits."""
        shown = {word for line in self.lines for word in line.split()}
        keys = {word.rstrip(":,") for word in shown}
        for row in self.asked:
            for key, cell in row.items():
                assert set(text.heading(key).split()) <= keys, key
                if dataclasses.is_dataclass(cell):
                    continue  # shown as facts of its own
                items = cell if isinstance(cell, list | tuple) else [cell]
                for item in items:
                    words = set(text.text(key, item).replace(",", " ").split())
                    assert words <= {word.rstrip(",") for word in shown}, (key, item)
        too_long = [line for line in self.lines if len(line) > self.width and len(line.split()) > 1]
        assert not too_long


def run(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a command whose job answers at once."""
    words, job, answer = case
    job = job.replace("F.", "jobs.loop.train.forecast.")
    module, _, name = job.rpartition(".")
    kind = typing.get_type_hints(getattr(importlib.import_module(module), name))["return"]
    given = REST[answer](kind) if answer else value("", kind)
    monkeypatch.setattr(job, lambda *_args, **_more: given)
    for check in ("train.ready.to_compute", "train.ready.to_train", "train.ready.to_predict"):
        monkeypatch.setattr(f"jobs.loop.{check}", lambda *_args, **_more: None)
    monkeypatch.setattr("jobs.loop.evaluate.accesses.to_evaluate", lambda *_args, **_more: None)
    monkeypatch.setattr("jobs.loop.push.push.is_over", lambda *_args, **_more: True)
    monkeypatch.setattr("jobs.loop.outcomes.history.annotate_models", lambda *_args, **_more: None)
    for written in ("replay", "fleet", "curve", "evaluation", "storage"):
        room = "loop.evaluate.answer" if written == "evaluation" else "studies.simulate.exports"
        monkeypatch.setattr(f"jobs.{room}.export_{written}", lambda *_args, **_more: None)
    done = CliRunner().invoke(app, words)
    assert isinstance(done.exception, SystemExit | UnprovenError | TargetUnavailable | None), done.exception


@pytest.mark.parametrize("case", CASES, ids=lambda case: " ".join(case[0]))
def test_every_screen_is_readable(case: Case, screen: Screen, monkeypatch: pytest.MonkeyPatch) -> None:
    run(case, monkeypatch)
    assert screen.asked
    screen.check()
    if case[0][0] in COMPARED or "--cuts" in case[0]:
        assert any(line.startswith("┃") for line in screen.lines)  # a grid, at 80 characters too


def test_every_command_has_a_screen_here() -> None:
    assert {words[0] for words, *_ in CASES} | NO_SCREEN | {"demo"} == set(COMMANDS)


def test_the_tables_of_the_demo_are_readable(screen: Screen) -> None:
    terminal = console
    outcome = {"did": "…" + "x" * 18, "action": "prefetch", "n_hits": 1_234_567}
    saved = dict.fromkeys(("bytes_saved", "bytes_spent", "bytes_wasted"), 45_678_901_234_567)
    terminal.table([{key: row[key] for key in text.REPLAY_COLUMNS} for row in rows(REPLAYS)], "Replay")
    plan = {"action": "prefetch", "rank": 2, "name": "…" + "x" * 18, "reason": SENTENCE}
    terminal.table([{key: plan[key] for key in summary._PLAN}], "The plan")
    earned = {**outcome, **saved}
    terminal.table([{key: earned[key] for key in summary._OUTCOME}], "What each pushed file earned")
    screen.check()
    assert all(line.startswith(("┏", "┃", "┡", "│", "└", "Replay", "The ", "What ")) for line in screen.lines)
