"""What the measurements say: rates by way of reading, sentences about them, settings, and advice."""

import dataclasses
import json
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from features.common.hosts import first_fit, hosts_of
from features.common.units import format_bytes
from jobs.ground.settings.sections import OriginSettings
from jobs.ground.settings.tree import Settings
from jobs.ground.text import percent
from jobs.studies.site_test.measure import Latency, Measured, Run
from jobs.studies.site_test.schedule import COLD, WARM, Kind

_BUSY = 0.9
ENOUGH = 0.8  # share of the highest rate that is worth no more clients: more of it is often chance
_FOR_PUSHES = 0.5  # of what the cache can fetch: the rest is for jobs that miss
_TIMEOUT_STEP_S, _TIMEOUT_TIMES = 30, 2
_WORDS = {COLD: "through the empty cache", WARM: "from what the cache holds"}


@dataclasses.dataclass(frozen=True)
class Rate:
    """The rate of one way of reading: median, lowest and highest of `runs`; None: all failed, first by `why`.

    `open_ms`: median; `is_busy`: the reading machine had no CPU left, so it is a lower bound.
    """

    place: str
    reading: str
    clients: int
    rate_bytes_per_s: int | None
    lowest_bytes_per_s: int | None
    highest_bytes_per_s: int | None
    open_ms: float | None
    runs: int
    failed: int
    why: str | None
    is_busy: bool

    @property
    def per_s(self) -> float:
        return float(self.rate_bytes_per_s or 0)


def rates(measured: Measured, kinds: Sequence[Kind]) -> list[Rate]:
    """The rates of `kinds` that were tried, in their order."""
    return [
        _rate(kind, runs) for kind in kinds if (runs := [run for run in measured.runs if run.kind == kind])
    ]


def _rate(kind: Kind, runs: Sequence[Run]) -> Rate:
    good = [run for run in runs if run.error is None]
    rates_s = sorted(run.bytes / run.seconds for run in good)
    opens = [read.open_s for run in good for read in run.reads]
    return Rate(
        place=kind.place,
        reading=kind.reading,
        clients=kind.clients,
        rate_bytes_per_s=round(statistics.median(rates_s)) if rates_s else None,
        lowest_bytes_per_s=round(rates_s[0]) if rates_s else None,
        highest_bytes_per_s=round(rates_s[-1]) if rates_s else None,
        open_ms=1000 * statistics.median(opens) if opens else None,
        runs=len(runs),
        failed=len(runs) - len(good),
        why=next((run.error for run in runs if run.error is not None), None),
        is_busy=bool(good) and statistics.median(run.cpu_share for run in good) >= _BUSY,
    )


class RateTable:
    """Rates by place, part of a file and number of clients."""

    def __init__(self, rows: Sequence[Rate]) -> None:
        self.rows = [row for row in rows if row.rate_bytes_per_s is not None]
        self.failed = [row for row in rows if row.failed]
        self.origins = list(dict.fromkeys(row.place for row in rows if row.place not in (COLD, WARM)))
        self.places = (*self.origins, COLD, WARM)

    def few(self, place: str, reading: str = "whole", *, at_least: float = 0.0) -> Rate | None:
        """Of the fewest clients that get `at_least` so many bytes per second."""
        rows = [row for row in self.rows if (row.place, row.reading) == (place, reading)]
        return min((row for row in rows if row.per_s >= at_least), key=lambda row: row.clients, default=None)

    def best(self, place: str) -> Rate | None:
        """The highest of whole files, of any number of clients."""
        rows = [row for row in self.rows if (row.place, row.reading) == (place, "whole")]
        return max(rows, key=lambda row: row.per_s, default=None)

    def enough(self, place: str) -> Rate | None:
        """The fewest clients that reach `ENOUGH` of the highest rate."""
        best = self.best(place)
        return best and self.few(place, at_least=ENOUGH * best.per_s)


def findings(trips: Sequence[Latency], rows: Sequence[Rate]) -> Iterator[str]:
    """Sentences on distance, on what a single job gets, and on what many get together."""
    table = RateTable(rows)
    yield "Round trips: " + ", ".join(f"{trip.place} {trip.round_trip_ms:.3g} ms" for trip in trips) + "."
    n_clients = rows[0].clients
    who = "One client reads" if n_clients == 1 else f"{n_clients} clients read"
    for reading in ("whole", "35 %", "5 %"):
        phrases = [
            f"{format_bytes(row.per_s)}/s {_where(row)}"
            for place in table.places
            if (row := table.few(place, reading))
        ]
        if phrases:
            what = "whole files" if reading == "whole" else f"{reading} of files"
            yield f"{who} {what} at {', '.join(phrases)}."
    best = [row for place in table.places if (row := table.best(place))]
    if best and max(row.clients for row in rows) > 1:
        phrases = [f"{format_bytes(row.per_s)}/s {_where(row)} (by {row.clients})" for row in best]
        yield f"The most that clients get together: {', '.join(phrases)}."
    opens = [
        f"{row.open_ms:.3g} ms {_where(row)}"
        for place in table.places
        if (row := table.few(place)) and row.open_ms is not None
    ]
    yield f"Opening a file takes {', '.join(opens)}; rates are without it."
    for place in dict.fromkeys(row.place for row in table.failed):
        first, *others = (row for row in table.failed if row.place == place)
        way = f"{place}, {first.reading}, {first.clients} client{'s' * (first.clients > 1)}"
        more = f" and {len(others)} more ways of reading" if others else ""
        yield f"Failed: {way}{more}: {first.why}."
    for place in table.origins:
        if (slower := slower_by(table, place)) is not None:
            longer = f"{percent(abs(slower))} {'more' if slower >= 0 else 'less'} time"
            yield f"A read through the empty cache takes {longer} than one from {place}."
    if busy := [row for row in rows if row.is_busy]:
        yield (
            f"At {len(busy)} of {len(rows)} ways of reading this machine's CPU was the limit: their rates "
            "are lower bounds; run the test on a machine with more cores."
        )


def slower_by(table: RateTable, origin: str, reading: str = "whole", compute_s: float = 0.0) -> float | None:
    """How much longer a read is through the empty cache, as a share; `compute_s`: a job's, per byte."""
    cold, direct = table.few(COLD, reading), table.few(origin, reading)
    if cold is None or direct is None:
        return None
    return (compute_s + 1 / cold.per_s) / (compute_s + 1 / direct.per_s) - 1


def advice(rows: Sequence[Rate]) -> Iterator[str]:
    """Sentences for those who run jobs: how many clients together, and what not to read sparsely."""
    table = RateTable(rows)
    for place in (*table.origins, WARM):
        few, enough = table.few(place), table.enough(place)
        start = "From what the cache holds" if place == WARM else f"From {place}"
        if few is not None and enough is not None and enough.clients > few.clients:
            yield (
                f"{start}, {enough.clients} clients together get "
                f"{enough.per_s / few.per_s:.1f} times the rate of {few.clients}; more gain little."
            )
        sparse = table.few(place, "5 %")
        if few is not None and sparse is not None and sparse.per_s * 20 < few.per_s:
            yield (
                f"{start}, reading 5 % of a file takes longer than reading all of it: copy "
                "the file first, or let ROOT read more per request (TTreeCache)."
            )


def _where(row: Rate) -> str:
    return _WORDS.get(row.place, f"from {row.place}")


def toml(
    settings: Settings,
    origins: Mapping[str, str],
    trips: Sequence[Latency],
    rows: Sequence[Rate],
    *,
    largest_bytes: int,
    what: str,
) -> str:
    """`[regions]`, `[benefit]` and `[push]` for the site's settings; `origins`: their URLs by place.

    `what`: the measurement, for comments. `largest_bytes`: of the files that pushes fetch.
    """
    table = RateTable(rows)
    parts = [
        _regions(settings.regions, origins, {trip.place: trip.round_trip_ms for trip in trips}),
        _benefit(settings, trips, table),
        _push(settings.push.timeout, table, largest_bytes),
    ]
    tables = ["\n".join(lines) for part in parts if len(lines := list(part)) > 1]
    return "\n\n".join([f"# {what}", *tables])


def _regions(
    known: Mapping[str, OriginSettings], origins: Mapping[str, str], round_trips: Mapping[str, float]
) -> Iterator[str]:
    """An origin's round trip becomes that of the region that it belongs to, or of one of its own."""
    yield "[regions]"
    urls = pa.array(origins.values(), pa.string())
    names, fits = [*known, ""], first_fit(urls, [region.hosts for region in known.values()]).tolist()
    places = dict[str, list[str]]()
    for place, host, fit in zip(origins, hosts_of(urls).to_pylist(), fits, strict=True):
        places.setdefault(names[fit] or host, []).append(place)
    for region, some in places.items():
        hosts = list(known[region].hosts) if region in known else [region]
        ms = statistics.median(round_trips[place] for place in some)
        measured = ", ".join(f"{place} {round_trips[place]:.3g} ms" for place in some)
        pair = f"hosts = {json.dumps(hosts)}, rtt_ms = {ms:.3g}"
        yield f"{json.dumps(region)} = {{ {pair} }}  # measured: {measured}"


def _benefit(settings: Settings, trips: Sequence[Latency], table: RateTable) -> Iterator[str]:
    yield "[benefit]"
    cache_ms = next(trip.round_trip_ms for trip in trips if trip.place not in table.origins)
    yield f"cache_rtt_ms = {cache_ms:.3g}"
    rate = settings.benefit.job_read_rate
    slower = [slower_by(table, place, "35 %", 1 / rate) for place in table.origins]
    if known := [share for share in slower if share is not None]:
        basis = f"of a job that computes {format_bytes(rate)} per second and reads 35 % of files"
        yield f"miss_slowdown = {max(0.0, statistics.median(known)):.3f}  # {basis}"
    locally = min(point.cpu_efficiency for point in settings.benefit.points[:1])
    for place in (*table.origins, WARM):
        if (row := table.few(place, "35 %")) is not None:
            yield (
                f"# {place}: a job that computes {format_bytes(rate)} per second and waits for each read has "
                f"a CPU efficiency of at most {percent(locally * row.per_s / (row.per_s + rate))}"
            )


def _push(timeout_s: int, table: RateTable, largest_bytes: int) -> Iterator[str]:
    yield "[push]"
    enough, best = table.enough(COLD), table.best(COLD)
    if enough is None or best is None:
        return
    yield f"parallel = {enough.clients}  # the fewest with {percent(ENOUGH)} of the highest rate"
    rate = _FOR_PUSHES * best.per_s
    basis = "half of what the cache fetched at its best; jobs need the rest"
    yield f'bytes_per_s = "{max(1, round(rate / 1e6))}MB"  # {basis}'
    needed_s = _TIMEOUT_TIMES * largest_bytes * enough.clients / enough.per_s
    steps = math.ceil(max(needed_s, timeout_s) / _TIMEOUT_STEP_S)
    basis = f"for a file of {format_bytes(largest_bytes)} among {enough.clients}"
    yield f'timeout = "{steps * _TIMEOUT_STEP_S}s"  # {basis}'
