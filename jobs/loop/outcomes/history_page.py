"""The page about what plans and a steward earned in a cache."""

from __future__ import annotations

from pathlib import Path

from features.common import files
from jobs.ground.text import OUTCOME_NOTE, Row
from jobs.loop.outcomes.history import History, judged, saved
from jobs.pages.page import Figure, Section, page
from jobs.pages.plots import saved_by_day


def write_page(past: History, *, cache: str, out: Path) -> None:
    """Write the history of a cache as one HTML file."""
    sections = [
        Section(
            "Days against plain LRU",
            "LRU is replayed on the same reads. A day is withheld if the replay of the pushes differs by "
            "more than 2 % from the hit bytes that the cache reports, or if its records are too short. "
            "Shares: of the bytes read, by reads that fetched nothing.",
            _plots(past),
            [_shown(row) for row in past.days],
        ),
        Section(
            "Days of the steward",
            "By its own count: bytes of the files that were read while not on disk, and of those that plain "
            "LRU would not have had on disk.",
            _steward_plots(past),
            past.steward,
        ),
        Section(
            "Model versions",
            f"All items done by pushes for plans of that version. {OUTCOME_NOTE}",
            (),
            past.models,
        ),
        Section("Plans", OUTCOME_NOTE, (), past.plans),
    ]
    html = page(
        title=f"Outcomes of {cache}",
        subtitle="cachecast outcomes",
        answers=[*([verdict(past)] if past.plans or past.days else []), *_steward_answers(past)],
        sections=[section for section in sections if section.rows],
    )
    out.parent.mkdir(parents=True, exist_ok=True)
    files.write(out, html)


def _plots(past: History) -> list[Figure]:
    if not judged(past):
        return []
    return [Figure(saved_by_day(judged(past)), "WAN bytes saved against LRU, per day")]


def _steward_plots(past: History) -> list[Figure]:
    if not past.steward:
        return []
    return [Figure(saved_by_day(past.steward), "WAN bytes saved by the steward against LRU, per day")]


def verdict(past: History) -> str:
    """The verdict on all days in one sentence."""
    days = judged(past)
    if not days:
        return f"No day of {len(past.days)} could be judged."
    return f"{len(days)} of {len(past.days)} days could be judged: on them plans and steward {saved(days)}."


def _steward_answers(past: History) -> list[str]:
    if not past.steward:
        return []
    return [f"By its own count the steward {saved(past.steward)} on {len(past.steward)} days."]


def _shown(row: Row) -> Row:
    columns = (
        *("day", "hit_bytes", "missed_bytes", "prefetched_bytes", "lru_wan_bytes", "saved_wan_bytes"),
        *("planned_hit_share", "planned_lru_hit_share", "control_hit_share", "control_lru_hit_share"),
    )
    return {name: row[name] for name in columns} | {"reason": row["withheld"] or ""}
