"""`cachecast push`: carry out a plan, go on with it, look at it, or withdraw it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import typer

from features.errors import InputError
from features.times import parse_as_of
from jobs.cli import console
from jobs.cli.options import Conf, Json, TablesRoot
from jobs.settings.tree import Settings


def push(
    cache: Annotated[str, typer.Option(help="name of a configured cache")],
    as_of: Annotated[
        str | None, typer.Option(help="moment of the plan; --status and --cancel take all without it")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="show what would be pushed, and touch nothing")
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="go on with all that the journal has; no plan is read")
    ] = False,
    status: Annotated[bool, typer.Option("--status", help="show how far it is, and touch nothing")] = False,
    cancel: Annotated[
        bool, typer.Option("--cancel", help="withdraw what is not done; it is never tried again")
    ] = False,
    conf: Conf = None,
    tables: TablesRoot = None,
    as_json: Json = False,
) -> None:
    """Carry out a cache's plan, verified by the cache itself; run again, it resumes and repeats nothing."""
    mode = _mode({"--dry-run": dry_run, "--resume": resume, "--status": status, "--cancel": cancel})
    settings = Settings.load(conf, tables=tables)
    as_of_s = None if as_of is None else parse_as_of(as_of)
    quiet = as_json or mode not in (None, "--resume")
    with console.progress(f"pushing to {cache}", quiet=quiet) as advance:
        answer = _answer(settings, mode, cache=cache, as_of_s=as_of_s, advance=advance)
    console.show(answer, as_json=as_json)


def _mode(options: Mapping[str, bool]) -> str | None:
    chosen = [name for name, is_set in options.items() if is_set]
    if len(chosen) > 1:
        raise InputError(f"{' and '.join(chosen)} cannot go together; give one of them")
    return chosen[0] if chosen else None


def _answer(
    settings: Settings, mode: str | None, *, cache: str, as_of_s: int | None, advance: console.Advance
) -> object:
    from jobs import push_steps as steps

    if mode == "--status":
        return steps.status(settings, cache=cache, as_of_s=as_of_s)
    if mode == "--cancel":
        return steps.cancel(settings, cache=cache, as_of_s=as_of_s)
    if mode == "--resume":
        if as_of_s is not None:
            raise InputError("--resume goes on with every plan in the journal; leave out --as-of")
        return steps.resume(settings, cache=cache, on_progress=advance)
    if as_of_s is None:
        raise InputError("which plan? give --as-of, or --resume to go on with all that the journal has")
    if mode == "--dry-run":
        return steps.dry_run(settings, cache=cache, as_of_s=as_of_s)
    return steps.push(settings, cache=cache, as_of_s=as_of_s, on_progress=advance)
