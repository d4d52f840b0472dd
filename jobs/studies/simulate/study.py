"""The caching study of any trace, as one HTML page: the answers, then each part."""

import dataclasses
import itertools
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from features.common import files
from features.common.progress import Advance
from features.common.times import day_label
from features.common.units import format_bytes
from jobs.ground.settings.tree import Settings
from jobs.ground.text import count, percent
from jobs.pages.page import Capacities, page
from jobs.studies.simulate.study_sections import (
    UNKNOWN_DISTANCE,
    cache_sections,
    file_sections,
    left_out,
)
from replay.config import CacheConfig
from replay.read import LoadedTrace
from replay.study.categories import CACHE, CACHE_SMALL, DO_NOT_CACHE, Thresholds, hints
from replay.study.study import Study, StudyConfig, study

DETAILS = ("category", "tier", "dataset", "origin", "site", "activity")  # columns that a study uses
N_STAGES = 5
OVERRUN = 0.01  # a larger share of bytes read past the cache is mentioned in the answers
MOST_NAMED = 6  # most categories in a sentence; the table has all


@dataclasses.dataclass(frozen=True)
class StudySummary:
    """The page, and main results of LRU between the watermarks; `chosen_*`: without what verdicts refuse."""

    report: str
    page_bytes: int
    accesses: int
    capacity_bytes: int
    hit_ratio: float
    byte_hit_ratio: float
    chosen_byte_hit_ratio: float | None
    lru_age_s: int | None
    verdicts: dict[str, str]
    wan_saved_bytes: int
    hs06_hours_saved: int | None
    notes: tuple[str, ...]
    seconds: float


def write_study(
    loaded: LoadedTrace,
    settings: Settings,
    *,
    what: str,
    capacity_bytes: int | None,
    capacity_fraction: float | None,
    watermarks: tuple[float, float] | None,
    out: Path,
    on_progress: Advance,
) -> StudySummary:
    """Study `loaded`, which the page calls `what`, and write the page to `out`.

    `capacity_bytes`, else `capacity_fraction` of all files read, else (as `watermarks`) the settings'. Raises
    ConfigError, InputError.
    """
    started = time.perf_counter()
    trace = loaded.trace
    loaded = loaded._replace(notes=(*loaded.notes, *hints(trace, loaded.details)))
    share = capacity_fraction or settings.study.capacity_fraction
    capacity = int(share * trace.footprint_bytes) if capacity_bytes is None else capacity_bytes
    low, high = watermarks or settings.replay.watermarks
    config = StudyConfig(
        cache=CacheConfig(capacity, low, high, settings.replay.purge_interval),
        thresholds=Thresholds(
            min_saved_per_byte=settings.study.min_saved_per_byte,
            min_reread_share=settings.study.min_reread_share,
            small_file_bytes=settings.study.small_file,
        ),
        regions=settings.origin_regions,
        model=settings.benefit.model,
    )
    stages = itertools.count(1)

    def advance(stage: str) -> None:
        on_progress(next(stages), N_STAGES, stage)

    results = study(trace, loaded.details, config, on_done=advance)
    html = study_page(results, what=what, notes=loaded.notes)
    files.write(out, html)
    advance("the page")
    return _summary(results, loaded, out, html, time.perf_counter() - started)


def _summary(results: Study, loaded: LoadedTrace, out: Path, html: str, seconds: float) -> StudySummary:
    benefit = results.benefit
    return StudySummary(
        report=str(out),
        page_bytes=len(html.encode()),
        accesses=results.result.requests,
        capacity_bytes=results.config.cache.capacity_bytes,
        hit_ratio=results.result.hit_ratio,
        byte_hit_ratio=results.result.byte_hit_ratio,
        chosen_byte_hit_ratio=None if results.by_verdict is None else results.by_verdict.byte_hit_ratio,
        lru_age_s=results.lru_age_s,
        verdicts={row.name: row.verdict for row in results.categories},
        wan_saved_bytes=results.result.hit_bytes,
        hs06_hours_saved=(
            None if benefit is None else round(benefit.direct.hs06_hours - benefit.cached.hs06_hours)
        ),
        notes=loaded.notes,
        seconds=seconds,
    )


def study_page(results: Study, *, what: str, notes: Sequence[str] = ()) -> str:
    """The HTML page of a study of the trace called `what`; `notes` come under the title."""
    trace = results.use.trace
    span = f"{day_label(int(trace.time_s[0]))} to {day_label(int(trace.time_s[-1]))}"
    cache = results.config.cache
    subtitle = (
        f"{what}, {span}. Replayed through an XCache of {format_bytes(cache.capacity_bytes)}: whole files, "
        f"LRU, watermarks {percent(cache.low_watermark)} and {percent(cache.high_watermark)}, empty at the "
        "start. " + "; ".join(notes)
    )
    sections = [*file_sections(results), *cache_sections(results)]
    return page(
        title="Caching study",
        subtitle=subtitle,
        answers=list(answers(results)),
        sections=sections,
        capacities=Capacities(values=sorted(point.capacity_bytes for point in results.ideal)),
    )


def answers(results: Study) -> Iterator[str]:
    """Answers to a planner's first questions, one sentence each."""
    result, cache = results.result, results.config.cache
    share = percent(cache.capacity_bytes / max(1, results.use.trace.footprint_bytes), 1)
    size = format_bytes(cache.capacity_bytes)
    yield f"A cache of {size} serves {percent(result.byte_hit_ratio, 1)} of the bytes that jobs read."
    yield (
        f"{format_bytes(result.hit_bytes)} of {format_bytes(result.bytes_requested)} stay off the WAN, with "
        f"{percent(result.hit_ratio, 1)} of {count(result.requests)} accesses; the cache is {share} of the "
        f"bytes of all files read.{_overrun(results)}"
    )
    yield _verdicts(results)
    capacity = cache.capacity_bytes
    now, twice = (
        min(results.ideal, key=lambda point: abs(point.capacity_bytes - bytes_at))
        for bytes_at in (capacity, 2 * capacity)
    )
    is_limited = now.capacity_bytes == capacity
    best = f"; no policy could serve more than {percent(now.bound, 1)} at this capacity" if is_limited else ""
    change = f"from {percent(now.lru, 1)} to {percent(twice.lru, 1)}"
    yield f"Twice the capacity takes the byte hit ratio of a plain LRU {change}{best}."
    yield _saved(results)


def _saved(results: Study) -> str:
    benefit = results.benefit
    if benefit is None:
        return UNKNOWN_DISTANCE
    saved = benefit.direct.hs06_hours - benefit.cached.hs06_hours
    return (
        f"The jobs {'save' if saved >= 0 else 'lose'} {count(abs(saved))} HS06-hours "
        f"({percent(abs(saved) / max(1.0, benefit.direct.hs06_hours), 1)}) against reading everything from "
        f"the origins; CPU efficiency {percent(benefit.direct.cpu_efficiency, 1)} becomes "
        f"{percent(benefit.cached.cpu_efficiency, 1)}.{left_out(benefit)}"
    )


def _overrun(results: Study) -> str:
    """A warning if the cache is often full between two purges."""
    bypassed = results.result.bypassed_bytes
    if bypassed <= OVERRUN * results.result.bytes_requested:
        return ""
    interval = results.config.cache.purge_interval_s
    return (
        f" But {format_bytes(bypassed)} were read past it, because it was full between two purges "
        f"({interval} s apart) or files were larger than it: it is too small for this traffic."
    )


def _verdicts(results: Study) -> str:
    sentences = []
    for verdict in (CACHE, CACHE_SMALL, DO_NOT_CACHE):
        names = [row.name for row in results.categories if row.verdict == verdict]
        if names:
            more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
            sentences.append(f"{verdict.capitalize()}: {', '.join(names[:MOST_NAMED])}{more}.")
    answer = " ".join(sentences)
    if results.by_verdict is None:
        return answer
    return (
        f"{answer} Admitting only that, the cache serves {percent(results.by_verdict.byte_hit_ratio, 1)} of "
        f"the bytes instead of {percent(results.use.byte_hit_ratio, 1)}, and "
        f"{percent(results.by_verdict.hit_ratio, 1)} of the accesses instead of "
        f"{percent(results.use.hit_ratio, 1)}."
    )
