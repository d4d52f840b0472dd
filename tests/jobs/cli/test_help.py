"""The help of every command: whole, by `-h` too; the version; and what a shell completes."""

from __future__ import annotations

import importlib.metadata
import shlex
import subprocess
import sys

import pytest
import typer
from command_line import COMMANDS
from rich.text import Text
from typer.testing import CliRunner

from jobs.cli.layout import EXAMPLES
from jobs.cli.main import app

WORDS = "import sys; sys.argv = ['cachecast', *sys.argv[1:]]; from jobs.cli.main import main; main()"


def screen_of(monkeypatch: pytest.MonkeyPatch, *words: str) -> str:
    """What is printed in a terminal wide enough for one line per option."""
    monkeypatch.setattr("typer.rich_utils.MAX_WIDTH", 1000)
    answer = CliRunner().invoke(app, words)
    assert answer.exit_code == 0
    return " ".join(answer.output.split())


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_help_texts_are_whole_with_their_brackets_and_words_at_80_characters_too(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = screen_of(monkeypatch, *command.split(), "-h")
    assert screen == screen_of(monkeypatch, *command.split(), "--help")
    for option in COMMANDS[command].params:
        plain = Text.from_markup(option.help).plain
        assert plain.count("[") == option.help.count("["), option.name
        assert " ".join(plain.split()) in screen, option.name
    monkeypatch.undo()
    narrow = CliRunner().invoke(app, [*command.split(), "-h"], env={"COLUMNS": "80"}).output.split()
    helps = [Text.from_markup(option.help).plain for option in COMMANDS[command].params]
    assert {word for text in helps for word in text.split()} <= set(narrow)


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_the_help_ends_with_an_example_that_the_command_takes(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    example = EXAMPLES[command]
    assert screen_of(monkeypatch, *command.split(), "-h").endswith(f"Example: cachecast {command} {example}")
    parser = COMMANDS[command].make_parser(typer.Context(COMMANDS[command]))
    values, others, _ = parser.parse_args(shlex.split(example))
    given = {name for name, value in values.items() if value not in (None, ())}
    assert not others
    assert {parameter.name for parameter in COMMANDS[command].params if parameter.required} <= given


def test_the_version_is_the_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    assert screen_of(monkeypatch, "--version") == f"cachecast {importlib.metadata.version('cachecast')}"


@pytest.mark.parametrize(
    ("typed", "completed"), [("cachecast pus", {"push"}), ("cachecast rucio sync --d", {"--dry-run"})]
)
def test_a_shell_completes_commands_and_options(typed: str, completed: set[str]) -> None:
    env = {"_CACHECAST_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(typed.count(" "))}
    answer = subprocess.run(
        [sys.executable, "-c", WORDS], env=env, capture_output=True, text=True, timeout=60, check=True
    )
    assert set(answer.stdout.split()) == completed
