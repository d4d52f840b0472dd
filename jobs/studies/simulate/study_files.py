"""The study's sections on files: categories, sizes, and how often and how long they are read."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from features.common.arrays import IntArray
from features.common.units import format_bytes
from jobs.ground.text import percent
from jobs.pages.page import Figure, Section
from jobs.studies.simulate import study_plots
from replay.study.categories import age_text
from replay.study.study import Study


def file_sections(found: Study) -> Sequence[Section]:
    """Categories with their verdicts, sizes, hotness, lifetimes and reuse by size."""
    return [
        _verdicts(found),
        _categories(found),
        _sizes(found),
        _hotness(found),
        _lifetimes(found),
        _quadrants(found),
    ]


def _verdicts(found: Study) -> Section:
    least = found.config.thresholds.min_saved_per_byte
    return Section(
        title="What to cache",
        note=f"A category is worth caching if each byte fetched for it saves at least {least:g} bytes of WAN "
        "traffic. Categories that are read again too rarely for any cache are excluded first; the others are "
        f"judged in a cache without them. {_age(found)}.",
        rows=[
            {"category": row.name, "verdict": row.verdict, "reason": row.reason} for row in found.categories
        ],
    )


def _categories(found: Study) -> Section:
    rows = found.categories
    hit_bytes = [row.sums.hit_bytes for row in rows]
    missed = [row.sums.requested_bytes - row.sums.hit_bytes for row in rows]
    return Section(
        title="Categories",
        note="Hatched bars are bytes that still cross the WAN. All categories share one cache; compare them "
        "by the bytes saved per byte fetched.",
        figures=[
            Figure(
                study_plots.served([row.name for row in rows], hit_bytes, missed),
                "Bytes requested by category: from the cache, and over the WAN",
            )
        ]
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


def _age(found: Study) -> str:
    if found.lru_age_s is None:
        return "With everything admitted, every re-read was a hit"
    return (
        f"With everything admitted, files not read for {age_text(found.lru_age_s)} are mostly evicted (the "
        "LRU age: the time that best separates hits from misses)"
    )


def _sizes(found: Study) -> Section:
    return Section(
        title="File sizes",
        note="Where the two lines differ, few files hold most of the bytes.",
        figures=[
            Figure(
                study_plots.size_distribution(found.sizes), "Share of files and of their bytes by file size"
            )
        ],
    )


def _hotness(found: Study) -> Section:
    rows = found.hotness
    files, accesses = sum(row.files for row in rows), sum(row.accesses for row in rows)
    names = [_times(row.least, row.most) for row in rows]
    series = {
        "files": [row.files / files for row in rows],
        "accesses": [row.accesses / accesses for row in rows],
    }
    once = next((row.files / files for row in rows if row.most == 1), 0.0)
    return Section(
        title="Hotness",
        note=f"{percent(once, 1)} of the files are read once and cannot hit. In the right plot, a straight "
        "falling line is a power law; the steeper it is, the more a small cache serves.",
        figures=[
            Figure(
                study_plots.grouped_shares(names, series, xlabel="accesses of a file"),
                "Files and accesses by count",
            ),
            Figure(study_plots.rank_plot(found.ranks), "Accesses of a file against its rank"),
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


def _lifetimes(found: Study) -> Section:
    lifetimes = found.lifetimes
    age = _middle(lifetimes.hits_by_age)
    return Section(
        title="Hits by lifetime",
        note="A file's lifetime is the time from its first access to its last. Half of all hits come within "
        f"{'a day' if age == 1 else f'{age} days'} of a file's first access. Far to the right are files that "
        "are read for a long time."
        if found.result.hits
        else "There was no hit.",
        figures=[
            Figure(study_plots.hits_by_days(lifetimes, by="lifetime"), "Hits by the lifetime of their file"),
            Figure(study_plots.hits_by_days(lifetimes, by="age"), "Hits by the age of the file at the hit"),
        ],
    )


def _middle(hits_by_day: IntArray) -> int:
    """The number of days within which half of the hits fall."""
    running = np.cumsum(hits_by_day)
    return int(np.searchsorted(running, running[-1] / 2)) + 1


def _quadrants(found: Study) -> Section:
    limits = found.config.thresholds
    rows = found.quadrants
    columns = {
        "files": [row.files for row in rows],
        "bytes": [row.footprint_bytes for row in rows],
        "hits": [row.hits for row in rows],
    }
    shares = {name: [value / max(1, sum(values)) for value in values] for name, values in columns.items()}
    return Section(
        title="Reuse by size",
        note=f"Small files have up to {format_bytes(limits.small_file_bytes)}; many accesses are "
        f"{limits.many_accesses} or more. Files that are small and read often are the best to cache: they "
        "give many hits for few bytes.",
        figures=[
            Figure(
                study_plots.grouped_shares([f"{row.size},\n{row.use}" for row in rows], shares),
                "Shares of files, bytes and hits by size and use",
            )
        ],
        rows=[
            {
                "files that are": f"{row.size}, {row.use}",
                "files": row.files,
                "accesses": row.accesses,
                "bytes_of_files": row.footprint_bytes,
                "hits": row.hits,
                "hit_bytes": row.hit_bytes,
            }
            for row in rows
        ],
    )
