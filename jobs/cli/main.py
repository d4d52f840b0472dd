"""The `cachecast` command: one command per step, each a thin face over a job.

Options mean the same everywhere: `--conf` a site's settings, `--tables` the tables' root, `--json` the answer
as JSON on stdout, `--day` and `--as-of` the time in question (jobs never read the clock), `--quiet` neither
progress nor notes, `--verbose` what is read and written. Errors that a person can correct are one line and
exit code 1. `GROUPS` lists the commands; each imports its job when it runs, so that help loads none.
"""

import importlib.metadata
import inspect
import logging
import os
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NoReturn

import typer
from rich.markup import escape
from typer.core import TyperCommand, TyperGroup

from features.common.errors import CachecastError, NotDueError
from jobs.cli import (
    caches,
    console,
    efficiency,
    ending,
    loop,
    operation,
    options,
    plans,
    replays,
    site,
    studies,
)
from jobs.cli.ending import remedy
from jobs.cli.layout import EXAMPLES

_log = logging.getLogger(__name__)
NOT_DUE = 99  # exit code of a command that had nothing to do; Airflow then skips the task and what follows it
BEGIN = "To begin"
LOOP = "The loop"
REPLAY = "Replay and study"
CACHES = "Caches and pushes"
PLACEMENT = "Placement and Rucio"
OPERATION = "Operation"
GROUPS: Mapping[str, Sequence[Any]] = {
    BEGIN: (site.init, operation.doctor, studies.worth_it, site.demo),
    LOOP: (
        *(loop.pull, loop.arrivals, loop.features, loop.train, loop.predict, replays.evaluate, loop.promote),
        *(plans.plan, plans.push, plans.due, plans.outcomes, loop.cycle),
    ),
    REPLAY: (
        *(replays.replay, replays.curve, studies.report),
        *(studies.storage, studies.workload, studies.forecast),
        *(efficiency.efficiency, efficiency.compare_caches),
    ),
    CACHES: (
        *(caches.scan, caches.collect, caches.steward, caches.caches, caches.prefill, caches.queue),
        *(caches.never_cache, efficiency.site_test),
    ),
    PLACEMENT: (operation.place, operation.serve, operation.rucio),
    OPERATION: (
        *(operation.status, operation.unlock, operation.package, operation.files),
        *(site.up, site.down),
    ),
}
"""The commands in the order of the help: functions, and one group of commands."""


def _named(command: Any) -> tuple[str, str]:
    if isinstance(command, typer.Typer):
        return str(command.info.name), str(command.info.help)
    return command.__name__.replace("_", "-"), str(inspect.getdoc(command)).partition("\n")[0]


COMMANDS = {_named(command)[0]: command for commands in GROUPS.values() for command in commands}
"""The function or the group of commands behind each name."""


class CommandTable(TyperGroup):
    """The commands as the help lists them; the one that is named is made when it runs, which takes time."""

    def __init__(self, **settings: Any) -> None:
        listed = [
            TyperCommand(name, help=line, rich_help_panel=group)
            for group, commands in GROUPS.items()
            for name, line in map(_named, commands)
        ]
        super().__init__(**settings | {"commands": listed})

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """The command named first in `args`, with its options."""
        name, listed, rest = super().resolve_command(ctx, args)
        return name, listed if name is None else load(name), rest


def load(name: str) -> Any:
    """The command called `name`, with its options."""
    app = COMMANDS[name]
    if not isinstance(app, typer.Typer):
        app = typer.Typer(add_completion=False)
        app.command(name)(options.unfolded(COMMANDS[name]))
    command = typer.main.get_command(app)
    command.name = name
    _complete_help(command, name)
    return command


def _complete_help(command: Any, name: str) -> None:
    """Let the help of `name` show brackets as they are, wrap only where the screen ends, and show an example.

    Rich would take `[tables]` for markup.
    """
    if name in EXAMPLES:
        command.epilog = escape(f"Example: cachecast {name} {EXAMPLES[name]}")
    for part in (command, *command.params):
        if getattr(part, "help", None):
            paragraphs = inspect.cleandoc(part.help).split("\n\n")
            part.help = escape("\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs))
    for subname, subcommand in getattr(command, "commands", {}).items():
        _complete_help(subcommand, f"{name} {subname}")


app = typer.Typer(
    cls=CommandTable,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(is_asked: bool) -> None:
    if is_asked:
        console.line(f"cachecast {importlib.metadata.version('cachecast')}")
        raise typer.Exit


@app.callback()
def cachecast(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    """Forecast which data files will be read again, and place them in XCache servers."""


def main() -> None:
    """Run the command line; the only place where errors become exit codes.

    What a command writes is read by its account and group at most, and written by its account alone.
    """
    ending.end_quietly()
    os.umask(os.umask(0o077) | 0o027)
    try:
        with ending.in_one_line(console.log):
            app()
    except SystemExit as end:
        if end.code == ending.CODE:
            ending.leave()
        raise
    except NotDueError as reason:
        console.log(f"not due: {reason}")
        raise SystemExit(NOT_DUE) from None
    except CachecastError as error:
        _fail(str(error))
    except Exception as error:
        if (why := remedy(error)) is None:
            raise
        _log.info("the error in full", exc_info=error)
        _fail(why)


def _fail(why: str) -> NoReturn:
    console.err.print(f"[bold red]error[/bold red]: {escape(why)}", highlight=False, soft_wrap=True)
    raise SystemExit(1) from None
