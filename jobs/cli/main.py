"""The `cachecast` command: one command per step, each a thin face over a job.

Options mean the same everywhere: `--conf` a site's settings, `--tables` the tables' root, `--json` the answer
as JSON on stdout, `--day` and `--as-of` the time in question (jobs never read the clock), `--quiet` neither
progress nor notes, `--verbose` what is read and written. Errors that a person can correct are one line and
exit code 1. `COMMANDS` is the one place that knows the module of a command, which is imported when the
command runs.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import sys
from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple, NoReturn

import typer
from rich.markup import escape
from typer.core import TyperCommand, TyperGroup

from features.errors import CachecastError
from jobs.cli import console, interrupts, verbosity
from jobs.cli.failures import remedy
from jobs.operate.prometheus import measured

LOOP = "The loop"
REPLAY = "Replay and study"
CACHES = "Caches and pushes"
PLACEMENT = "Placement and Rucio"
OPERATION = "Operation"


class Command(NamedTuple):
    """A command: its group in the help, its module in `jobs.cli`, and the first line of its help."""

    group: str
    module: str
    help: str


COMMANDS: Mapping[str, Command] = {
    "pull": Command(LOOP, "ingest", "Read raw records into the accesses and files tables."),
    "features": Command(LOOP, "train", "Compute the features of the candidates."),
    "train": Command(
        LOOP,
        "train",
        "Train a model for every horizon, and record it in MLflow beside scores that are not learned.",
    ),
    "predict": Command(LOOP, "train", "Score the candidates with the models that serve the region."),
    "evaluate": Command(LOOP, "evaluate", "Replay the whole service over past days, against its rivals."),
    "promote": Command(LOOP, "promote", "Make the newest evaluated model the champion if its plans won."),
    "plan": Command(LOOP, "plan", "Decide what a cache should prefetch, pin and evict."),
    "push": Command(LOOP, "push", "Carry out a cache's plan, confirmed by the cache itself."),
    "outcomes": Command(LOOP, "outcomes", "Account what pushed files earned."),
    "cycle": Command(LOOP, "cycle", "Pull what is new, compute features, and predict, in one command."),
    "replay": Command(REPLAY, "replay", "Replay accesses under several policies and capacities."),
    "leaderboard": Command(REPLAY, "leaderboard", "Compare every policy on every trace at every capacity."),
    "curve": Command(REPLAY, "replay", "Show LRU's hit ratios at every capacity."),
    "report": Command(REPLAY, "report", "Write one HTML page: the newest results, or the study of a trace."),
    "workload": Command(REPLAY, "workload", "Generate the accesses and files catalogue of a region."),
    "forecast": Command(REPLAY, "forecast", "Forecast a plain popularity series."),
    "scan": Command(CACHES, "ingest", "Take an XCache's inventory and remembered reads on its host."),
    "collect": Command(CACHES, "collect", "Keep the g-streams that caches send by UDP."),
    "steward": Command(CACHES, "steward", "Keep a cache below its high watermark by evicting in our order."),
    "caches": Command(CACHES, "operate", "List the configured caches."),
    "prefill": Command(CACHES, "prefill", "Fetch what a task will read into a cache before it is submitted."),
    "queue": Command(CACHES, "prefill", "Take what queued jobs will read from a batch system."),
    "never-cache": Command(CACHES, "plan", "Write the rules to never cache as XRootD's blacklist."),
    "place": Command(PLACEMENT, "placement", "Place datasets, and store it for the placement service."),
    "serve": Command(PLACEMENT, "placement", "Answer Rucio, caches and batch systems about placement."),
    "rucio": Command(PLACEMENT, "rucio", "Report to Rucio what the caches hold, and keep their RSEs safe."),
    "init": Command(OPERATION, "init", "Write the settings of a new site."),
    "status": Command(OPERATION, "operate", "Show caches, plans, pushes, the model and alarms."),
    "doctor": Command(OPERATION, "operate", "Show what is configured, and whether it answers."),
    "unlock": Command(OPERATION, "operate", "Break the lock that a dead pull left on HDFS or S3."),
    "rooms": Command(OPERATION, "operate", "Write the program as a zip for spark-submit --py-files."),
    "up": Command(OPERATION, "local", "Start the whole deployment on this machine."),
    "down": Command(OPERATION, "local", "Stop what `up` has started, and nothing else."),
    "demo": Command(OPERATION, "demo", "Run the whole loop on a generated month."),
}


class CommandTable(TyperGroup):
    """The commands of `COMMANDS`, listed without importing any, imported when one is named."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The names, in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> TyperCommand | None:
        """The line of the help for `cmd_name`; None if there is no such command."""
        known = COMMANDS.get(cmd_name)
        if known is None:
            return None
        return TyperCommand(cmd_name, help=known.help, rich_help_panel=known.group)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """The command named first in `args`, its module imported."""
        name, listed, rest = super().resolve_command(ctx, args)
        return name, listed if name is None else load(name), rest


def load(name: str) -> Any:
    """The command called `name`, its module imported."""
    module = importlib.import_module(f"jobs.cli.{COMMANDS[name].module}")
    app = getattr(module, "app", None)
    if app is None:
        app = typer.Typer(add_completion=False)
        app.command(name)(getattr(module, name.replace("-", "_")))
    command = typer.main.get_command(app)
    verbosity.add_options(command)
    command.name = name
    _keep_brackets(command)
    return command


def _keep_brackets(command: Any) -> None:
    """Let the help show brackets as they are written: rich would take `[tables]` for markup."""
    for part in (command, *command.params):
        if getattr(part, "help", None):
            part.help = escape(part.help)
    for one in getattr(command, "commands", {}).values():
        _keep_brackets(one)


app = typer.Typer(
    cls=CommandTable,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
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
    os.umask(os.umask(0o077) | 0o027)
    try:
        with measured(sys.argv[1:], warn=console.warn), interrupts.in_one_line(console.log):
            app()
    except SystemExit as end:
        if end.code == interrupts.CODE:
            interrupts.leave()
        raise
    except CachecastError as error:
        _fail(str(error))
    except Exception as error:
        if (why := remedy(error)) is None:
            raise
        _fail(why)


def _fail(why: str) -> NoReturn:
    console.err.print(f"[bold red]error[/bold red]: {escape(why)}", highlight=False, soft_wrap=True)
    raise SystemExit(1) from None
