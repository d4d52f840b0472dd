"""The caching study of any trace, as one HTML page."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path

from features.common import files
from features.common.progress import Advance
from jobs.ground.settings.study import StudySettings
from jobs.ground.settings.tree import Settings
from jobs.loop.traces import TraceFile
from jobs.studies.simulate.study_page import study_page
from replay.config import CacheConfig
from replay.read import LoadedTrace
from replay.study.benefit import Tier
from replay.study.categories import Thresholds
from replay.study.study import Study, StudyConfig, study

DETAILS = ("category", "tier", "dataset", "origin", "site", "activity")
"""Columns beside the trace that a study uses, if they exist."""
N_STAGES = 5


@dataclasses.dataclass(frozen=True)
class StudySummary:
    """The page that was written, and main results; ratios are those of LRU between the watermarks."""

    report: str
    size_bytes: int
    accesses: int
    capacity_bytes: int
    hit_ratio: float
    byte_hit_ratio: float
    chosen_byte_hit_ratio: float | None
    lru_age_s: int | None
    verdicts: dict[str, str]
    wan_saved_bytes: int
    hs06_hours_saved: int
    notes: tuple[str, ...]
    seconds: float


def run(
    settings: Settings,
    trace: TraceFile,
    *,
    since_s: int | None,
    capacity_bytes: int | None,
    capacity_fraction: float | None,
    watermarks: tuple[float, float] | None,
    out: Path,
    on_progress: Advance,
) -> StudySummary:
    """Write the caching study of a trace, from `since_s` on. Raises as `write_study`."""
    on_progress(0, 1, "reading")
    return write_study(
        trace.load(keep=DETAILS, since_s=since_s),
        settings,
        what=", ".join((trace.path.name, *trace.only.values())),
        capacity_bytes=capacity_bytes,
        capacity_fraction=capacity_fraction,
        watermarks=watermarks,
        out=out,
        on_progress=on_progress,
    )


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

    The capacity is `capacity_bytes`, else `capacity_fraction` of the bytes of all files read, else the one in
    the settings. `watermarks` also default to the settings. Raises ConfigError, InputError.
    """
    started = time.perf_counter()
    trace = loaded.trace
    share = capacity_fraction or settings.study.capacity_fraction
    capacity = capacity_bytes or int(share * trace.footprint_bytes)
    low, high = watermarks or settings.replay.watermarks
    config = StudyConfig(
        cache=CacheConfig(capacity, low, high, settings.replay.purge_interval),
        thresholds=thresholds(settings.study),
        regions=settings.origin_regions,
        model=settings.benefit.model,
        tier=Tier(settings.benefit.medium, settings.benefit.read_rates[settings.benefit.medium]),
    )
    done = 0

    def advance(stage: str) -> None:
        nonlocal done
        done += 1
        on_progress(done, N_STAGES, stage)

    found = study(trace, loaded.details, config, on_done=advance)
    html = study_page(found, what=what, notes=loaded.notes)
    out.parent.mkdir(parents=True, exist_ok=True)
    files.write(out, html)
    advance("the page")
    return _summary(found, loaded, out, html, time.perf_counter() - started)


def _summary(found: Study, loaded: LoadedTrace, out: Path, html: str, seconds: float) -> StudySummary:
    benefit = found.benefit
    return StudySummary(
        report=str(out),
        size_bytes=len(html.encode()),
        accesses=found.result.requests,
        capacity_bytes=found.config.cache.capacity_bytes,
        hit_ratio=found.result.hit_ratio,
        byte_hit_ratio=found.result.byte_hit_ratio,
        chosen_byte_hit_ratio=None if found.by_verdict is None else found.by_verdict.byte_hit_ratio,
        lru_age_s=found.lru_age_s,
        verdicts={row.name: row.verdict for row in found.categories},
        wan_saved_bytes=found.result.hit_bytes,
        hs06_hours_saved=round(benefit.direct.hs06_hours - benefit.cached.hs06_hours),
        notes=loaded.notes,
        seconds=seconds,
    )


def thresholds(study: StudySettings) -> Thresholds:
    """The verdicts' thresholds from the settings."""
    return Thresholds(
        min_saved_per_byte=study.min_saved_per_byte,
        min_reread_share=study.min_reread_share,
        small_file_bytes=study.small_file,
        many_accesses=study.many_accesses,
    )
