"""What a comparison of policies found, in sentences; and its rows in the order of merit."""

import itertools
from collections.abc import Iterator, Sequence

from features.common.units import format_bytes
from features.results import CHALLENGER_PLAN, LRU, STEWARD
from jobs.ground.text import Row, bounds, percent
from replay.comparison import BOUND
from replay.policies import CLAIRVOYANTS

NAMES = {STEWARD: "a steward", CHALLENGER_PLAN: "a plan by the new model"}
KNOWING = (BOUND, *CLAIRVOYANTS)  # what knows the future, and so cannot be had


def by_merit(rows: Sequence[Row], capacity: str) -> list[Row]:
    """The rows by column `capacity`, then by WAN bytes: the bound first, then the best."""
    return sorted(rows, key=lambda row: (row[capacity], row["wan_bytes"], row["policy"] != BOUND))


def verdict(rows: Sequence[Row], capacity: str) -> str:
    """Which policy of those that know no future fetches least, and how much less than LRU."""
    best = [
        (min(fair, key=lambda row: (row["wan_bytes"], row["policy"] != LRU)), _lru(group))
        for group in _groups(rows, capacity)
        if (fair := [row for row in group if row["policy"] not in KNOWING])
    ]
    if not best:
        return "Nothing that could be run was compared."
    if len(best) == 1 or all(lru is None for _, lru in best):
        row, lru = best[0]
        return _saving(row, lru, capacity) if lru is not None else f"Least WAN traffic: {_name(row)}."
    wins = itertools.groupby(best, key=lambda pair: pair[0]["policy"])
    where = [
        f"{_name(pairs[0][0])} at {sizes([row for row, _ in pairs], capacity)}"
        for pairs in (list(group) for _, group in wins)
    ]
    shares = [1 - row["wan_bytes"] / max(1, lru["wan_bytes"]) for row, lru in best if lru is not None]
    gaps = [row["byte_gap_closed"] for row, _ in best if row.get("byte_gap_closed") is not None]
    closed = f", {_span(gaps)} of the gap to the bound" if gaps else ""
    return (
        f"Least WAN traffic without knowing the future: {', '.join(where)}; {_span(shares)} less than "
        f"LRU{closed}."
    )


def savings(rows: Sequence[Row], capacity: str, of: Sequence[str]) -> Iterator[str]:
    """How much WAN traffic each policy in `of` saves against LRU, a sentence per capacity that has both."""
    for group in _groups(rows, capacity):
        lru = _lru(group)
        if lru is not None:
            yield from (_saving(row, lru, capacity) for row in group if row["policy"] in of)


def _saving(row: Row, lru: Row, capacity: str) -> str:
    if row["policy"] == LRU:
        return f"At {sizes([row], capacity)}, no policy that was compared fetches less than LRU."
    saved = lru["wan_bytes"] - row["wan_bytes"]
    share = abs(saved) / max(1, lru["wan_bytes"])
    gap = row.get("byte_gap_closed")
    limits = (row.get("byte_gap_closed_lower"), row.get("byte_gap_closed_upper"))
    closed = "" if gap is None else f", {percent(gap)} of the gap ({bounds(*limits)})"
    every = f" every {row['cycle']}" if row.get("cycle") else ""
    return (
        f"At {sizes([row], capacity)}, {_name(row)}{every} {'saves' if saved >= 0 else 'costs'} "
        f"{format_bytes(abs(saved))} of WAN traffic against LRU ({percent(share, 1)}){closed}."
    )


def _groups(rows: Sequence[Row], capacity: str) -> list[list[Row]]:
    return [
        list(group) for _, group in itertools.groupby(by_merit(rows, capacity), lambda row: row[capacity])
    ]


def _lru(group: Sequence[Row]) -> Row | None:
    return next((row for row in group if row["policy"] == LRU), None)


def _name(row: Row) -> str:
    return NAMES.get(str(row["policy"]), str(row["policy"]))


def sizes(rows: Sequence[Row], capacity: str) -> str:
    """The capacities of `rows`, for example `50 TB and 100 TB`."""
    if capacity == "capacity_bytes":
        return " and ".join(format_bytes(row[capacity]) for row in rows)
    return f"{' and '.join(percent(row[capacity], 1) for row in rows)} of the bytes read"


def _span(shares: Sequence[float]) -> str:
    low, high = percent(min(shares), 1), percent(max(shares), 1)
    return low if low == high else f"{low} to {high}"
