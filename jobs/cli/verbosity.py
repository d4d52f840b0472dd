"""The options `--quiet` and `--verbose`, which every command has."""

from __future__ import annotations

import logging
from typing import Annotated, Any

import typer

from jobs.cli import console

ROOMS = ("jobs", "models", "prefetch", "replay", "features")


class _ToTerminal(logging.Handler):
    """What the rooms log, as lines on stderr."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print one line."""
        console.log(self.format(record))


def add_options(command: Any) -> None:
    """Give `command`, or every command of a group, the options."""
    for one in getattr(command, "commands", {}).values() or [command]:
        one.params.extend(_options())


def _hush(*, quiet: bool) -> None:
    console.is_quiet = quiet


def _explain(*, verbose: bool) -> None:
    handler = _ToTerminal()
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s: %(message)s", "%H:%M:%S"))
    for room in ROOMS:
        logger = logging.getLogger(room)
        logger.setLevel(logging.INFO if verbose else logging.NOTSET)
        logger.handlers = [handler] if verbose else []


def _options() -> list[Any]:
    app = typer.Typer()
    app.command()(_both)
    return [one for one in typer.main.get_command(app).params if one.name in ("quiet", "verbose")]


def _both(
    quiet: Annotated[
        bool,
        typer.Option("--quiet", help="show neither progress nor notes", callback=_hush, expose_value=False),
    ] = False,
    verbose: Annotated[
        bool,
        typer.Option("--verbose", help="say what is read and written", callback=_explain, expose_value=False),
    ] = False,
) -> None:
    """Carry the options; typer makes them of a signature only."""
