"""The bytes that each origin may deliver in a cycle: its limit, or none if it failed recently."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from features.common.arrays import IntArray
from jobs.settings.plan import PlanSettings
from prefetch.journal.items import Try
from prefetch.push.origins import Sources
from replay.origins import first_fit

NO_LIMIT = 2**62
_HOUR_S = 3600


def origin_bytes(
    origins: Sequence[str], tries: Sequence[Try], *, plan: PlanSettings, as_of_s: int, cycle_s: int
) -> IntArray | None:
    """Bytes that each of `origins` may deliver in the cycle from `as_of_s`; None: there is no limit.

    `tries`: attempts of earlier pushes, oldest first. An origin that pushes leave alone delivers nothing.
    """
    seen = Sources(plan.source_limits, (one for one in tries if one.at_s < as_of_s))
    per_hour = [source.per_hour for source in plan.sources]
    limit = np.array([*(n * cycle_s // _HOUR_S for n in per_hour), NO_LIMIT], np.int64)
    fits = first_fit(pa.array(origins, pa.string()), [source.hosts for source in plan.sources])
    budget: IntArray = limit[fits]
    budget[[seen.leaves(origin, as_of_s) for origin in origins]] = 0
    return budget if (budget < NO_LIMIT).any() else None
