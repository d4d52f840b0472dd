"""The commands of plans: `plan`, `push`, `due` and `outcomes`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from features.common.errors import InputError, TargetUnavailable, UnprovenError, printable
from features.common.times import as_of_label, day_label
from features.common.units import format_bytes
from jobs.cli import console, options, parsing
from jobs.cli.options import AsOf, Cache, Force, IfCurrent, OutPage
from jobs.ground import text

if TYPE_CHECKING:
    from jobs.ground.settings.tree import Settings
    from jobs.loop.outcomes.history import History
    from jobs.loop.plan.plan import PlanSummary
    from jobs.loop.push.push import DryRun
    from prefetch.push.push import PushSummary

_DAY_COLUMNS = ("day", "hit_bytes", "lru_wan_bytes", "saved_wan_bytes", "withheld")
_STEWARD_COLUMNS = ("day", "orders", "wan_bytes", "lru_wan_bytes", "saved_wan_bytes")
_Action = Annotated[str, "list only these: evict, unpin, pin, prefetch, separated by commas"]
_Dataset = Annotated[str, "list only files of datasets that match, for example '*/AOD'"]
_Reason = Annotated[str, "list only files whose reason has this text"]
_EvictNow = Annotated[bool, "evict at once what else is left to the cache's steward"]
_OfPlan = Annotated[str | None, "decision time of one plan; all without it"]
push = typer.Typer(
    name="push",
    help="Carry out a cache's plan, confirmed by the cache itself.",
    no_args_is_help=True,
    add_completion=False,
)


def plan(
    settings: Settings,
    cache: Cache,
    as_of: AsOf = None,
    explain: Annotated[
        str | None, "say why this file (a did or a path) is planned or not; write nothing"
    ] = None,
    with_files: Annotated[
        bool, typer.Option("--list", help="also list the files, with bytes and reason")
    ] = False,
    action: _Action = "",
    dataset: _Dataset = "",
    reason: _Reason = "",
    force: Force = False,
) -> None:
    """Decide what a cache should prefetch, pin and evict.

    From the cache's own inventory and the region's predictions; every item has a reason.
    """
    from jobs.loop.plan import plan as job
    from jobs.loop.plan.items import FileFilter

    if not with_files and (action or dataset or reason):
        raise InputError("--action, --dataset and --reason choose what --list lists; give it too")
    as_of_s = parsing.newest(settings, "predictions", as_of)
    if explain is not None:
        console.show(job.judge_and_explain(settings, cache=cache, as_of_s=as_of_s, item=explain))
        return
    listed = FileFilter(parsing.names(action), dataset, reason) if with_files else None
    answer = job.run(settings, cache=cache, as_of_s=as_of_s, force=force, listed=listed)
    _show_plan(answer, with_files=with_files)
    actions = (
        ("fetch", answer.prefetch, answer.prefetch_bytes),
        ("pin", answer.pin, answer.pin_bytes),
        ("evict", answer.evict, answer.evict_bytes),
    )
    to_do = [f"{verb} {text.count(n)} files ({format_bytes(size)})" for verb, n, size in actions if n]
    console.sentence(
        f"To do: {', '.join(to_do) or 'nothing'}. `cachecast push run --cache {cache} "
        f"--as-of {answer.as_of} --dry-run` lists them."
    )
    for alarm in answer.alarms:
        console.warn(alarm)


@push.command()
@options.unfolded
def run(
    settings: Settings,
    cache: Cache,
    as_of: AsOf = None,
    dry_run: Annotated[bool, "list what would be pushed, and touch nothing"] = False,
    action: _Action = "",
    dataset: _Dataset = "",
    reason: _Reason = "",
    unproven: Annotated[bool, "carry out also what models chose that no promotion covers"] = False,
    evict_now: _EvictNow = False,
    if_current: IfCurrent = False,
    force: Force = False,
) -> None:
    """Carry out the plan of a decision time, and the unfinished items of earlier plans.

    What models chose is pushed only if they were promoted (`cachecast promote`), or with --unproven. A cache
    with a steward evicts what the plan lists when it needs the room, first of all, or with --evict-now. A
    second run resumes the first and repeats nothing. Exit code 1 if items were withheld, or if items failed
    and none was done.
    """
    if not dry_run and (action or dataset or reason):
        raise InputError("--action, --dataset and --reason choose what --dry-run lists; a push does all")
    from jobs.loop.plan.items import FileFilter
    from jobs.loop.push import push as job
    from jobs.operator.operate import due as times

    as_of_s = parsing.newest(settings, "plans", as_of, cache=cache)

    def overtaken_by() -> str | None:
        return times.overtaken_by(settings, as_of_s=as_of_s, now_s=int(time.time())) if if_current else None

    if if_current:
        if not dry_run and (by := overtaken_by()) is not None:
            job.overtake(settings, cache=cache, as_of_s=as_of_s, by=by)
        times.check_current(settings, as_of_s=as_of_s, now_s=int(time.time()))
    if dry_run:
        listed = FileFilter(parsing.names(action), dataset, reason)
        _show_plan(job.dry_run(settings, cache=cache, as_of_s=as_of_s, listed=listed), with_files=True)
        return
    with console.progress(f"pushing to {cache}") as advance:
        summary = job.run(
            settings,
            cache=cache,
            as_of_s=as_of_s,
            on_progress=advance,
            force=force,
            unproven=unproven,
            evict_now=evict_now,
            overtaken_by=overtaken_by,
        )
    console.show(summary)
    end_push(cache, summary, is_over=job.is_over(settings, cache=cache, as_of_s=as_of_s))


@push.command()
@options.unfolded
def resume(
    settings: Settings,
    cache: Cache,
    failed: Annotated[bool, "try again what failed, once its cause is mended"] = False,
    evict_now: _EvictNow = False,
    force: Force = False,
) -> None:
    """Continue every plan in the journal; no plan is read."""
    from jobs.loop.push import push as job

    with console.progress(f"pushing to {cache}") as advance:
        summary = job.resume(
            settings, cache=cache, on_progress=advance, force=force, evict_now=evict_now, failed=failed
        )
    console.show(summary)
    end_push(cache, summary)


@push.command()
@options.unfolded
def status(settings: Settings, cache: Cache, as_of: _OfPlan = None) -> None:
    """Show the progress of the plans, and touch nothing."""
    from jobs.loop.push import push as job

    console.show(job.status(settings, cache=cache, as_of_s=parsing.moment(as_of)))


@push.command()
@options.unfolded
def cancel(
    settings: Settings,
    cache: Cache,
    as_of: _OfPlan = None,
    unpin: Annotated[bool, "give up the pins too, at once"] = False,
) -> None:
    """Cancel the unfinished items; they are never tried again."""
    from jobs.loop.push import push as job

    console.show(job.cancel(settings, cache=cache, as_of_s=parsing.moment(as_of), unpin=unpin))


@push.command("new-journal")
@options.unfolded
def new_journal(settings: Settings) -> None:
    """Replace a lost journal, say what is forgotten, and push nothing."""
    from jobs.loop.push import journal

    console.show(journal.new_journal(settings, now_s=time.time()))


def _show_plan(answer: PlanSummary | DryRun, *, with_files: bool) -> None:
    """Print a plan; `with_files`: also the sums of its listed files, and a line for each."""
    from jobs.loop.plan.items import totals

    row = text.as_row(answer)
    if console.shown_as_json(row):
        return
    console.show({key: row[key] for key in row if key not in ("alarms", "files")})
    if with_files:
        console.sentence(totals(answer.files))
        for file in answer.files:
            console.sentence(printable(str(file)))


def end_push(cache: str, summary: PushSummary, *, is_over: bool = False) -> None:
    """Say where the errors of failed items are, and what follows a plan whose time `is_over`.

    Raises UnprovenError if items were withheld, and TargetUnavailable if the cache's faults ended the push:
    what is left of the plan is pushed by a later try. Exit code 1 if items failed and none was done.
    """
    if summary.expired or is_over:
        console.warn(
            f"the time of the plan is over, {summary.expired} items expired now; after `cachecast cycle`, "
            f"`cachecast plan --cache {cache} --as-of` with a time of today plans anew"
        )
    if summary.failed:
        where, again = (
            f"`cachecast push status --cache {cache}`",
            f"`cachecast push resume --cache {cache} --failed`",
        )
        console.warn(f"{summary.failed} items failed: {where} has their errors, {again} tries again")
    if summary.unproven is not None:
        n = sum(summary.withheld.values())
        raise UnprovenError(
            f"{n} items were not pushed: {summary.unproven}. Evaluate and promote it, or push with --unproven"
        )
    if summary.stopped is not None:
        raise TargetUnavailable(f"{summary.stopped}; what is left stays planned: run the same push again")
    if summary.failed and not (summary.pushed or summary.already_done):
        raise typer.Exit(1)


def due(
    settings: Settings,
    as_of: AsOf = None,
    past: Annotated[bool, "also due if a later decision time has overtaken it"] = False,
) -> None:
    """Say whether a decision time is to be predicted, planned and pushed.

    Exit code 99, with the reason, if no model may serve then, it has not come, a later decision
    time has overtaken it, or its records are incomplete and `[arrivals] incomplete` is "skip".
    """
    from jobs.operator.operate import due as job

    now_s = None if past else int(time.time())
    as_of_s = parsing.newest(settings, "features", as_of)
    job.run(settings, as_of_s=as_of_s, now_s=now_s)
    console.show({"due": as_of or as_of_label(as_of_s)})


def outcomes(
    settings: Settings,
    cache: Cache,
    as_of: Annotated[str | None, "account the plan of this decision time"] = None,
    day: Annotated[str | None, "account the plans of a UTC day, and judge the day against LRU"] = None,
    since: Annotated[str | None, typer.Option("--from", help="first UTC day that is shown")] = None,
    until: Annotated[str | None, typer.Option("--to", help="last UTC day that is shown")] = None,
    out: OutPage = None,
) -> None:
    """Account what pushed files earned.

    Of one plan (--as-of) or of a day's plans (--day); without either, shows what was accounted so far.
    """
    from jobs.loop.outcomes import history, outcomes

    as_of_s, day_s = parsing.moment(as_of), parsing.day(day)
    if as_of_s is not None and day_s is not None:
        raise InputError("give either --as-of or --day, or neither to see what was accounted")
    if (as_of or day) and (since or until or out):
        raise InputError("--from, --to and --out show what was accounted: leave out --as-of and --day")
    if as_of_s is not None:
        console.show(outcomes.of_plan(settings, cache=cache, as_of_s=as_of_s))
    elif day_s is not None:
        console.show(outcomes.of_day(settings, cache=cache, day_s=day_s))
        if (why := history.annotate_models(settings, cache=cache)) is not None:
            console.warn(why)
    else:
        first, last = (
            None if limit_s is None else day_label(limit_s) for limit_s in map(parsing.day, (since, until))
        )
        accounted = history.history(settings, cache=cache, since=first, until=last)
        if out is not None:
            history.write_page(accounted, cache=cache, out=out)
        if not console.shown_as_json(accounted):
            _show_history(accounted, cache)


def _show_history(accounted: History, cache: str) -> None:
    if accounted.plans:
        console.show(accounted.plans, title="plans", columns=("as_of", *text.OUTCOME_COLUMNS))
        columns = ("model_version", *text.OUTCOME_COLUMNS)
        console.show(accounted.models, title="model versions", columns=columns)
    else:
        console.line("plans: none of them completed an item; see `cachecast push status`")
    if accounted.steward:
        title = "days of the steward, by its own count"
        console.show(accounted.steward, title=title, columns=_STEWARD_COLUMNS)
    if accounted.days:
        console.show(accounted.days, title="days against LRU", columns=_DAY_COLUMNS)
    else:
        console.line(f"days against LRU: none judged; run `cachecast outcomes --cache {cache} --day …`")
