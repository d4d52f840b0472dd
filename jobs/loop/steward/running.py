"""A running steward of one cache: its order, its reports, its lists and what queued jobs will read."""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pydantic

from features.common import files
from features.common.errors import ConfigError, ServiceError
from features.schema import FILES, QUEUE
from jobs.ground.caches.inventory import target
from jobs.ground.caches.paths import Paths
from jobs.ground.settings.tree import CacheSettings, Settings
from jobs.ground.store.tables import Tables
from prefetch.journal.journal import Journal
from prefetch.push.attempt import PushLimits
from prefetch.steward.book import Book, Datasets, Listing, listed
from prefetch.steward.canary import OpenFiles
from prefetch.steward.evictions import Marks
from prefetch.steward.feed import Feed
from prefetch.steward.fill import DataDisks
from prefetch.steward.keeper import Keeper, Limits
from prefetch.steward.lists import Asking, Lists
from prefetch.steward.watch import LiveCache
from prefetch.target import CacheTarget
from prefetch.xcache.gstream import CaptureReader, FolderReader
from prefetch.xcache.rolling import check_heartbeat
from replay.kernels.scored_files import SOON_S
from replay.steward import EvictionOrder, Steward, new_order

if TYPE_CHECKING:
    from models.serving.bundle_files import ServedOrder

AGAIN_S: Final = 900.0  # what is read stays so long, unless a queue reports anew: entries become stale
LEAST_SURE: Final = 0.001  # known work that is less certain counts as this certain
_EXPECTED: Final = ("wait_s", "late_s", "certainty")
PATIENCE_S: Final = 10.0  # tables are waited for so long, if they answered the last time
READS_WITHIN_S: Final = 60.0  # a steward begins without a catalogue that takes longer to read
CATALOGUE_AGAIN_S: Final = 300.0  # a catalogue that could not be read is tried again after so long
_log = logging.getLogger(__name__)
PINS_STAND_S: Final = 86_400.0
_MOST_PINS_BYTES: Final = 256 * 2**20
_PINS: Final = pydantic.TypeAdapter(dict[str, int])
HISTORY_BYTES: Final = 500 * 10**6  # captures that are read at the start, the newest ones
KNOWN_PER_HELD: Final = 3  # known files per held one, as those that were read before stay known
MANY_FILES: Final = 50_000  # with more, processes of their own read the inventory, a second later


class QueueReader:
    """When queued work will read each file, by its path in the cache, s since 1970.

    Without a start a job is due since it was named: the longer it waits, the less it is believed; half as
    sure is twice as far. Tables that cannot be read say nothing.
    """

    def __init__(self, tables: Tables, cache: CacheSettings) -> None:
        self._tables, self._cache = tables, cache
        self._due_s: dict[str, float] = {}
        self._seen_s: dict[str, float] = {}
        self._read: tuple[str, float] | None = None
        self._asking: Asking[tuple[dict[str, float], tuple[str, float] | None]] | None = None
        self._patience_s = PATIENCE_S

    def due_s(self, now_s: float) -> Mapping[str, float]:
        """What is known at `now_s`; tables that hang are waited for once."""
        if self._asking is None:
            self._asking = Asking(partial(self._look, now_s))
        self._asking.join(self._patience_s)
        self._patience_s = 0.0
        if self._asking.is_alive():
            is_young = self._read is not None and now_s - self._read[1] < AGAIN_S
            return self._due_s if is_young else {}
        asked, self._asking = self._asking, None
        if asked.answer is None:
            _log.warning("the order goes without queues: %s", asked.fault)
            self._due_s, self._seen_s, self._read = {}, {}, None
        else:
            (self._due_s, self._read), self._patience_s = asked.answer, PATIENCE_S
        return self._due_s

    def _look(self, now_s: float) -> tuple[dict[str, float], tuple[str, float] | None]:
        queues = self._tables.head(QUEUE)
        is_known = self._read is not None and queues.id == self._read[0] and now_s - self._read[1] < AGAIN_S
        if not queues.number or is_known:
            return self._due_s, self._read
        return self._known(int(now_s)), (queues.id, now_s)

    def _known(self, as_of_s: int) -> dict[str, float]:
        # It loads pandas, for which a steward without a queue has no use.
        from jobs.loop.ingest.queue import known_work  # noqa: PLC0415

        queued = known_work(self._tables, as_of_s=as_of_s, cache=self._cache.name, site=self._cache.at_site)
        paths = Paths.last(self._tables, self._cache, at_s=as_of_s)
        names = paths.known(queued.files["did"].combine_chunks()).to_pylist()
        # When it was seen to be due, not since when: what a job states of that must not outlast it.
        expected = [queued.files[of].to_pylist() for of in _EXPECTED]
        self._seen_s = {
            name: self._seen_s.get(name, as_of_s)
            for name, wait_s in zip(names, expected[0], strict=True)
            if name is not None and not wait_s
        }
        return {
            name: as_of_s + _distance_s(wait_s, sure)
            if wait_s
            else min(as_of_s - _distance_s(late_s, sure), self._seen_s[name])
            for name, wait_s, late_s, sure in zip(names, *expected, strict=True)
            if name is not None
        }


def _distance_s(wait_s: float, certainty: float) -> float:
    """How far away a read counts that is this certain: an order values it by the inverse."""
    return wait_s if certainty >= 1 else max(wait_s, SOON_S) / max(certainty, LEAST_SURE)


class Catalogue:
    """The datasets of the catalogue in `tables`; `fault`: why they are not those of now, None: they are.

    A steward begins and works without tables, if they are unavailable or hang, and takes the catalogue later.
    """

    def __init__(self, tables: Tables) -> None:
        self.fault: str | None = None
        self._tables, self._datasets = tables, Datasets()
        self._asking: Asking[Datasets] | None = None
        self._due_s = 0.0

    def read(self) -> Datasets:
        """Those of now, or if that fails or takes long those read before."""
        if self._asking is None:
            self._asking = Asking(partial(known_datasets, self._tables))
        self._asking.join(READS_WITHIN_S)
        self.has_come()
        return self._datasets

    def has_come(self) -> bool:
        """Whether the catalogue has been read since `read` had to do without; waits for nothing."""
        now_s = time.monotonic()
        if self._asking is None:
            if self.fault is None or now_s < self._due_s:
                return False
            self._asking = Asking(partial(known_datasets, self._tables))
        if self._asking.is_alive():
            if now_s - self._asking.began_s >= READS_WITHIN_S:
                self._lack(f"they have not answered for {READS_WITHIN_S:.0f} s")
            return False
        asked, self._asking = self._asking, None
        if asked.answer is None:
            self._lack(str(asked.fault))
            self._due_s = now_s + CATALOGUE_AGAIN_S
            return False
        was_lacking, self.fault, self._datasets = self.fault is not None, None, asked.answer
        return was_lacking

    def _lack(self, why: str) -> None:
        if self.fault is None:
            _log.warning("datasets are by folder, as the tables have not given the catalogue: %s", why)
        self.fault = f"datasets are by folder, as the tables have not given the catalogue: {why}"


class KeptPins:
    """The pins of a cache that the journal gave last, in `file`, for times at which it does not answer.

    After a start those of the last `PINS_STAND_S` count: later ones may be missing among older ones.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._pins: dict[str, int] | None = None
        self._written: dict[str, int] | None = None

    def keep(self, pins: dict[str, int]) -> None:
        """Keep `pins`: names, and until when they stand, s since 1970."""
        is_new, self._pins = pins != self._pins, pins
        try:
            if pins == self._written:
                return os.utime(self._file)
            files.write(self._file, json.dumps(pins), mode=0o600, settle=False)
            self._written = pins
        except OSError as error:
            self._written = None
            with contextlib.suppress(OSError):  # pins that came since are missing there
                self._file.unlink(missing_ok=True)
            if is_new:
                _log.warning("the pins are not kept for a start without the journal: %s", error)

    def standing(self, now_s: float) -> list[str] | None:
        """The names of those that stand at `now_s`; None: no pins were kept."""
        if self._pins is None:
            try:
                if abs(now_s - self._file.lstat().st_mtime) > PINS_STAND_S:
                    raise OSError(errno.ESTALE, "they are not of the last day")
                self._pins = _PINS.validate_json(files.read_own(self._file, _MOST_PINS_BYTES), strict=True)
            except FileNotFoundError:
                return None
            except (OSError, ValueError) as error:
                why = error.strerror if isinstance(error, OSError) else type(error).__name__
                _log.warning("the pins kept in %s do not count: %s", self._file.name, why)
                return None
        return [name for name, until_s in self._pins.items() if until_s > now_s]


@contextmanager
def running_steward(
    settings: Settings,
    cache: CacheSettings,
    journal: Journal,
    served: ServedOrder | None,
    listing: Listing | None = None,
    *,
    datasets: Datasets | None = None,
    force: bool = False,
    now_s: Callable[[], float] = time.time,
    paced: Callable[[EvictionOrder], EvictionOrder] = lambda order: order,
) -> Iterator[tuple[Keeper, Book]]:
    """The steward of `cache`, which knows what the cache holds, and the names of its files.

    `listing`: what it held just now, `datasets`: those of the catalogue; None: that is looked up. `paced`:
    gives the order that is followed a clock of its own.
    """
    low, high = cache.watermarks
    cache_target, push, root = steward_target(cache), settings.push, cache_root(cache)
    if listing is None:
        listing = listed(cache_target, now_s=now_s())
    learned = None if served is None else [served.order]
    capacity_bytes = int(high * cache.capacity)
    order = new_order(
        settings.steward.policy, capacity_bytes, learned, n_files=KNOWN_PER_HELD * len(listing.names)
    )
    steward = Steward(paced(order), capacity_bytes=int((low + high) / 2 * cache.capacity))
    kinds = () if served is None else served.kinds
    if datasets is None:
        datasets = known_datasets(Tables.of(settings))
    tests = settings.plan.test_files
    book = Book(steward, datasets, kinds, tests, listing=listing)
    limits = PushLimits(
        parallel=push.parallel,
        timeout_s=push.timeout,
        attempts=1,
        breaker=push.breaker,
        evict_guard_s=0,  # the steward sees which files are open
    )
    queued = QueueReader(Tables.of(settings), cache)
    last_pins = KeptPins(settings.steward.figures(cache.name).with_suffix(".pins"))

    def lists(times_s: Sequence[float]) -> Lists:
        try:
            read = [pin for at_s in times_s for pin in journal.reports.pins(cache.name, now_s=at_s)]
            evictions = journal.reports.evictions(cache.name, now_s=times_s[0])
        except ServiceError as error:
            if (pins := last_pins.standing(min(times_s))) is None:
                raise
            return Lists(set(pins), (), queued.due_s(times_s[0]), fault=f"{error}; pins stay as last read")
        last_pins.keep({pin.name: pin.expires_at_s for pin in read})
        return Lists({pin.name for pin in read}, evictions, queued.due_s(times_s[0]))

    usage = DataDisks(cache.capacity, root, cache.spaces)
    live = LiveCache(cache_target, _feed(cache, cache_target), usage, OpenFiles(root))
    with Keeper(
        live,
        book,
        listing,
        lists=lists,
        limits=Limits(Marks(low, high, settings.steward.look), limits, cache.max_clock_skew, force),
        readers=() if served is None else served.readers,
        now_s=now_s,
    ) as keeper:
        del listing
        yield keeper, book


def steward_target(cache: CacheSettings) -> CacheTarget:
    """The target of `cache`, of whose many files processes of their own read the inventory."""
    n_files = accumulate(len(files) for _, _, files in os.walk(str(cache.namespace or "")))
    return target(cache, walks_apart=any(n > 2 * MANY_FILES for n in n_files))  # each has a record


def known_datasets(tables: Tables) -> Datasets:
    if not (catalogue := tables.head(FILES)).number:
        return Datasets()  # what reads tables takes 40 MB, which a steward without any is spared
    rows = catalogue.rows(["name", "dataset"])
    return Datasets(
        (batch["name"].to_pylist(), batch["dataset"].to_pylist()) for batch in rows.to_batches(100_000)
    )


def cache_root(cache: CacheSettings) -> Path:
    if cache.kind == "directory":
        (root := Path(cache.url) / "files").mkdir(parents=True, exist_ok=True)
        return root
    if cache.namespace is None:
        raise ConfigError(
            f"caches.{cache.name}.namespace", "a steward runs on the cache's host and reads its oss.localroot"
        )
    return cache.namespace


def _feed(cache: CacheSettings, cache_target: CacheTarget) -> Feed:
    """The reports of `cache`, whoever else sends to the same folder."""
    path = reports_of(cache)
    if not path.is_dir():
        return Feed(CaptureReader(path), cache_target.identity)
    reader = FolderReader(path, newest_bytes=HISTORY_BYTES)
    return Feed(reader, cache_target.identity, check=partial(check_heartbeat, path))


def reports_of(cache: CacheSettings) -> Path:
    """Where the cache's reports are. Raises ConfigError if that is not said."""
    if cache.gstream is not None:
        return cache.gstream
    if cache.kind != "directory":
        raise ConfigError(
            f"caches.{cache.name}.gstream",
            "a steward follows what the cache reports; set the folder of `cachecast collect`",
        )
    path = Path(cache.url) / "gstream.txt"
    path.touch()
    return path
