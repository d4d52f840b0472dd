"""Progress without a terminal: a line per step, a minute apart within one; none where it is not wanted."""

from __future__ import annotations

import io
import logging
import time

import pytest
from rich.console import Console
from typer.testing import CliRunner

from features.common.progress import unwatched
from jobs.cli import console
from jobs.cli.console import Lines
from jobs.cli.main import app
from jobs.operator.operate import due as cache_list


def told(steps: list[tuple[int, int, str]], *, each_s: int) -> list[str]:
    """The lines of steps that take `each_s` seconds each, looked for every second."""
    lines, found, now_s = Lines("up", now_s=0), [], 0
    for done, total, name in steps:
        lines.advance(done, total, name, now_s=now_s)
        for _ in range(each_s):
            now_s += 1
            if line := lines.due(now_s):
                found.append(line)
    return found


def test_a_few_steps_have_a_line_each() -> None:
    assert told([(0, 2, "databases"), (1, 2, "mlflow")], each_s=10) == [
        "up: databases, 0 of 2 done (2s)",
        "up: mlflow, 1 of 2 done (12s)",
    ]


def test_a_long_step_tells_every_minute_that_it_goes_on() -> None:
    assert told([(0, 1, "reading")], each_s=190) == [
        "up: reading, 0 of 1 done (2s)",
        "up: reading, 0 of 1 done (1m)",
        "up: reading, 0 of 1 done (2m)",
        "up: reading, 0 of 1 done (3m)",
    ]


def test_many_steps_have_a_line_a_minute() -> None:
    lines = told([(n, 100, f"file {n}") for n in range(100)], each_s=3)
    assert len(lines) == 5
    assert lines[2] == "up: file 59, 59 of 100 done (3m, about 2m left)"


def test_steps_that_are_few_or_unlike_each_other_have_no_estimate() -> None:
    """As `worth-it`, which learns in one of its five steps; as a long step among quick ones."""
    few = told([(0, 5, "reading"), (1, 5, "learning")], each_s=120)
    many = [*told([(0, 40, "first")], each_s=120)]
    assert [line for line in (*few, *many) if "left" in line] == []
    lines = Lines("up", now_s=0)
    for n in range(11):
        lines.advance(n, 40, "quick", now_s=6 * n)
    assert lines.due(62) == "up: quick, 10 of 40 done (1m, about 2m left)"
    assert lines.due(122) == "up: quick, 10 of 40 done (2m)"


def test_quick_steps_have_no_line() -> None:
    assert told([(n, 5, f"step {n}") for n in range(5)], each_s=1) == []


def test_work_without_steps_tells_its_time() -> None:
    lines = Lines("pulling", now_s=0)
    assert lines.due(59) is None
    assert lines.due(60) == "pulling (1m)"


def test_without_a_terminal_lines_are_written_while_the_work_goes_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(console, "BRIEF_S", 0.0)
    monkeypatch.setattr(console, "_LOOK_S", 0.01)
    with console.progress("up") as advance:
        advance(0, 1, "mlflow")
        limit_s = time.monotonic() + 5
        while not (shown := capsys.readouterr().err) and time.monotonic() < limit_s:
            time.sleep(0.01)
    assert shown == "up: mlflow, 0 of 1 done (0s)\n"


def test_in_a_terminal_there_is_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.StringIO()
    monkeypatch.setattr(console, "err", Console(file=file, force_terminal=True, width=80))
    with console.progress("up") as advance:
        advance(1, 2, "mlflow")
    assert "up: mlflow" in file.getvalue()


@pytest.fixture
def listing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command whose job shows progress, notes a remark and logs what it reads."""

    def listed(*_args: object) -> list[cache_list.CacheLine]:
        with console.progress("listing") as advance:
            console.log("silent" if advance is unwatched else "watched")
        console.notes(["a remark"])
        logging.getLogger("jobs.operator.operate.due").info("read a table")
        return []

    monkeypatch.setattr(cache_list, "listed", listed)


@pytest.mark.parametrize(
    ("words", "watched", "noted", "explained"),
    [([], True, True, False), (["--quiet"], False, False, False), (["--verbose"], True, True, True)],
)
@pytest.mark.usefixtures("listing")
def test_quiet_silences_and_verbose_explains(
    words: list[str], watched: bool, noted: bool, explained: bool
) -> None:
    shown = CliRunner().invoke(app, ["caches", *words]).stderr
    assert ("watched" in shown, "silent" in shown) == (watched, not watched)
    assert ("note: a remark" in shown) == noted
    assert ("jobs.operator.operate.due: read a table" in shown) == explained
    assert ("settings from" in shown) == explained


def test_a_command_after_a_quiet_one_is_not_quiet(listing: None) -> None:
    CliRunner().invoke(app, ["caches", "--quiet"])
    assert "note: a remark" in CliRunner().invoke(app, ["caches"]).stderr
