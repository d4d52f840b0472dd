"""The command line as Typer has it, for what calls it: DAGs, systemd units, pages."""

from collections.abc import Iterator, Sequence
from typing import Any

from jobs.cli import main


def _commands() -> Iterator[tuple[str, Any]]:
    for name in main.COMMANDS:
        command = main.load(name)
        if hasattr(command, "commands"):
            yield from ((f"{name} {sub}", of_group) for sub, of_group in command.commands.items())
        else:
            yield name, command


COMMANDS: dict[str, Any] = dict(_commands())
"""Every command by what is typed, those of groups as `rucio sync`."""


def options(command: str) -> set[str]:
    """The options that a command has."""
    return {option for parameter in COMMANDS[command].params for option in parameter.opts}


def required(command: str) -> set[str]:
    """Those without which it does not run."""
    return {max(p.opts, key=len) for p in COMMANDS[command].params if p.required}


def called(words: Sequence[str]) -> tuple[str, set[str]]:
    """The command that `words` call, and the options given to it."""
    assert words[0] == "cachecast"
    n = next(i for i, word in enumerate([*words[1:], "--"], 1) if word.startswith("--"))
    return " ".join(words[1:n]), {word for word in words[n:] if word.startswith("--")}
