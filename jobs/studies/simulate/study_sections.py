"""The sections of the study's page, each with a sentence on how to read it: on files, and on the cache."""

import datetime as dt
from collections.abc import Iterator, Sequence

import numpy as np

from features.common.times import DAY_S
from features.common.units import format_bytes
from jobs.ground.text import percent
from jobs.pages import plots
from jobs.pages.page import Figure, Section
from jobs.studies.simulate import study_plots
from replay.result import Fill
from replay.study.categories import age_text
from replay.study.study import Benefit, Study

UNKNOWN_DISTANCE = (
    "No CPU hours: the distance of no origin is known. Name the column of origins (--columns origin=NAME), "
    "and their regions with a round trip in [regions]."
)


def file_sections(results: Study) -> Sequence[Section]:
    """Categories with their verdicts, sizes, hotness, and ages at hits."""
    parts = (_what_to_cache, _categories, _sizes, _hotness, _ages)
    return [part(results) for part in parts]


def _what_to_cache(results: Study) -> Section:
    least = results.config.thresholds.min_saved_per_byte
    return Section(
        title="What to cache",
        note=f"A category is worth caching if each byte fetched for it saves at least {least:g} bytes of WAN "
        "traffic. Categories that are read again too rarely for any cache are excluded first; the others are "
        f"judged in a cache without them. {_age(results)}.",
        rows=[
            {"category": row.name, "verdict": row.verdict, "reason": row.reason} for row in results.categories
        ],
    )


def _categories(results: Study) -> Section:
    rows = results.categories
    hit_bytes = [row.sums.hit_bytes for row in rows]
    missed = [row.sums.requested_bytes - row.sums.hit_bytes for row in rows]
    plot = study_plots.served([row.name for row in rows], hit_bytes, missed)
    return Section(
        title="Categories",
        note="Hatched bars are bytes that still cross the WAN. All categories share one cache; compare them "
        "by the bytes saved per byte fetched.",
        figures=[Figure(plot, "Bytes requested by category: from the cache, and over the WAN")]
        if len(rows) > 1
        else [],
        rows=[
            {
                "category": row.name,
                "accesses": row.sums.accesses,
                "unique files": row.sums.files,
                "mean_size_bytes": row.sums.footprint_bytes / row.sums.files,
                "accessed_bytes": row.sums.requested_bytes,
                "re-read_share": row.sums.rereads / row.sums.accesses,
                "hits": row.sums.hits,
                "hit_ratio": row.sums.hits / row.sums.accesses,
                "hit_bytes": row.sums.hit_bytes,
                "byte_hit_ratio": row.sums.hit_bytes / max(1, row.sums.requested_bytes),
                "saved per byte fetched": row.sums.saved_per_byte,
            }
            for row in rows
        ],
    )


def _age(results: Study) -> str:
    if results.lru_age_s is None:
        return "With everything admitted, every re-read was a hit"
    return (
        f"With everything admitted, files not read for {age_text(results.lru_age_s)} are mostly evicted (the "
        "LRU age: the time that best separates hits from misses)"
    )


def _sizes(results: Study) -> Section:
    note = "Where the two lines differ, few files hold most of the bytes."
    plot = study_plots.size_distribution(results.sizes)
    return Section("File sizes", note, [Figure(plot, "Share of files and of their bytes by file size")])


def _hotness(results: Study) -> Section:
    rows = results.hotness
    files, accesses = sum(row.files for row in rows), sum(row.accesses for row in rows)
    names = [_times(row.least, row.most) for row in rows]
    series = {
        "files": [row.files / files for row in rows],
        "accesses": [row.accesses / accesses for row in rows],
    }
    by_count = study_plots.grouped_shares(names, series, xlabel="accesses of a file")
    once = next((row.files / files for row in rows if row.most == 1), 0.0)
    return Section(
        title="Hotness",
        note=f"{percent(once, 1)} of the files are read once and cannot hit. In the right plot, a straight "
        "falling line is a power law; the steeper it is, the more a small cache serves.",
        figures=[
            Figure(by_count, "Files and accesses by count"),
            Figure(study_plots.rank_plot(results.ranks), "Accesses of a file against its rank"),
        ],
        rows=[
            {
                "accesses of a file": name,
                "files": row.files,
                "files_share": row.files / files,
                "accesses": row.accesses,
                "accesses_share": row.accesses / accesses,
                "accessed_bytes": row.requested_bytes,
            }
            for name, row in zip(names, rows, strict=True)
        ],
    )


def _times(least: int, most: int | None) -> str:
    if most is None:
        return f"{least}+"
    return str(least) if least == most else f"{least}–{most}"


def _ages(results: Study) -> Section:
    running = np.cumsum(results.hits_by_age.hits)
    days = int(np.searchsorted(running, running[-1] / 2)) + 1  # half of the hits fall within them
    note = (
        f"Half of all hits come within {'a day' if days == 1 else f'{days} days'} of a file's first access."
    )
    return Section(
        title="Hits by age",
        note=note if results.result.hits else "There was no hit.",
        figures=[
            Figure(study_plots.hits_by_days(results.hits_by_age), "Hits by the age of the file at the hit")
        ],
    )


def cache_sections(results: Study) -> Sequence[Section]:
    """Hit rate against capacity, fill level, days, origins, and WAN and CPU time saved."""
    by_activity = [_activities] if results.activities else []
    parts = (_capacity, _fill, _daily_hits, _origins, *by_activity, _benefit)
    return [part(results) for part in parts]


def _capacity(results: Study) -> Section:
    plot = study_plots.hits_against_capacity(results.curve, results.ideal)
    return Section(
        title="Hit rate against capacity",
        note="The lines show what an LRU without watermarks serves at each capacity: exactly from the size "
        f"of the largest file, {format_bytes(results.curve.exact_from_bytes)}, on. Triangles are a policy "
        "that knows the future and admits everything; no policy can exceed the bound (diamonds). Where the "
        "line is steep, more disk pays. The distance from line to diamond is what a better policy could gain "
        "at most. A capacity picked at the top is marked here and chosen in the table; the other parts of "
        "the page are of the cache of the study.",
        figures=[Figure(plot, "Accesses and bytes served against capacity")],
        rows=[
            {
                "capacity_bytes": point.capacity_bytes,
                "LRU byte_hit_ratio": point.lru,
                "clairvoyant byte_hit_ratio": point.clairvoyant,
                "bound byte_hit_ratio": point.bound,
            }
            for point in results.ideal
        ],
    )


def _fill(results: Study) -> Section:
    cache, result = results.config.cache, results.result
    plot = plots.fill_level(
        {"": list(_peaks(result.fill))},
        capacity_bytes=cache.capacity_bytes,
        watermarks=(cache.low_watermark, cache.high_watermark),
    )
    return Section(
        title="Fill level",
        note=f"Every {cache.purge_interval_s} s, if usage is above the high watermark, the oldest files are "
        f"purged down to the low one. The cache held {format_bytes(result.peak_usage_bytes)} at most; "
        f"{format_bytes(result.bypassed_bytes)} were read past it because they did not fit.",
        figures=[Figure(plot, "Fill level over time, with both watermarks")],
    )


def _peaks(fill: Fill) -> Iterator[tuple[dt.datetime, int]]:
    """The highest level of each of at most some `study_plots.MAX_POINTS` intervals, at its start."""
    starts = np.arange(0, fill.time_s.size, max(1, fill.time_s.size // study_plots.MAX_POINTS))
    highest = np.maximum.reduceat(fill.used_bytes, starts)
    for at, used in zip(fill.time_s[starts].tolist(), highest.tolist(), strict=True):
        yield dt.datetime.fromtimestamp(at, dt.UTC), used


def _daily_hits(results: Study) -> Section:
    daily = results.result.daily
    plot = plots.hits_and_misses_over_time(daily.day * DAY_S, daily.hits, daily.misses)
    return Section(
        title="Hits and misses per day",
        note="Steps are days (UTC); lines are the mean of each day and the 13 days before it. The first days "
        "have fewer hits than a cache in service, which is never empty.",
        figures=[Figure(plot, "Hits and misses per day, with the two-week running mean")],
    )


def _origins(results: Study) -> Section:
    rows = results.origins
    files, in_bytes = sum(row.files for row in rows), sum(row.footprint_bytes for row in rows)
    shares = {
        "files": [row.files / files for row in rows],
        "bytes of files": [row.footprint_bytes / max(1, in_bytes) for row in rows],
    }
    plot = study_plots.grouped_shares([row.label for row in rows], shares)
    return Section(
        title="Origins",
        note="Where the files came from at their first access, by the regions of the configuration; hosts "
        "that match none are unknown. Distant origins with many bytes gain most from a cache.",
        figures=[Figure(plot, "Shares of files and bytes by origin")] if len(rows) > 1 else [],
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


def _activities(results: Study) -> Section:
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
            for part in results.activities
        ],
    )


def left_out(benefit: Benefit) -> str:
    """That a saving is not of all bytes, in a sentence, if it is not."""
    if benefit.known_share == 1:
        return ""
    return f" Of the {percent(benefit.known_share, 1)} of the bytes whose origins have a known distance."


def _benefit(results: Study) -> Section:
    benefit, model = results.benefit, results.config.model
    if benefit is None:
        return Section(title="WAN traffic and CPU time saved", note=UNKNOWN_DISTANCE)
    cases = {"no cache": (benefit.direct, 0), "LRU": (benefit.cached, int(results.use.hit_bytes.sum()))}
    if benefit.by_verdict is not None and results.by_verdict is not None:
        cases["LRU by the verdicts"] = benefit.by_verdict, int(results.by_verdict.hit_bytes.sum())
    rate = format_bytes(model.job_read_rate_bytes_s)
    plot = study_plots.hours(list(cases), [cost.hs06_hours for cost, _ in cases.values()])
    return Section(
        title="WAN traffic and CPU time saved",
        note=f"Based on {_basis(results)}. A job reads {rate} per second of CPU time, and a core has "
        f"{model.hs06_per_core:g} HS06. This is a model, not a measurement.{left_out(benefit)}",
        figures=[Figure(plot, "HS06-hours of the jobs, without a cache and with it")],
        rows=[
            {
                "reading through": name,
                "WAN_bytes": results.result.bytes_requested - hit_bytes,
                "CPU_efficiency_ratio": cost.cpu_efficiency,
                "core-hours": round(cost.core_hours),
                "HS06-hours": round(cost.hs06_hours),
                "HS06-hours saved": round(benefit.direct.hs06_hours - cost.hs06_hours),
            }
            for name, (cost, hit_bytes) in cases.items()
        ],
    )


def _basis(results: Study) -> str:
    model = results.config.model
    slower = (
        f", a miss {percent(model.miss_slowdown)} slower than a direct read" if model.miss_slowdown else ""
    )
    return (
        "the published CPU efficiencies at each origin's round-trip time, hits read from "
        f"{model.medium.name}{slower}"
    )
