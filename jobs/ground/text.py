"""Rows and values as text for people, on the terminal and on pages."""

import dataclasses
import datetime as dt
import math
from collections.abc import Mapping, Sequence
from typing import Any

from features.common.errors import printable
from features.common.units import TOO_FEW_DAYS, format_bytes

Row = Mapping[str, Any]
MODEL_COLUMNS = ("model", "within", "auc", "average_precision", "brier", "calibration_error")
REPLAY_COLUMNS = (
    *("policy", "capacity_bytes", "hit_ratio", "byte_hit_ratio", "wan_bytes"),
    *("prefetch_bytes", "byte_gap_closed"),
)
TRACE_COLUMNS = (
    *("policy", "capacity_bytes", "capacity_fraction", "hit_ratio", "byte_hit_ratio", "wan_bytes"),
    "byte_gap_closed",
)
FLEET_COLUMNS = (
    *("cache", "capacity_bytes", "hit_ratio", "byte_hit_ratio", "wan_bytes"),
    "peak_hour_wan_bytes",
)
LEVEL_COLUMNS = (
    *("cache", "hits", "under_way", "byte_hit_ratio", "in_bytes", "peak_hour_share", "mean_wait_s"),
    "p95_wait_s",
)
CURVE_COLUMNS = (
    *("capacity_bytes", "hit_ratio", "byte_hit_ratio", "doubling_adds_byte_hit_ratio"),
    *("clairvoyant_byte_hit_ratio", "bound_byte_hit_ratio"),
)
EVALUATION_COLUMNS = ("byte_hit_ratio", "byte_gap_closed", "byte_gap_closed_lower", "byte_gap_closed_upper")
PROMOTION_COLUMNS = (*("against", "capacity_fraction", "saving_bytes", "lower_bytes", "upper_bytes"), "won")
FORECAST_COLUMNS = (
    *("horizon", "cuts", "auc", "recency_auc", "average_precision", "recency_average_precision"),
    *("count_error", "last_count_error"),
)
EFFICIENCY_COLUMNS = (
    *("jobs", "cpu_efficiency_share", "failed_share", "wasted_core_hours"),
    *("cpu_efficiency_lower_share", "cpu_efficiency_upper_share"),
)
WORTH_COLUMNS = (
    *("option", "capacity_bytes", "wan_bytes_per_day", "saved_bytes_per_day"),
    *("lower_bytes_per_day", "upper_bytes_per_day"),
)
STORAGE_COLUMNS = (
    *("capacity_bytes", "dropped_bytes", "saved_bytes", "wan_bytes_per_day", "byte_hit_ratio"),
    "nodes",
)
RATE_COLUMNS = (
    *("place", "reading", "clients", "rate_bytes_per_s", "failed"),
    *("lowest_bytes_per_s", "highest_bytes_per_s"),
)
OUTCOME_COLUMNS = (
    *("items", "read_items", "pending_items"),
    *("bytes_saved", "bytes_spent", "bytes_wasted", "bytes_pending"),
)
"""Columns that answer the question on 80 characters; JSON and the tables have all of them."""
_SHARES = ("ratio", "share", "fraction")
OUTCOME_NOTE = (
    "Pending: not read yet, and not expired. Wasted: fetched, and not read before it expired or was gone."
)


def text(key: str, value: object) -> str:
    """A value as text for people; the unit follows from the last word of `key`."""
    match value:
        case None:
            return "–"
        case float() if math.isnan(value):
            return "–"
        case str():
            return printable(value)
        case bool():
            return str(value)
        case int() | float() if "bytes" in key.split("_") and not key.endswith(_SHARES):
            return format_bytes(value)
        case float() if key.endswith(("_s", "seconds")):
            return f"{value:.1f} s"
        case float() if key.endswith(_SHARES) or "closed" in key.split("_"):
            return percent(value, 1)
        case float():
            return f"{value:.4g}"
        case int():
            return count(value)
        case dict():
            return ", ".join(f"{printable(name)}: {text(name, item)}" for name, item in value.items()) or "–"
        case list() | tuple():
            return ", ".join(text(key, item) for item in day_ranges(value)) or "–"
    return str(value)


def day_ranges(items: Sequence[object]) -> Sequence[object]:
    """`items`; if all are days in their order, each run of days as `2026-03-01 to 2026-03-31`."""
    try:
        days = [dt.date.fromisoformat(str(item)).toordinal() for item in items]
    except ValueError:
        return items
    starts = [k for k, day in enumerate(days) if k == 0 or day != days[k - 1] + 1]
    ends = [k - 1 for k in starts[1:]] + [len(days) - 1]
    return [
        str(items[a]) if a == b else f"{items[a]} to {items[b]}" for a, b in zip(starts, ends, strict=False)
    ]


def heading(key: str) -> str:
    """The key of a column as its heading: `wan_bytes_s` is `wan bytes/s`, `failed_share` is `failed`."""
    words = key.removesuffix("_share").replace("_", " ")
    return f"{words[:-2]}/s" if words.endswith("bytes s") else words


def percent(share: float, digits: int = 0) -> str:
    """A share as a percentage, for example `12 %`."""
    return f"{100 * share:z.{digits}f} %"  # z: no minus before a zero


def bounds(lower: float | None, upper: float | None, digits: int = 0) -> str:
    """The bounds of a share, for example `4 % to 49 %`; None: there are too few days for any."""
    if lower is None or upper is None:
        return TOO_FEW_DAYS
    return f"{percent(lower, digits)} to {percent(upper, digits)}"


def count(number: float) -> str:
    """A number without its fraction, for example `1 234 567`."""
    return f"{number:,.0f}".replace(",", " ")


def as_row(item: Any) -> dict[str, object]:
    """The public fields of a dataclass or mapping."""
    return (
        dict(item)
        if isinstance(item, Mapping)
        else {f.name: getattr(item, f.name) for f in dataclasses.fields(item)}
    )


def fleet_columns(rows: Sequence[Row]) -> Sequence[str]:
    """The columns that answer the question for several caches: side by side, or in levels."""
    return LEVEL_COLUMNS if "under_way" in rows[0] else FLEET_COLUMNS


def select(row: Row, columns: Sequence[str]) -> Row:
    return {key: row[key] for key in columns}
