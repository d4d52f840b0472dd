"""Keys of partitions: their values, in the order of the table's partition columns."""

from __future__ import annotations

from typing import NamedTuple

from features.common.times import as_of_label, day_label

Key = tuple[str, ...]


class MomentKey(NamedTuple):
    """The partition of one `as_of` and one owner (a region, cache or queue), below its day."""

    day: str
    as_of: str
    owner: str

    @classmethod
    def at(cls, as_of_s: int, owner: str) -> MomentKey:
        """The partition of `owner` at `as_of_s` seconds since 1970."""
        return cls(day_label(as_of_s), as_of_label(as_of_s), owner)
