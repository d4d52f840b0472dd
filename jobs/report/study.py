"""The study's page: the answers, then each part with a sentence on how to read it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from features.common.times import day_label
from features.common.units import format_bytes
from jobs.report.page import Capacities, page
from jobs.report.study_cache import cache_sections
from jobs.report.study_files import file_sections
from jobs.text import count, percent
from replay.study.study import Study
from replay.study.verdicts import CACHE, CACHE_SMALL, DO_NOT_CACHE

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
    yield (
        f"A cache of {format_bytes(cache.capacity_bytes)} ({share} of the bytes of all files read) serves "
        f"{percent(result.hit_ratio, 1)} of {count(result.requests)} accesses and "
        f"{percent(result.byte_hit_ratio, 1)} of {format_bytes(result.bytes_requested)}: "
        f"{format_bytes(result.hit_bytes)} stay off the WAN.{_overrun(found)}"
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


def _verdicts(found: Study) -> str:
    sentences = []
    for verdict in (CACHE, CACHE_SMALL, DO_NOT_CACHE):
        names = [row.name for row in found.categories if row.verdict == verdict]
        if names:
            sentences.append(f"{verdict.capitalize()}: {', '.join(names)}.")
    answer = " ".join(sentences)
    if found.chosen is None:
        return answer
    return (
        f"{answer} Admitting only that, the cache serves {percent(found.chosen.byte_hit_ratio, 1)} of the "
        f"bytes instead of {percent(found.use.byte_hit_ratio, 1)}, and "
        f"{percent(found.chosen.hit_ratio, 1)} of the accesses instead of {percent(found.use.hit_ratio, 1)}."
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
