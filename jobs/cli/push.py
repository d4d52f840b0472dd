"""The command `push`: carry out a plan, resume it, show it, or cancel it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from features.errors import InputError, UnprovenError
from features.times import parse_as_of
from jobs.cli import console, options
from jobs.cli.options import Cache, Conf, Force, Json, TablesRoot
from jobs.progress import Advance

if TYPE_CHECKING:
    from jobs.settings.tree import Settings
    from prefetch.push.push import PushSummary


def push(
    cache: Cache,
    as_of: Annotated[
        str | None, typer.Option(help="decision time of the plan; --status and --cancel take all without it")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="show what would be pushed, and touch nothing")
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="continue every plan in the journal; no plan is read")
    ] = False,
    status: Annotated[bool, typer.Option("--status", help="show the progress, and touch nothing")] = False,
    cancel: Annotated[
        bool, typer.Option("--cancel", help="cancel the unfinished items; they are never tried again")
    ] = False,
    unproven: Annotated[
        bool,
        typer.Option("--unproven", help="carry out also what models chose that no promotion covers"),
    ] = False,
    force: Force = False,
    conf: Conf = None,
    tables: TablesRoot = None,
    as_json: Json = False,
) -> None:
    """Carry out a cache's plan, confirmed by the cache itself.

    What models chose is pushed only if they were promoted (`cachecast promote`), or with --unproven. A second
    run resumes the first and repeats nothing. Exit code 1 if items were withheld, or if items failed and none
    was done.
    """
    from jobs.push import push as job

    mode = _mode({"--dry-run": dry_run, "--resume": resume, "--status": status, "--cancel": cancel})
    settings = options.load(conf, tables=tables)
    as_of_s = None if as_of is None else parse_as_of(as_of)
    if mode in (None, "--resume"):
        with console.progress(f"pushing to {cache}", quiet=as_json) as advance:
            summary = _pushed(
                settings, mode, cache=cache, as_of_s=as_of_s, advance=advance, force=force, unproven=unproven
            )
        console.show(summary, as_json=as_json)
        over = as_of_s is not None and job.is_over(settings, cache=cache, as_of_s=as_of_s)
        end(cache, summary, is_over=over)
    else:
        console.show(_looked(settings, mode, cache=cache, as_of_s=as_of_s), as_json=as_json)


def end(cache: str, summary: PushSummary, *, is_over: bool = False) -> None:
    """Say where the errors of failed items are, and what follows a plan whose time `is_over`.

    Raises UnprovenError if items were withheld. Exit code 1 if items failed and none was done.
    """
    if summary.expired or is_over:
        console.warn(
            f"the time of the plan is over, {summary.expired} items expired now; after `cachecast cycle`, "
            f"`cachecast plan --cache {cache} --as-of` with a time of today plans anew"
        )
    if summary.failed:
        where = f"`cachecast push --cache {cache} --status` and the table receipts"
        console.warn(f"{summary.failed} items failed: {where} tell their errors")
    if summary.unproven is not None:
        n = sum(summary.withheld.values())
        raise UnprovenError(
            f"{n} items were not pushed: {summary.unproven}. Evaluate and promote it, or push with --unproven"
        )
    if summary.failed and not (summary.pushed or summary.already_done):
        raise typer.Exit(1)


def _mode(options: Mapping[str, bool]) -> str | None:
    chosen = [name for name, is_set in options.items() if is_set]
    if len(chosen) > 1:
        raise InputError(f"{' and '.join(chosen)} cannot go together; give one of them")
    return chosen[0] if chosen else None


def _looked(settings: Settings, mode: str | None, *, cache: str, as_of_s: int | None) -> object:
    from jobs.push import push as job

    if mode == "--status":
        return job.status(settings, cache=cache, as_of_s=as_of_s)
    if mode == "--cancel":
        return job.cancel(settings, cache=cache, as_of_s=as_of_s)
    return job.dry_run(settings, cache=cache, as_of_s=_one_plan(as_of_s))


def _pushed(
    settings: Settings,
    mode: str | None,
    *,
    cache: str,
    as_of_s: int | None,
    advance: Advance,
    force: bool,
    unproven: bool,
) -> PushSummary:
    from jobs.push import push as job

    if mode is None:
        moment = _one_plan(as_of_s)
        return job.run(
            settings, cache=cache, as_of_s=moment, on_progress=advance, force=force, unproven=unproven
        )
    if as_of_s is not None:
        raise InputError("--resume continues every plan in the journal; leave out --as-of")
    return job.resume(settings, cache=cache, on_progress=advance)


def _one_plan(as_of_s: int | None) -> int:
    if as_of_s is None:
        raise InputError("which plan? give --as-of, or --resume to continue every plan in the journal")
    return as_of_s
