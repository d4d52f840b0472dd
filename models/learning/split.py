"""Splits of decision times in time."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from features.common.errors import ModelError
from features.common.units import duration_label


@dataclasses.dataclass(frozen=True)
class Split:
    """Two sets of as_ofs, each in order: all labels of `before` are known when `after` begins."""

    before: tuple[int, ...]
    after: tuple[int, ...]


def time_split(as_ofs: Sequence[int], *, horizon_s: int, share: float) -> Split:
    """Split off the last `share` of the as_ofs; `before` ends at least one horizon before they begin.

    Raises ModelError if either part is empty.
    """
    known = sorted(set(as_ofs))
    n_after = min(max(1, round(len(known) * share)), len(known))
    after = known[len(known) - n_after :]
    before = [a for a in known if after and a + horizon_s <= after[0]]
    if not before or not after:
        raise ModelError(
            f"{len(known)} decision times are too few: tests must be a horizon, {duration_label(horizon_s)}, "
            "later than what is learned; run `cachecast features` for more days, or choose shorter horizons"
        )
    return Split(tuple(before), tuple(after))
