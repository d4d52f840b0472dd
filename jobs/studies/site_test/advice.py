"""Settings and advice that follow from what was measured."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from features.common.hosts import first_fit, hosts_of
from features.common.units import format_bytes
from jobs.ground.settings.study import OriginSettings
from jobs.ground.settings.tree import Settings
from jobs.ground.text import percent
from jobs.studies.site_test.answer import ENOUGH, Latency, Rate, RateTable, slower_by
from jobs.studies.site_test.schedule import COLD, WARM

_BETTER = 1.1
"""So many times as fast must a setting make the client, in its slowest run against the fastest without."""
_FEWEST_RUNS = 3
_FOR_PUSHES = 0.5
"""Of what the cache can fetch: the rest is for jobs that miss."""
_TIMEOUT_STEP_S, _TIMEOUT_TIMES = 30, 2


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
    parts = [
        _regions(settings.regions, origins, {one.place: one.round_trip_ms for one in trips}),
        _benefit(settings, trips, RateTable(rows)),
        _push(settings.push.timeout, RateTable(rows), largest_bytes),
    ]
    tables = ["\n".join(lines) for part in parts if len(lines := list(part)) > 1]
    return "\n\n".join([f"# {what}", *tables])


def _regions(
    known: Mapping[str, OriginSettings], origins: Mapping[str, str], round_trips: Mapping[str, float]
) -> Iterator[str]:
    """An origin's round trip becomes that of the region that it belongs to, or of one of its own."""
    yield "[regions]"
    urls = pa.array(origins.values(), pa.string())
    names, fits = [*known, ""], first_fit(urls, [one.hosts for one in known.values()]).tolist()
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
    cache_ms = next(one.round_trip_ms for one in trips if one.place not in table.origins)
    yield f"cache_rtt_ms = {cache_ms:.3g}"
    rate = settings.benefit.job_read_rate
    slower = [slower_by(table, place, "35 %", 1 / rate) for place in table.origins]
    if known := [one for one in slower if one is not None]:
        basis = f"of a job that computes {format_bytes(rate)} per second and reads 35 % of files"
        yield f"miss_slowdown = {max(0.0, statistics.median(known)):.3f}  # {basis}"
    for place, row in ((place, table.one(place, "35 %")) for place in (*table.origins, WARM)):
        if row is not None:
            most = (
                min(one.cpu_efficiency for one in settings.benefit.points[:1])
                * row.per_s
                / (row.per_s + rate)
            )
            yield (
                f"# {place}: a job that computes {format_bytes(rate)} per second and waits for each read has "
                f"a CPU efficiency of at most {percent(most)}"
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


def advice(rows: Sequence[Rate]) -> str:
    """A paragraph for those who run jobs: settings of the XRootD client, and how to read."""
    table = RateTable(rows)
    sentences = [one for place in (WARM, *table.origins[:1]) for one in _of_client(table, place)]
    for place in (*table.origins, WARM):
        one, enough = table.one(place), table.enough(place)
        if one is not None and enough is not None and enough.clients > one.clients:
            sentences.append(
                f"{_from(place)}, {enough.clients} clients together get {enough.per_s / one.per_s:.1f} times "
                f"the rate of {one.clients}; more gain little."
            )
    sentences += _of_sparse(table)
    best = {place: table.best(place) for place in (COLD, WARM)}
    if best[COLD] is not None and best[WARM] is not None:
        network, cache = (format_bytes(best[place].per_s).replace(" ", "") for place in (COLD, WARM))  # type: ignore[union-attr]
        sentences.append(
            f"How much to cache: cachecast cached-fraction --network {network} --cache-read {cache}"
        )
    return " ".join(sentences)


def _of_client(table: RateTable, place: str) -> Iterator[str]:
    """Whether a setting of a multi-threaded job's client makes it faster beyond the spread of the runs."""
    rows = table.jobs(place)
    down = {row.place for row in table.failed if row.streams == 1}
    alone = [row for row in table.failed if row.streams > 1 and row.place not in down]
    failing = [row.streams for row in alone]  # a job has one setting for all places
    if any(row.place == place for row in alone):
        setting = f"XRD_SUBSTREAMSPERCHANNEL={min(failing)}"
        yield f"{_from(place)}, never set {setting} or more: reads failed or hung."
    rows = [row for row in rows if not failing or row.streams < min(failing)]
    base = next((row for row in rows if row.streams == 1 and row.connections == "one"), None)
    if base is None or len(rows) < 2:
        return
    best = max(rows, key=lambda row: row.per_s)
    if min(best.runs, base.runs) < _FEWEST_RUNS or (best.lowest_bytes_per_s or 0) < _BETTER * (
        base.highest_bytes_per_s or 0
    ):
        yield (
            f"{_from(place)}, no setting of the client makes a job of {base.clients} threads faster than "
            f"XRD_PARALLELEVTLOOP={base.loops}, beyond the spread of the runs."
        )
        return
    advised = [f"XRD_PARALLELEVTLOOP={best.loops}"] if best.loops != base.loops or best.streams > 1 else []
    advised += [f"XRD_SUBSTREAMSPERCHANNEL={best.streams}"] if best.streams > 1 else []
    advised += (
        ["a connection per thread (another user name in each URL: root://t1@host/)"]
        if best.connections == "own"
        else []
    )
    yield (
        f"{_from(place)}, give a job of {base.clients} threads {' and '.join(advised)}: "
        f"{best.per_s / base.per_s:.1f} times the rate of one connection with "
        f"XRD_PARALLELEVTLOOP={base.loops}."
    )


def _of_sparse(table: RateTable) -> Iterator[str]:
    """Where sparse reads wait for round trips."""
    for place in (*table.origins, WARM):
        whole, sparse = table.one(place), table.one(place, "5 %")
        if whole is not None and sparse is not None and sparse.per_s * 20 < whole.per_s:
            yield (
                f"{_from(place)}, reading 5 % of a file takes longer than reading all of it: copy the file "
                "first, or let ROOT read more per request (TTreeCache)."
            )


def _from(place: str) -> str:
    return {WARM: "From the cache", COLD: "Through the empty cache"}.get(place, f"From {place}")
