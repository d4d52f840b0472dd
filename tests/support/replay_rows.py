"""Rows of replays for pages, whose figures have no meaning."""

from typing import Any

CAPACITY_BYTES = 10**12


def replay_row(policy: str, wan_bytes: int) -> dict[str, Any]:
    """A row of a policy, with all columns that pages show."""
    counts = dict.fromkeys(("requests", "hits", "bytes_requested", "prefetch_bytes", "wasted_bytes"), 10)
    sizes = dict.fromkeys(("refetch_bytes", "peak_usage_bytes", "peak_hour_wan_bytes"), 1)
    ratios = {"hit_ratio": 0.5, "byte_hit_ratio": 0.5, "capacity_fraction": 0.1, "seconds": 0.1}
    gaps = {"byte_gap_closed": 0.1, "object_gap_closed": 0.1}
    row = {"policy": policy, "capacity_bytes": CAPACITY_BYTES, "wan_bytes": wan_bytes}
    return row | counts | sizes | ratios | gaps
