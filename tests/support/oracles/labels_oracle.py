"""The labels of one file at one time, from all reads."""

from __future__ import annotations

from typing import Any

from features.common.units import duration_label

US = 1_000_000
Hits = dict[tuple[str, int], bool]


def expected(worlds: Any, did: str, as_of_s: int, until_s: int, hits: Hits | None = None) -> dict[str, Any]:
    """The labels by name; `hits`: of each file and second, whether its first read then was a hit."""
    spec = worlds.spec
    seen = [r for r in worlds.reads if r.did == did and r.known < until_s * US and r.at >= as_of_s * US]
    row: dict[str, Any] = {}
    for h in spec.horizons_s:
        n = sum(r.n for r in seen if r.at < (as_of_s + h) * US)
        days = {r.at // (86400 * US) for r in seen if r.at < (as_of_s + h) * US}
        row[f"n_access_within_{duration_label(h)}"] = n if as_of_s + h <= until_s else None
        row[f"n_days_within_{duration_label(h)}"] = len(days) if as_of_s + h <= until_s else None
    longest = as_of_s + max(spec.horizons_s)
    next_at = min((r.at // US for r in seen if r.at < longest * US), default=None)
    if hits is None:
        kept = None
    elif next_at is None:
        kept = False if longest <= until_s else None
    else:
        kept = hits[did, next_at]
    return row | {"next_access_s": None if next_at is None else next_at - as_of_s, "kept": kept}
