"""The commands that replay: `replay` and `curve`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from features.errors import InputError
from features.times import DAY_S, parse_day
from features.units import parse_bytes, parse_duration
from jobs.cli import console, options
from jobs.cli import parsing as arguments
from jobs.settings.tree import Settings

if TYPE_CHECKING:
    from jobs.simulate.replay_trace import ReplayAnswer
    from jobs.store.traces import TraceFile

FRACTIONS = "0.01,0.05,0.1,0.2"
TRACE_POLICIES = "lru,s3fifo,clairvoyant"
SITE_POLICIES = "lru,lru+plan,clairvoyant"
BYTE_HIT_RATIOS = "0.5,0.8"


def replay(
    trace: options.TracePath = None,
    policy: Annotated[
        str, typer.Option(help=f"as lru,gdsf; default {TRACE_POLICIES}, without --trace {SITE_POLICIES}")
    ] = "",
    capacity: options.Capacity = "",
    capacity_fraction: Annotated[
        str, typer.Option(help=f"capacities as shares of the bytes of all files read; default {FRACTIONS}")
    ] = "",
    watermarks: Annotated[
        str, typer.Option(help="low and high, as 0.90,0.95: LRU is an XCache; without --trace it always is")
    ] = "",
    purge_interval: Annotated[
        str, typer.Option(help="between checks of the watermarks, as 300s; default [replay] purge_interval")
    ] = "",
    caches: Annotated[
        Path | None,
        typer.Option(help="TOML file of several caches, as conf/fleets/socal.toml: LRU in each", exists=True),
    ] = None,
    columns: options.Columns = "",
    time_unit: options.TimeUnit = "s",
    kind: options.Kind = "auto",
    sort: options.Sort = False,
    site: options.Site = None,
    since: options.Since = None,
    until: options.Until = None,
    scores: Annotated[
        Path | None, typer.Option(help="as_of, item, score (Parquet or CSV), for score and score-tail")
    ] = None,
    bound: Annotated[bool, typer.Option(help="also what no policy can beat, and how near each comes")] = True,
    workers: options.Workers = None,
    out: options.Out = None,
    conf: options.Conf = None,
    tables: options.TablesRoot = None,
    as_json: options.Json = False,
) -> None:
    """Replay accesses under several policies and capacities: a trace's, or those in the site's tables."""
    from jobs import what_if
    from jobs.report.export import export_replay, prepare

    settings = Settings.load(conf, tables=tables)
    prepare(out)
    named = _trace_file(trace, columns, time_unit, kind, sort, site, until)
    title = f"Replay of {_what(trace, since, until)}"
    if caches is not None:
        if policy or capacity or capacity_fraction or watermarks or purge_interval or scores:
            raise InputError("--caches says what is replayed; leave out policies, capacities and watermarks")
        with console.progress("replay", quiet=as_json):
            found = what_if.fleet(
                settings,
                named,
                caches=caches,
                first_day_s=None if since is None else parse_day(since),
                last_day_s=None if until is None else parse_day(until),
                site=site,
            )
        _show_fleet(found, out, title=title, as_json=as_json)
        return
    policies = _names(policy or (SITE_POLICIES if named is None else TRACE_POLICIES))
    if named is not None and purge_interval and not watermarks:
        raise InputError("--purge-interval is about the watermarks; give --watermarks, too")
    with console.progress("replay", quiet=as_json) as advance:
        answer = what_if.replay(
            settings,
            named,
            policies=policies,
            capacities=_capacities(capacity),
            fractions=arguments.shares(capacity_fraction or ("" if capacity else FRACTIONS)),
            watermarks=arguments.watermarks(watermarks) if watermarks else None,
            purge_interval_s=_seconds(purge_interval),
            first_day_s=None if since is None else parse_day(since),
            last_day_s=None if until is None else parse_day(until),
            site=site,
            scores=scores,
            with_bound=bound,
            workers=workers or os.cpu_count(),
            on_progress=advance,
        )
    _notes(answer.notes)
    shown = console.REPLAY_COLUMNS if "lru+plan" in policies else console.TRACE_COLUMNS
    console.show(answer.rows, as_json=as_json, title=title, columns=shown)
    export_replay(answer, out, title=title)


def curve(
    trace: options.TracePath = None,
    hit_ratio: Annotated[
        str, typer.Option(help="say the capacity that LRU needs for these, as 0.5,0.8")
    ] = "",
    byte_hit_ratio: Annotated[
        str, typer.Option(help=f"the same for bytes; default {BYTE_HIT_RATIOS} if no ratio is given")
    ] = "",
    capacity: options.Capacity = "",
    capacity_fraction: options.CapacityFraction = "",
    columns: options.Columns = "",
    time_unit: options.TimeUnit = "s",
    kind: options.Kind = "auto",
    sort: options.Sort = False,
    site: options.Site = None,
    since: options.Since = None,
    until: options.Until = None,
    workers: options.Workers = None,
    out: options.Out = None,
    conf: options.Conf = None,
    tables: options.TablesRoot = None,
    as_json: options.Json = False,
) -> None:
    """Show LRU's hit ratios at every capacity, what doubling a cache brings, and what a ratio needs."""
    from jobs import what_if
    from jobs.report.export import export_curve, prepare

    settings = Settings.load(conf, tables=tables)
    prepare(out)
    with console.progress("curve", quiet=as_json) as advance:
        answer = what_if.curve(
            settings,
            _trace_file(trace, columns, time_unit, kind, sort, site, until),
            hit_ratios=arguments.shares(hit_ratio),
            byte_hit_ratios=arguments.shares(byte_hit_ratio or ("" if hit_ratio else BYTE_HIT_RATIOS)),
            capacities=_capacities(capacity),
            fractions=arguments.shares(capacity_fraction),
            first_day_s=None if since is None else parse_day(since),
            last_day_s=None if until is None else parse_day(until),
            site=site,
            workers=workers or os.cpu_count(),
            on_progress=advance,
        )
    title = f"LRU at every capacity, {_what(trace, since, until)}"
    _notes(answer.notes)
    if as_json:
        console.show(answer, as_json=True)
    else:
        console.show(answer.points, as_json=False, title=title, columns=console.CURVE_COLUMNS)
        for line in answer.answers:
            console.out.print(line, highlight=False)
    export_curve(answer, out, title=title)


def _show_fleet(found: ReplayAnswer, out: Path | None, *, title: str, as_json: bool) -> None:
    from jobs.report.export import export_fleet

    _notes(found.notes)
    console.show(found.rows, as_json=as_json, title=title, columns=console.FLEET_COLUMNS)
    export_fleet(found, out, title=title)


def _trace_file(
    path: Path | None,
    columns: str,
    time_unit: str,
    kind: str,
    sort: bool,
    site: str | None,
    until: str | None,
) -> TraceFile | None:
    from jobs.store.traces import TraceFile

    if path is None:
        if columns or sort or (time_unit, kind) != ("s", "auto"):
            raise InputError("options that describe a trace need one; give --trace")
        return None
    end_s = None if until is None else parse_day(until) + DAY_S
    return TraceFile(path, arguments.columns(columns), time_unit, kind, sort, site, end_s)


def _capacities(text: str) -> list[int]:
    return [parse_bytes(part) for part in text.split(",") if part]


def _names(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _seconds(text: str) -> int | None:
    if not text:
        return None
    return int(text) if text.isdecimal() else parse_duration(text)


def _what(trace: Path | None, since: str | None, until: str | None) -> str:
    days = f"{since or 'its start'} to {until or 'its end'}" if since or until else ""
    return ", ".join(part for part in ("" if trace is None else trace.name, days) if part)


def _notes(notes: Sequence[str]) -> None:
    for note in notes:
        console.err.print(f"note: {note}", highlight=False, markup=False, soft_wrap=True)
