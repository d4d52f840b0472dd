"""What a steward reports of itself, as a test says."""

import dataclasses
from typing import Any

from prefetch.steward.figures import StewardFigures


def steward_figures(**changes: Any) -> StewardFigures:
    """Those of the steward of xc1, which follows LRU and has done nothing; `changes`: other values."""
    fields: dict[str, Any] = dict.fromkeys((field.name for field in dataclasses.fields(StewardFigures)), 0)
    fields |= {"cache": "xc1", "following": "lru", "alarms": {}, "last_hour": {}, "newest": (), "acts": True}
    return StewardFigures(**(fields | changes))
