"""The command `demo`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated

import typer

from jobs.cli import console
from jobs.cli.options import Conf, Json, TablesRoot
from jobs.progress import Advance
from jobs.text import Row


class Terminal:
    """The demo's screen in a terminal; `quiet`: nothing is shown, because the answer is JSON."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet

    def progress(self, what: str) -> AbstractContextManager[Advance]:
        """A progress bar for one step."""
        return console.progress(what, quiet=self._quiet)

    def line(self, plain: str) -> None:
        """One line as it is."""
        if not self._quiet:
            console.line(plain)

    def table(self, rows: Sequence[Row], title: str = "") -> None:
        """A table, if there are rows."""
        if rows and not self._quiet:
            console.show(rows, as_json=False, title=title)


def demo(
    out: Annotated[Path, typer.Option(help="folder for everything the demo makes")] = Path("demo-out"),
    seed: Annotated[int, typer.Option(help="seed of the generated month")] = 1,
    conf: Conf = None,
    tables: TablesRoot = None,
    as_json: Json = False,
) -> None:
    """Run the whole loop on a generated month.

    From raw records to what each pushed file earned.
    """
    from jobs.demo import run as job

    answer = job.run(out, seed=seed, conf=conf, tables=tables, screen=Terminal(quiet=as_json))
    if as_json:
        console.show(answer, as_json=True)
