"""The labels of one file at one time, from all reads."""

from typing import Any

from features.common.units import duration_label

US = 1_000_000


def expected(worlds: Any, did: str, as_of_s: int, until_s: int) -> dict[str, Any]:
    """The labels by name."""
    spec = worlds.spec
    reads = [r for r in worlds.reads if r.did == did and r.known < until_s * US and r.at >= as_of_s * US]
    row: dict[str, Any] = {}
    for h in spec.horizons_s:
        n = sum(r.n for r in reads if r.at < (as_of_s + h) * US)
        days = {r.at // (86400 * US) for r in reads if r.at < (as_of_s + h) * US}
        row[f"n_access_within_{duration_label(h)}"] = n if as_of_s + h <= until_s else None
        row[f"n_days_within_{duration_label(h)}"] = len(days) if as_of_s + h <= until_s else None
    longest = as_of_s + max(spec.horizons_s)
    next_at = min((r.at // US for r in reads if r.at < longest * US), default=None)
    return row | {"next_access_s": None if next_at is None else next_at - as_of_s}
