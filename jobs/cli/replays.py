"""The commands that replay a trace, or the site's tables: `replay`, `curve` and `evaluate`."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from features.common.errors import InputError, ServiceError
from features.common.times import parse_day
from features.common.units import parse_bytes, parse_duration
from jobs.cli import console, options, parsing
from jobs.cli.options import AskedReads
from jobs.ground import text

if TYPE_CHECKING:
    from jobs.ground.settings.tree import Settings
    from jobs.studies.simulate.accesses import Accesses

AUTO = "auto"
REPLAYED, EVALUATED = "0.01,0.05,0.1,0.2", "0.05,0.1,0.2"  # capacities by default, as fractions of all bytes
TRACE_POLICIES = "lru,s3fifo,clairvoyant"
SITE_POLICIES = "lru,lru+plan,clairvoyant"
BYTE_HIT_RATIOS = "0.5,0.8"


def replay(
    settings: Settings,
    reads: AskedReads,
    policy: Annotated[
        str,
        "for example lru,gdsf,steward-auto, or file.py:function of your own; "
        f"defaults to {TRACE_POLICIES}, without --trace to {SITE_POLICIES}",
    ] = "",
    capacity: options.Capacity = "",
    capacity_fraction: Annotated[
        str, f"capacities as fractions of the bytes of all files; defaults to {REPLAYED}"
    ] = "",
    watermarks: Annotated[
        str,
        "low and high, for example 0.90,0.95: purge as an XCache; always without --trace",
    ] = "",
    purge_interval: Annotated[
        str, "time between purges, for example 300s; defaults to [replay] purge_interval"
    ] = "",
    block_size: Annotated[
        str,
        "for example 128kB: fetch blocks of files as far as they are read; stewards, and lru "
        "with --watermarks",
    ] = "",
    caches: Annotated[
        Path | None,
        typer.Option(
            help="TOML file of several caches, beside each other or in levels; see docs/xcache-mode.md",
            exists=True,
        ),
    ] = None,
    no_bound: Annotated[bool, "leave out the bound, and how near each policy comes to it"] = False,
    out: options.Out = None,
    in_mlflow: options.InMlflow = False,
) -> None:
    """Replay accesses under several policies and capacities.

    The accesses are those of a trace (--trace), or of days in the site's tables (--from, --to).
    """
    accesses = reads.accesses()
    title = f"Replay of {reads.what}"
    if caches is not None:
        if in_mlflow:
            raise InputError("--mlflow compares policies, and --caches has none; leave one of them out")
        if policy or capacity or capacity_fraction or watermarks or purge_interval or block_size:
            raise InputError(
                "--caches describes the caches itself; leave out policies, capacities, watermarks and blocks"
            )
        _replay_fleet(settings, accesses, caches, title=title, out=out)
        return
    if accesses.trace is not None and purge_interval and not watermarks:
        raise InputError("--purge-interval needs --watermarks")
    from jobs.studies.simulate import replay_trace
    from replay.policies.own import own_policies

    names, own = own_policies(
        parsing.names(policy or (SITE_POLICIES if accesses.trace is None else TRACE_POLICIES))
    )
    interval_s = parsing.seconds(purge_interval) if purge_interval else settings.replay.purge_interval
    marks = None if accesses.trace is not None else settings.replay.watermarks
    request = replay_trace.Caches(
        policies=names,
        capacities=parsing.sizes(capacity),
        fractions=parsing.shares(capacity_fraction or ("" if capacity else REPLAYED)),
        watermarks=parsing.watermarks(watermarks) if watermarks else marks,
        purge_interval_s=interval_s,
        with_bound=not no_bound,
        block_bytes=parse_bytes(block_size) if block_size else None,
        own=own,
    )
    planned_by: dict[str, object] = {}
    with console.progress("replay") as advance, redirect_stdout(sys.stderr):  # own policies may print
        if accesses.trace is not None:
            advance(0, 1, "reading")
            loaded = accesses.trace.load(keep=request.keep)
            answer = replay_trace.replay_loaded(
                loaded, request, count_from_s=accesses.first_day_s, on_progress=advance
            )
        else:
            from jobs.studies.simulate import site_replay

            answer = site_replay.run(settings, request, accesses, on_progress=advance)
            planned_by = site_replay.planned_by(settings)
    console.notes(answer.notes)
    columns = text.REPLAY_COLUMNS if "lru+plan" in request.policies else text.TRACE_COLUMNS
    console.show_ranked(answer.rows, "capacity_bytes", title=title, columns=columns)
    replay_trace.export_replay(answer, out, title=title)
    if in_mlflow:
        what = {"trace": accesses.what, "from": reads.since, "to": reads.until}
        run_id = replay_trace.record_run(
            settings.mlflow, answer, what=reads.what, params={**what, **request.params, **planned_by}
        )
        _say_run(settings, run_id)


def _replay_fleet(
    settings: Settings, accesses: Accesses, caches: Path, *, title: str, out: Path | None
) -> None:
    from jobs.studies.simulate import fleet

    with console.progress("replay"):
        answer = fleet.run(settings, accesses, caches=caches)
    console.notes(answer.notes)
    console.sentences(filter(None, [answer.verdict]))
    console.show(answer.rows, title=title, columns=text.fleet_columns(answer.rows))
    fleet.export_fleet(answer, out, title=title)


def curve(
    settings: Settings,
    reads: AskedReads,
    hit_ratio: Annotated[str, "show the capacity that LRU needs for these, for example 0.5,0.8"] = "",
    byte_hit_ratio: Annotated[
        str, f"the same for bytes; defaults to {BYTE_HIT_RATIOS} if no ratio is given"
    ] = "",
    capacity: options.Capacity = "",
    capacity_fraction: options.CapacityFraction = "",
    out: options.Out = None,
) -> None:
    """Show LRU's hit ratios at every capacity.

    Also what doubling the cache adds, and the capacity that a hit ratio needs.
    """
    from jobs.studies.simulate import curve as job

    with console.progress("curve") as advance:
        answer = job.run(
            settings,
            reads.accesses(),
            hit_ratios=parsing.shares(hit_ratio),
            byte_hit_ratios=parsing.shares(byte_hit_ratio or ("" if hit_ratio else BYTE_HIT_RATIOS)),
            capacities=parsing.sizes(capacity),
            fractions=parsing.shares(capacity_fraction),
            on_progress=advance,
        )
    title = f"LRU at every capacity, {reads.what}"
    console.notes(answer.notes)
    console.sentences(answer.answers)
    console.show(answer, rows=answer.points, title=title, columns=text.CURVE_COLUMNS)
    job.export_curve(answer, out, title=title)


def evaluate(
    settings: Settings,
    reads: AskedReads,
    accesses: Annotated[
        Path | None,
        typer.Option(
            help="Parquet file of accesses, with files.parquet beside it; defaults to the site's", exists=True
        ),
    ] = None,
    cycle: Annotated[
        str, "time between plans, for example 1h; auto: a tenth of each capacity's LRU age"
    ] = AUTO,
    capacity: Annotated[str, "with --trace: capacities, for example 50TB,100TB, instead of fractions"] = "",
    capacity_fraction: Annotated[
        str, f"capacities as fractions of the bytes of all files; defaults to {EVALUATED}"
    ] = "",
    policy: Annotated[str, "with --trace: further policies, for example file.py:function of your own"] = "",
    out: options.Out = None,
    in_mlflow: options.InMlflow = False,
) -> None:
    """Replay the whole service over past days, against its rivals.

    Features, trainings, predictions and plans are made as the service would have made them then. With
    --trace, an order of eviction that is learned from the days before --from is compared with other policies
    on any trace; nothing is prefetched.
    """
    from jobs.loop.evaluate.replay_setup import to_evaluate

    if reads.since is None:
        raise InputError("earlier days train and warm the caches: give the first day that counts by --from")
    from_s, to_s = parse_day(reads.since), parsing.day(reads.until)
    capacities, fractions = parsing.sizes(capacity), parsing.shares(capacity_fraction)
    if not capacities:
        fractions = fractions or parsing.shares(EVALUATED)
    elif reads.trace is None:
        raise InputError("--capacity needs --trace; give the site's evaluation --capacity-fraction")
    cycle_s = None if cycle == AUTO else parse_duration(cycle)
    file = reads.file()
    if file is None:
        if policy or reads.only:
            raise InputError("--policy, --site and --activity need a trace; give --trace, or leave them out")
        if accesses is None:
            to_evaluate(settings, from_s=from_s, to_s=to_s)
    elif accesses is not None or cycle_s is not None:
        raise InputError("--accesses and --cycle are of the whole service; leave them or --trace out")
    from jobs.loop.evaluate import evaluate as job
    from jobs.loop.evaluate.answer import acting_rows, export_evaluation, verdicts
    from jobs.loop.evaluate.replay_setup import Request
    from replay.policies.own import own_policies

    names, own = own_policies(parsing.names(policy))
    with console.progress("evaluation") as advance, redirect_stdout(sys.stderr):  # own policies may print
        if file is None:
            request = Request(accesses, from_s, to_s, cycle_s, fractions)
            answer = job.run(settings, request, in_mlflow=in_mlflow, on_progress=advance)
        else:
            mlflow = settings.mlflow if in_mlflow else None
            answer = job.run_trace(
                file,
                from_s=from_s,
                capacities=capacities,
                fractions=fractions,
                policies={name: own.get(name) for name in names},
                mlflow=mlflow,
                on_progress=advance,
            )
    console.notes(answer.notes)
    if not console.shown_as_json(answer):
        columns = ("policy", answer.capacity, *text.EVALUATION_COLUMNS)
        console.show_ranked(answer.rows, answer.capacity, title=answer.title, columns=columns)
        console.table(acting_rows(answer.rows, answer.capacity), "lists, a steward, or both")
        console.sentences(verdicts(answer.slices, answer.capacity))
    export_evaluation(answer, out)
    if answer.run_id is not None:
        _say_run(settings, answer.run_id)
    elif in_mlflow:
        raise ServiceError("the evaluation is done, and not recorded in MLflow, as its notes say")


def _say_run(settings: Settings, run_id: str) -> None:
    if console.is_json:
        return
    from jobs.pages.runs import where

    console.line(f"run in MLflow: {where(settings.mlflow, run_id)}")
