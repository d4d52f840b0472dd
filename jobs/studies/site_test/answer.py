"""What the measurements say: rates by way of reading, what stood out, and sentences about it."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterator, Sequence

from features.common.units import format_bytes
from jobs.ground.text import percent
from jobs.studies.site_test.measure import Measured, RoundTrip, Run
from jobs.studies.site_test.schedule import COLD, WARM, Kind

_FAR = 5.0
"""Times the median: CERN's study had a few per mille of such reads."""
_LEAST_S = 0.2
"""A read that takes less longer than the median is none that a job would notice."""
_MOST_OUTLIERS = 20
_BUSY = 0.9
ENOUGH = 0.8
"""Share of the highest rate that is worth no more clients: more of it is often chance."""


@dataclasses.dataclass(frozen=True)
class Latency:
    """Round trips to a server: median, and the shortest and longest, in ms; `connect_ms`: with login."""

    place: str
    round_trip_ms: float
    shortest_ms: float
    longest_ms: float
    connect_ms: float


@dataclasses.dataclass(frozen=True)
class Rate:
    """The rate of one way of reading: the median of its `runs`, the lowest and the highest; None: all failed.

    `connections`: `own`, one per client, or `one` of all clients. `open_ms`: median time to open a file.
    `why`: the first failed run did so. `is_busy`: the reading machine had no CPU left, so the rate is a lower
    bound. `in_one_process`: the clients are threads of one job.
    """

    place: str
    reading: str
    clients: int
    loops: int
    streams: int
    connections: str
    rate_bytes_per_s: int | None
    lowest_bytes_per_s: int | None
    highest_bytes_per_s: int | None
    open_ms: float | None
    runs: int
    failed: int
    why: str | None
    is_busy: bool
    in_one_process: bool

    @property
    def per_s(self) -> float:
        """The rate in bytes per second, 0 where all runs failed."""
        return float(self.rate_bytes_per_s or 0)


@dataclasses.dataclass(frozen=True)
class Outlier:
    """A read that took more than 5 times as long as the median of those like it."""

    place: str
    name: str
    reading: str
    clients: int
    round: int
    seconds: float
    median_s: float


def latency(trip: RoundTrip) -> Latency:
    """Round trips in ms."""
    ms = [1000 * one for one in trip.seconds]
    return Latency(trip.place, statistics.median(ms), min(ms), max(ms), 1000 * trip.connect_s)


def rates(measured: Measured, kinds: Sequence[Kind]) -> list[Rate]:
    """The rates of `kinds` that were tried, in their order."""
    return [
        _rate(kind, some) for kind in kinds if (some := [run for run in measured.runs if run.kind == kind])
    ]


def _rate(kind: Kind, runs: Sequence[Run]) -> Rate:
    good = [run for run in runs if run.error is None]
    rates_s = sorted(run.bytes / run.seconds for run in good)
    opens = [one.open_s for run in good for one in run.reads]
    return Rate(
        place=kind.place,
        reading=kind.reading,
        clients=kind.clients,
        loops=kind.loops,
        streams=kind.streams,
        connections="own" if kind.has_own else "one",
        rate_bytes_per_s=round(statistics.median(rates_s)) if rates_s else None,
        lowest_bytes_per_s=round(rates_s[0]) if rates_s else None,
        highest_bytes_per_s=round(rates_s[-1]) if rates_s else None,
        open_ms=1000 * statistics.median(opens) if opens else None,
        runs=len(runs),
        failed=len(runs) - len(good),
        why=next((run.error for run in runs if run.error is not None), None),
        is_busy=bool(good) and statistics.median(run.cpu_share for run in good) >= _BUSY,
        in_one_process=kind.is_job,
    )


def outliers(measured: Measured) -> list[Outlier]:
    """The slowest reads that stand out, the slowest first."""
    slow = list[Outlier]()
    for kind in dict.fromkeys(run.kind for run in measured.runs):
        reads = [(run, one) for run in measured.runs if run.kind == kind for one in run.reads]
        if not reads:
            continue
        median_s = statistics.median(one.seconds for _, one in reads)
        slow += [
            Outlier(
                *(kind.place, one.piece.name, kind.reading, kind.clients),
                *(run.number + 1, one.seconds, median_s),
            )
            for run, one in reads
            if one.seconds > max(_FAR * median_s, median_s + _LEAST_S)
        ]
    return sorted(slow, key=lambda one: -one.seconds)[:_MOST_OUTLIERS]


class RateTable:
    """Rates by what they are of."""

    def __init__(self, rows: Sequence[Rate]) -> None:
        self.rows = [row for row in rows if row.rate_bytes_per_s is not None]
        self.failed = [row for row in rows if row.failed]
        self.origins = list(dict.fromkeys(row.place for row in rows if row.place not in (COLD, WARM)))

    def one(self, place: str, reading: str = "whole") -> Rate | None:
        """Of the fewest clients."""
        rows = [
            row
            for row in self.rows
            if (row.place, row.reading) == (place, reading) and not row.in_one_process
        ]
        return min(rows, key=lambda row: row.clients, default=None)

    def best(self, place: str) -> Rate | None:
        """The highest of any number of clients in processes of their own."""
        rows = [
            row
            for row in self.rows
            if row.place == place and row.reading == "whole" and not row.in_one_process
        ]
        return max(rows, key=lambda row: row.per_s, default=None)

    def enough(self, place: str, share: float = ENOUGH) -> Rate | None:
        """The fewest clients that reach this share of the highest rate."""
        best = self.best(place)
        rows = [
            row
            for row in self.rows
            if row.place == place and row.reading == "whole" and not row.in_one_process
            if best is not None and row.per_s >= share * best.per_s
        ]
        return min(rows, key=lambda row: row.clients, default=None)

    def jobs(self, place: str) -> list[Rate]:
        """Of the multi-threaded job, by its settings."""
        return [row for row in self.rows if row.place == place and row.in_one_process]


def findings(trips: Sequence[Latency], rows: Sequence[Rate]) -> Iterator[str]:
    """Sentences on distance, on what a single job gets, and on what many get together."""
    table = RateTable(rows)
    yield "Round trips: " + ", ".join(f"{one.place} {one.round_trip_ms:.3g} ms" for one in trips) + "."
    for reading in ("whole", "35 %", "5 %"):
        phrases = [
            f"{_told(row)} {_words(place)}"
            for place in (*table.origins, COLD, WARM)
            if (row := table.one(place, reading)) is not None
        ]
        if phrases:
            what = "whole files" if reading == "whole" else f"{reading} of files"
            clients = next(row.clients for row in rows)
            who = "One client reads" if clients == 1 else f"{clients} clients read"
            yield f"{who} {what} at {', '.join(phrases)}."
    phrases = [
        f"{_told(best)} {_words(place)} (by {best.clients})"
        for place in (*table.origins, COLD, WARM)
        if (best := table.best(place)) is not None
    ]
    if phrases and max(row.clients for row in rows) > 1:
        yield f"The most that clients get together: {', '.join(phrases)}."
    opens = [
        f"{row.open_ms:.3g} ms {_words(place)}"
        for place in (*table.origins, COLD, WARM)
        if (row := table.one(place)) is not None and row.open_ms is not None
    ]
    yield f"Opening a file takes {', '.join(opens)}; rates are without it."
    yield from _failures(table.failed)
    for place in table.origins:
        if (slower := slower_by(table, place)) is not None:
            more = "more" if slower >= 0 else "less"
            longer = f"{percent(abs(slower))} {more} time"
            yield f"A read through the empty cache takes {longer} than one from {place}."
    if busy := [row for row in rows if row.is_busy]:
        yield (
            f"At {len(busy)} of {len(rows)} ways of reading this machine's CPU was the limit: their rates "
            "are lower bounds; run the test on a machine with more cores."
        )


def _failures(rows: Sequence[Rate]) -> Iterator[str]:
    """A sentence per place, and apart for several streams, which alone may be what fails."""
    groups = dict[tuple[str, bool], list[Rate]]()
    for row in rows:
        groups.setdefault((row.place, row.streams > 1), []).append(row)
    for some in groups.values():
        more = f" and {len(some) - 1} more ways of reading" if len(some) > 1 else ""
        yield f"Failed: {_way(some[0])}{more}: {some[0].why}."


def slower_by(table: RateTable, origin: str, reading: str = "whole", compute_s: float = 0.0) -> float | None:
    """How much longer a read takes through the empty cache than from `origin`, as a share.

    `compute_s`: what a job computes per byte, and does not read meanwhile.
    """
    cold, direct = table.one(COLD, reading), table.one(origin, reading)
    if cold is None or direct is None:
        return None
    return (compute_s + 1 / cold.per_s) / (compute_s + 1 / direct.per_s) - 1


def _way(row: Rate) -> str:
    """A way of reading, in words."""
    n_clients = f"{row.clients} {'client' if row.clients == 1 else 'clients'}"
    client = f", XRD_PARALLELEVTLOOP={row.loops}, XRD_SUBSTREAMSPERCHANNEL={row.streams}"
    return f"{row.place}, {row.reading}, {n_clients}{client if row.in_one_process else ''}"


def _told(row: Rate) -> str:
    return f"{format_bytes(row.per_s)}/s"


def _words(place: str) -> str:
    return {COLD: "through the empty cache", WARM: "from what the cache holds"}.get(place, f"from {place}")
