"""What the command line shows is what it was given, brackets and all."""

from __future__ import annotations

import dataclasses
import json

import pytest
from typer.testing import CliRunner

from jobs.cli import console
from jobs.cli.ending import remedy
from jobs.cli.main import app
from jobs.operator.operate.alarms import Status

AT = "2026-03-01T04:00:00Z"
NAME = "/store/[red]/[/bold]/f[1].root"


@pytest.mark.parametrize("answer", [{"name": NAME}, [{"name": NAME, "n": 1}]], ids=["facts", "table"])
def test_names_are_no_markup(capsys: pytest.CaptureFixture[str], answer: object) -> None:
    console.show(answer)
    assert NAME in capsys.readouterr().out


@dataclasses.dataclass(frozen=True)
class Answer:
    rows: int
    alarms: tuple[str, ...]


def test_an_alarm_is_said_once(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    answer = Answer(3, ("columns have drifted",))
    console.show_warning(answer)
    told = capsys.readouterr()
    assert "rows" in told.out and (told.out + told.err).count("drifted") == 1
    monkeypatch.setattr(console, "is_json", True)
    console.show_warning(answer)
    told = capsys.readouterr()
    assert json.loads(told.out) == {"rows": 3, "alarms": ["columns have drifted"]}
    assert "drifted" in told.err


def status(**values: object) -> Status:
    """A region without a cache, whose newest predictions are of m/2."""
    facts = {"champion": None, "decided_at": None, "candidate_serves": False, "scored_by": "m/2"} | values
    newest = {"predictions_at": AT, "predictions": 2411, "drifted": ()}
    return Status(at=AT, region="emea", caches=(), alarms=(), **facts, **newest)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (status(champion="m/1", decided_at=AT), f"champion: m/1 (decided {AT})"),
        (status(candidate_serves=True), "champion: none yet; the candidate m/2 serves until one is promoted"),
        (status(scored_by=None), "champion: none, caches run plain LRU"),
    ],
)
def test_the_status_says_which_model_serves(
    monkeypatch: pytest.MonkeyPatch, found: Status, told: str
) -> None:
    monkeypatch.setattr("jobs.operator.operate.status.run", lambda *_args, **_more: found)
    assert told in CliRunner().invoke(app, ["status"]).stdout


@pytest.mark.parametrize("answer", [{"name": "a\x1b[2J\x9bb"}, [{"name": "a\x1b[2J\x9bb", "n": 1}]])
def test_names_give_the_terminal_no_orders(capsys: pytest.CaptureFixture[str], answer: object) -> None:
    console.show(answer)
    console.log("a\x1b[2J\x9bb")
    console.warn("a\x1b[2J\x9bb")
    told = capsys.readouterr()
    assert "\x1b" not in told.out + told.err
    assert "\x9b" not in told.out + told.err
    assert "\\x1b[2J" in told.out


def test_memory_that_does_not_suffice_is_told_in_one_line() -> None:
    assert "no table is half written" in str(remedy(MemoryError()))
