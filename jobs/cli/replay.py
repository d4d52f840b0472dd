"""The commands that replay: `replay` and `curve`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from features.errors import InputError
from features.times import parse_day
from features.units import parse_bytes, parse_duration
from jobs import text
from jobs.cli import console, options, parsing

FRACTIONS = "0.01,0.05,0.1,0.2"
TRACE_POLICIES = "lru,s3fifo,clairvoyant"
SITE_POLICIES = "lru,lru+plan,clairvoyant"
BYTE_HIT_RATIOS = "0.5,0.8"


def replay(
    trace: options.TracePath = None,
    policy: Annotated[
        str,
        typer.Option(
            help="for example lru,gdsf,steward-auto; "
            f"defaults to {TRACE_POLICIES}, without --trace to {SITE_POLICIES}"
        ),
    ] = "",
    capacity: options.Capacity = "",
    capacity_fraction: Annotated[
        str, typer.Option(help=f"capacities as fractions of the bytes of all files; defaults to {FRACTIONS}")
    ] = "",
    watermarks: Annotated[
        str,
        typer.Option(help="low and high, for example 0.90,0.95: purge as an XCache; always without --trace"),
    ] = "",
    purge_interval: Annotated[
        str,
        typer.Option(help="time between purges, for example 300s; defaults to [replay] purge_interval"),
    ] = "",
    block_size: Annotated[
        str,
        typer.Option(
            help="for example 128kB: fetch blocks of files as far as they are read; stewards, and lru "
            "with --watermarks"
        ),
    ] = "",
    caches: Annotated[
        Path | None,
        typer.Option(
            help="TOML file of several caches, each plain LRU; see docs/xcache-mode.md", exists=True
        ),
    ] = None,
    columns: options.Columns = "",
    time_unit: options.TimeUnit = "s",
    kind: options.Kind = "auto",
    sort: options.Sort = False,
    site: options.Site = None,
    since: options.Since = None,
    until: options.Until = None,
    scores: Annotated[
        Path | None,
        typer.Option(help="as_of, item, score (Parquet or CSV) for the policies score and score-tail"),
    ] = None,
    bound: Annotated[bool, typer.Option(help="also show the bound, and how near each policy comes")] = True,
    workers: options.Workers = None,
    out: options.Out = None,
    conf: options.Conf = None,
    tables: options.TablesRoot = None,
    as_json: options.Json = False,
) -> None:
    """Replay accesses under several policies and capacities.

    The accesses are those of a trace (--trace), or of days in the site's tables (--from, --to).
    """
    from jobs.report import export

    settings = options.load(conf, tables=tables)
    export.prepare(out)
    roles = parsing.columns(columns)
    beside = parsing.beside(roles)
    file = parsing.trace_file(trace, roles, time_unit, kind, sort, site, until)
    title = f"Replay of {_what(trace, since, until)}"
    first_day_s, last_day_s = _day(since), _day(until)
    if caches is not None:
        if policy or capacity or capacity_fraction or watermarks or purge_interval or block_size or scores:
            raise InputError(
                "--caches describes the caches itself; leave out policies, capacities, watermarks and blocks"
            )
        from jobs.simulate import fleet as job

        with console.progress("replay", quiet=as_json):
            fleet = job.run(
                settings, file, caches=caches, first_day_s=first_day_s, last_day_s=last_day_s, site=site
            )
        console.notes(fleet.notes)
        console.show(fleet.rows, as_json=as_json, title=title, columns=text.FLEET_COLUMNS)
        export.export_fleet(fleet, out, title=title)
        return
    policies = _names(policy or (SITE_POLICIES if file is None else TRACE_POLICIES))
    if file is not None and purge_interval and not watermarks:
        raise InputError("--purge-interval needs --watermarks")
    from jobs.simulate import replay_trace

    wanted = replay_trace.Caches(
        policies=policies,
        capacities=_capacities(capacity),
        fractions=parsing.shares(capacity_fraction or ("" if capacity else FRACTIONS)),
        watermarks=parsing.watermarks(watermarks) if watermarks else None,
        purge_interval_s=_seconds(purge_interval) or settings.replay.purge_interval,
        scores=scores,
        with_bound=bound,
        workers=workers or os.cpu_count(),
        beside=beside,
        block_bytes=parse_bytes(block_size) if block_size else None,
    )
    with console.progress("replay", quiet=as_json) as advance:
        if file is not None:
            answer = replay_trace.run(file, wanted, count_from_s=first_day_s, on_progress=advance)
        else:
            from jobs.simulate import site_replay

            answer = site_replay.run(
                settings,
                wanted,
                first_day_s=first_day_s,
                last_day_s=last_day_s,
                site=site,
                on_progress=advance,
            )
    console.notes(answer.notes)
    shown = text.REPLAY_COLUMNS if "lru+plan" in policies else text.TRACE_COLUMNS
    console.show(answer.rows, as_json=as_json, title=title, columns=shown)
    export.export_replay(answer, out, title=title)


def curve(
    trace: options.TracePath = None,
    hit_ratio: Annotated[
        str, typer.Option(help="show the capacity that LRU needs for these, for example 0.5,0.8")
    ] = "",
    byte_hit_ratio: Annotated[
        str, typer.Option(help=f"the same for bytes; defaults to {BYTE_HIT_RATIOS} if no ratio is given")
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
    """Show LRU's hit ratios at every capacity.

    Also what doubling the cache adds, and the capacity that a hit ratio needs.
    """
    from jobs.report import export
    from jobs.simulate import curve as job

    settings = options.load(conf, tables=tables)
    export.prepare(out)
    with console.progress("curve", quiet=as_json) as advance:
        answer = job.run(
            settings,
            parsing.trace_file(trace, parsing.columns(columns), time_unit, kind, sort, site, until),
            hit_ratios=parsing.shares(hit_ratio),
            byte_hit_ratios=parsing.shares(byte_hit_ratio or ("" if hit_ratio else BYTE_HIT_RATIOS)),
            capacities=_capacities(capacity),
            fractions=parsing.shares(capacity_fraction),
            first_day_s=_day(since),
            last_day_s=_day(until),
            site=site,
            workers=workers or os.cpu_count(),
            on_progress=advance,
        )
    title = f"LRU at every capacity, {_what(trace, since, until)}"
    console.notes(answer.notes)
    if as_json:
        console.show(answer, as_json=True)
    else:
        console.show(answer.points, as_json=False, title=title, columns=text.CURVE_COLUMNS)
        for line in answer.answers:
            console.sentence(line)
    export.export_curve(answer, out, title=title)


def _day(text: str | None) -> int | None:
    return None if text is None else parse_day(text)


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
