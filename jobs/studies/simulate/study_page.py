"""The study's page: the answers, then each part with a sentence on how to read it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from features.common.times import DAY_S, day_label
from features.common.units import format_bytes
from jobs.ground.text import count, percent
from jobs.pages import plots
from jobs.pages.page import Capacities, Figure, Section, page
from jobs.studies.simulate import study_plots
from jobs.studies.simulate.study_files import file_sections
from replay.study.categories import CACHE, CACHE_SMALL, DO_NOT_CACHE
from replay.study.study import Study
from replay.study.use import Use

OVERRUN = 0.01
"""Share of the bytes read past the cache from which on the first answer mentions them."""


def study_page(found: Study, *, what: str, notes: Sequence[str] = ()) -> str:
    """The HTML page of a study of the trace called `what`; `notes` come under the title."""
    trace = found.use.trace
    span = f"{day_label(int(trace.time_s[0]))} to {day_label(int(trace.time_s[-1]))}"
    cache = found.config.cache
    subtitle = (
        f"{what}, {span}. Replayed through an XCache of {format_bytes(cache.capacity_bytes)}: whole files, "
        f"LRU, watermarks {percent(cache.low_watermark)} and {percent(cache.high_watermark)}, empty at the "
        "start. " + "; ".join(notes)
    )
    sections = [*file_sections(found), *cache_sections(found)]
    return page(
        title="Caching study",
        subtitle=subtitle,
        answers=list(answers(found)),
        sections=sections,
        capacities=Capacities(values=sorted(point.capacity_bytes for point in found.ideal)),
    )


def answers(found: Study) -> Iterator[str]:
    """Answers to a planner's first questions, one sentence each."""
    result, cache = found.result, found.config.cache
    share = percent(cache.capacity_bytes / max(1, found.use.trace.footprint_bytes), 1)
    size = format_bytes(cache.capacity_bytes)
    yield f"A cache of {size} serves {percent(result.byte_hit_ratio, 1)} of the bytes that jobs read."
    yield (
        f"{format_bytes(result.hit_bytes)} of {format_bytes(result.bytes_requested)} stay off the WAN, with "
        f"{percent(result.hit_ratio, 1)} of {count(result.requests)} accesses; the cache is {share} of the "
        f"bytes of all files read.{_overrun(found)}"
    )
    yield _verdicts(found)
    yield _doubling(found)
    benefit = found.benefit
    saved = benefit.direct.hs06_hours - benefit.cached.hs06_hours
    yield (
        f"The jobs {'save' if saved >= 0 else 'lose'} {count(abs(saved))} HS06-hours "
        f"({percent(abs(saved) / max(1.0, benefit.direct.hs06_hours), 1)}) against reading everything from "
        f"the origins; CPU efficiency {percent(benefit.direct.cpu_efficiency, 1)} becomes "
        f"{percent(benefit.cached.cpu_efficiency, 1)}."
    )


def _overrun(found: Study) -> str:
    """A warning if the cache is often full between two purges."""
    passed = found.result.bypassed_bytes
    if passed <= OVERRUN * found.result.bytes_requested:
        return ""
    interval = found.config.cache.purge_interval_s
    return (
        f" But {format_bytes(passed)} were read past it, because it was full between two purges "
        f"({interval} s apart) or files were larger than it: it is too small for this traffic."
    )


MOST_NAMED = 6
"""Categories in a sentence; the table has all."""


def _verdicts(found: Study) -> str:
    sentences = []
    for verdict in (CACHE, CACHE_SMALL, DO_NOT_CACHE):
        names = [row.name for row in found.categories if row.verdict == verdict]
        if names:
            more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
            sentences.append(f"{verdict.capitalize()}: {', '.join(names[:MOST_NAMED])}{more}.")
    answer = " ".join(sentences)
    if found.by_verdict is None:
        return answer
    return (
        f"{answer} Admitting only that, the cache serves {percent(found.by_verdict.byte_hit_ratio, 1)} of "
        f"the bytes instead of {percent(found.use.byte_hit_ratio, 1)}, and "
        f"{percent(found.by_verdict.hit_ratio, 1)} of the accesses instead of "
        f"{percent(found.use.hit_ratio, 1)}."
    )


def _doubling(found: Study) -> str:
    capacity = found.config.cache.capacity_bytes
    now, adds = found.curve.byte_hit_ratio_at(capacity), found.curve.doubling_adds(capacity)
    bound = next((p.bound for p in found.ideal if p.capacity_bytes == capacity), None)
    best = "" if bound is None else f"; no policy could serve more than {percent(bound, 1)} at this capacity"
    twice = percent(now + adds.byte_hit_ratio, 1)
    return (
        f"Twice the capacity takes the byte hit ratio of a plain LRU from {percent(now, 1)} to {twice}{best}."
    )


def cache_sections(found: Study) -> Sequence[Section]:
    """Hit rate against capacity, fill level, days, origins, and WAN and CPU time saved."""
    by_activity = [_activities(found)] if found.activities else []
    return [
        _capacity(found),
        _fill(found),
        _daily_hits(found),
        _origins(found),
        *by_activity,
        _benefit(found),
    ]


def _capacity(found: Study) -> Section:
    return Section(
        title="Hit rate against capacity",
        note="The lines show exactly what an LRU without watermarks serves at each capacity. Triangles are a "
        "policy that knows the future and admits everything; no policy can exceed the bound (diamonds). "
        "Where the line is steep, more disk pays. The distance from line to diamond is what a better policy "
        "could gain at most. A capacity picked at the top is marked here and chosen in the table; the other "
        "parts of the page are of the cache of the study.",
        figures=[
            Figure(
                study_plots.hits_against_capacity(found.curve, found.ideal),
                "Accesses and bytes served against capacity",
            )
        ],
        rows=[
            {
                "capacity_bytes": point.capacity_bytes,
                "LRU byte_hit_ratio": found.curve.byte_hit_ratio_at(point.capacity_bytes),
                "clairvoyant byte_hit_ratio": point.clairvoyant,
                "bound byte_hit_ratio": point.bound,
            }
            for point in found.ideal
        ],
    )


def _fill(found: Study) -> Section:
    cache, result = found.config.cache, found.result
    return Section(
        title="Fill level",
        note=f"Every {cache.purge_interval_s} s, if usage is above the high watermark, the oldest files are "
        f"purged down to the low one. The cache held {format_bytes(result.peak_usage_bytes)} at most; "
        f"{format_bytes(result.bypassed_bytes)} were read past it because they did not fit.",
        figures=[
            Figure(
                study_plots.fill_level(
                    result.fill.time_s,
                    result.fill.used_bytes,
                    capacity_bytes=cache.capacity_bytes,
                    watermarks=(cache.low_watermark, cache.high_watermark),
                ),
                "Fill level over time, with both watermarks",
            )
        ],
    )


def _daily_hits(found: Study) -> Section:
    daily = found.result.daily
    return Section(
        title="Hits and misses per day",
        note="Steps are days (UTC); lines are the mean of each day and the 13 days before it. The first days "
        "have fewer hits than a cache in service, which is never empty.",
        figures=[
            Figure(
                plots.hits_and_misses_over_time(daily.day * DAY_S, daily.hits, daily.misses),
                "Hits and misses per day, with the two-week running mean",
            )
        ],
    )


def _origins(found: Study) -> Section:
    rows = found.origins
    files, in_bytes = sum(row.files for row in rows), sum(row.footprint_bytes for row in rows)
    shares = {
        "files": [row.files / files for row in rows],
        "bytes of files": [row.footprint_bytes / max(1, in_bytes) for row in rows],
    }
    return Section(
        title="Origins",
        note="Where the files came from at their first access, by the regions of the configuration; hosts "
        "that match none are unknown. Distant origins with many bytes gain most from a cache.",
        figures=[
            Figure(
                study_plots.grouped_shares([row.label for row in rows], shares),
                "Shares of files and bytes by origin",
            )
        ]
        if len(rows) > 1
        else [],
        rows=[
            {
                "region": row.label,
                "round trip, ms": row.rtt_ms,
                "files": row.files,
                "files_share": row.files / files,
                "accesses": row.accesses,
                "accessed_bytes": row.requested_bytes,
                "WAN_saved_bytes": row.hit_bytes,
            }
            for row in rows
        ],
    )


def _activities(found: Study) -> Section:
    return Section(
        title="Activities",
        note="What the cache does for analysis and for production, where the trace tells them apart. "
        "--activity studies one of them alone.",
        rows=[
            {
                "activity": part.label,
                "files": part.files,
                "footprint_bytes": part.footprint_bytes,
                "accesses": part.accesses,
                "hit_ratio": part.hits / part.accesses,
                "accessed_bytes": part.requested_bytes,
                "byte_hit_ratio": part.hit_bytes / max(1, part.requested_bytes),
            }
            for part in found.activities
        ],
    )


def _benefit(found: Study) -> Section:
    benefit, model = found.benefit, found.config.model
    cases = {"no cache": benefit.direct, "LRU": benefit.cached}
    uses: dict[str, Use | None] = {"no cache": None, "LRU": found.use}
    if benefit.by_verdict is not None:
        cases["LRU by the verdicts"], uses["LRU by the verdicts"] = benefit.by_verdict, found.by_verdict
    rate = format_bytes(model.job_read_rate_bytes_s)
    return Section(
        title="WAN traffic and CPU time saved",
        note=f"Based on {_basis(found)}. A job reads {rate} per second of CPU time, and a core has "
        f"{model.hs06_per_core:g} HS06. This is a model, not a measurement.",
        figures=[
            Figure(
                study_plots.hours(list(cases), [cost.hs06_hours for cost in cases.values()]),
                "HS06-hours of the jobs, without a cache and with it",
            )
        ],
        rows=[
            {
                "reading through": name,
                "WAN_bytes": found.result.bytes_requested - _hit_bytes(uses[name]),
                "CPU_efficiency_ratio": cost.cpu_efficiency,
                "core-hours": round(cost.core_hours),
                "HS06-hours": round(cost.hs06_hours),
                "HS06-hours saved": round(benefit.direct.hs06_hours - cost.hs06_hours),
            }
            for name, cost in cases.items()
        ],
    )


def _basis(found: Study) -> str:
    model = found.config.model
    if model.job is not None:
        return f"DOMA's runtimes of {model.job.name} jobs relative to reading locally"
    slower = (
        f", a miss {percent(model.miss_slowdown)} slower than a direct read" if model.miss_slowdown else ""
    )
    return (
        "the published CPU efficiencies at each origin's round-trip time, hits read from "
        f"{found.config.tier.name}{slower}"
    )


def _hit_bytes(use: Use | None) -> int:
    return 0 if use is None else int(use.hit_bytes.sum())
