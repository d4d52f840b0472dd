"""`cachecast site-test`: choose, measure, clean up, and say what was found."""

import dataclasses
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import pyarrow as pa

from features.common.errors import ConfigError, InputError, TargetUnavailable
from features.common.hosts import hosts_of
from features.common.progress import Advance
from features.common.times import as_of_label
from features.common.units import duration_label, format_bytes
from jobs.ground.caches.inventory import target
from jobs.ground.settings.tree import CacheSettings, Settings
from jobs.ground.store.tables import Tables
from jobs.studies.site_test import answer, files
from jobs.studies.site_test.answer import Rate
from jobs.studies.site_test.files import Fetched
from jobs.studies.site_test.measure import Latency, Measured, Measuring, latency
from jobs.studies.site_test.schedule import COLD, WARM, Limits, Server, kinds
from prefetch.xcache import server
from prefetch.xcache.client import SERVER_URL, XCacheTarget


@dataclasses.dataclass(frozen=True)
class SiteTest:
    """What a test of a cache and its origins found.

    `read_bytes`: of the files, per reading of all of them. `failures`: places that failed, and why; the
    command then ends with 1. `settings`: TOML for the site's file.
    """

    cache: str
    version: str
    measured_at: str
    files: tuple[str, ...]
    read_bytes: int
    bytes_used: int
    seconds: float
    findings: tuple[str, ...]
    advice: str
    settings: str
    round_trips: tuple[Latency, ...]
    rates: tuple[Rate, ...]
    failures: tuple[str, ...]
    notes: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Request:
    """What to test: a configured cache, URLs of origins, and names of files (none: those of the tables)."""

    cache: str
    origins: Sequence[str]
    files: Sequence[str]
    limits: Limits


def run(
    settings: Settings, request: Request, *, say: Callable[[str], None], on_progress: Advance
) -> SiteTest:
    """Measure, and evict again what the cache fetched; `say`: before it starts.

    Raises InputError and PushError; nothing is left in the cache then, or the error's line says what.
    """
    limits, cache = request.limits.checked(), settings.cache(request.cache)
    if cache.kind != "xcache":
        raise InputError(f"cache {cache.name!r} is a folder; only an XCache can be tested")
    origins = _origins(request.origins, cache)
    names = files.named(request.files) or files.recorded(Tables.of(settings), cache, at_s=int(time.time()))
    before = dict(os.environ)  # an origin gets no login of the cache's settings
    xcache = target(cache)
    assert isinstance(xcache, XCacheTarget)
    server.login(cache.url.partition("://")[0])  # raises what is wrong with the token
    servers = {place: Server(url, before) for place, url in origins.items()}
    servers |= dict.fromkeys((COLD, WARM), Server(cache.url, dict(os.environ)))
    trips = [latency(place, servers[place]) for place in origins]
    trips.append(latency("the cache", servers[WARM]))
    to_read = files.choose(
        names,
        servers[WARM],
        [servers[place] for place in origins],
        n_files=limits.files,
        all_of=bool(request.files),
    )
    version, now_s = str(xcache.server_version()), int(time.time())
    say(_announced(cache, origins, len(to_read.files), limits))
    with _evicting_at_the_end(fetched := Fetched(xcache), say) as left:
        measured = Measuring(servers, fetched, limits).run(to_read.files, on_progress)
    rows = answer.rates(measured, kinds(list(origins), limits))
    what = f"measured by cachecast site-test of cache {cache.name} at {as_of_label(now_s)}"
    return SiteTest(
        cache=cache.name,
        version=version,
        measured_at=as_of_label(now_s),
        files=tuple(span.name for span in measured.spans),
        read_bytes=sum(span.n_bytes for span in measured.spans),
        bytes_used=measured.bytes_used,
        seconds=measured.seconds_used,
        findings=tuple(answer.findings(trips, rows)),
        advice=" ".join(answer.advice(rows)),
        settings=answer.toml(
            settings,
            origins,
            trips,
            rows,
            largest_bytes=max(size for _, size in to_read.files),
            what=what,
        ),
        round_trips=tuple(trips),
        rates=tuple(rows),
        failures=(*(f"{place}: {why}" for place, why in measured.given_up.items()), *left),
        notes=(*to_read.notes, *_notes(measured, to_read.through_s, origins)),
    )


def _origins(urls: Sequence[str], cache: CacheSettings) -> dict[str, str]:
    """The URLs by host, or by URL where a host has several. Raises ConfigError."""
    for url in urls:
        if SERVER_URL.fullmatch(url) is None:
            raise ConfigError(
                "--origin", f"{url[:100]!r} is no server; write root://host:port, and nothing else"
            )
        if url == cache.url:
            raise ConfigError("--origin", f"{url} is the cache itself; name a server that it fetches from")
    hosts = hosts_of(pa.array(urls, pa.string())).to_pylist()
    return {host if hosts.count(host) == 1 else url: url for host, url in zip(hosts, urls, strict=True)}


def _announced(cache: CacheSettings, origins: Mapping[str, str], n_files: int, limits: Limits) -> str:
    where = " and ".join([f"cache {cache.name}", *origins])
    size, time_s = format_bytes(limits.n_bytes), duration_label(limits.seconds)
    return (
        f"reads {_counted(n_files, 'file')} from {where}, {_counted(limits.repeat, 'round')}, up to "
        f"{_counted(limits.clients[-1], 'client')}: at most {size}, what the cache fetches included, within "
        f"{time_s}. What the cache fetches for it is evicted at the end."
    )


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


@contextmanager
def _evicting_at_the_end(fetched: Fetched, say: Callable[[str], None]) -> Iterator[list[str]]:
    """Evict the `fetched` files at its end, also by Ctrl-C or SIGTERM; yields a list of what stays."""
    left = list[str]()

    def interrupt(*_: object) -> None:
        signal.raise_signal(signal.SIGINT)

    is_main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, interrupt) if is_main else None
    try:
        yield left
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            say("interrupted: evicting what was fetched; a second Ctrl-C leaves it in the cache")
        if (remains := fetched.end()) is not None:
            if isinstance(error, KeyboardInterrupt):
                say(remains)
                raise
            raise TargetUnavailable(f"{error}; {remains}") from None
        raise
    else:
        if (remains := fetched.end()) is not None:
            left.append(remains)
    finally:
        if is_main:
            signal.signal(signal.SIGTERM, before)


def _notes(measured: Measured, through_s: Sequence[float], origins: Mapping[str, str]) -> Iterator[str]:
    if measured.stopped is not None:
        yield (
            f"{measured.stopped} ended after {len(measured.runs)} of {measured.n_planned} runs; give more, "
            "or fewer --clients, --files or --repeat"
        )
    if not origins:
        yield "without --origin nothing is known of direct reads, of regions and of the slowdown of misses"
    if through_s:
        ms = 1000 * sorted(through_s)[len(through_s) // 2]
        yield f"the cache's origin answers through it in {ms:.3g} ms"
    if any(span.n_bytes < span.size_bytes for span in measured.spans):
        yield "of larger files only the first part was read; a cache that reads ahead may have fetched more"
