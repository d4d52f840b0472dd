"""The files of a test: those that it reads, and their removal from the cache; never what it held before."""

import concurrent.futures
import contextlib
import dataclasses
import time
from collections.abc import Collection, Iterable, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from features.common.errors import (
    InputError,
    PushError,
    PushRejected,
    SourceUnavailable,
    TargetUnavailable,
    bounded,
)
from features.schema import ACCESSES, FILES
from jobs.ground.caches.paths import Paths
from jobs.ground.settings.tree import CacheSettings
from jobs.ground.store.tables import Tables
from jobs.studies.site_test.schedule import LEAST_BYTES, Server, ask
from prefetch.lfn import checked_lfn
from prefetch.xcache.client import XCacheTarget
from prefetch.xcache.reading import plain

_MOST_ASKED = 64  # names of the tables that servers are asked about
_DAYS = 30
_PATIENCE_S = 10.0  # longest time for an answer about one file
_TIMEOUT_S = 10.0
_AT_ONCE = 8
_EVICT_PATIENCE_S: Final = 60.0  # with read-ahead a file counts as open for half a minute after it was
_POLL_S, _AGAIN_S = 0.05, 10.0  # a command while the first waits would remove the file after a read
_SETTLE_S = 0.5  # after it a block that was on its way when a client was ended is on disk


@dataclasses.dataclass(frozen=True)
class FilesToRead:
    """Name and size of the files, and the seconds in which the cache's origin answered through it."""

    files: tuple[tuple[str, int], ...]
    through_s: tuple[float, ...]
    notes: tuple[str, ...]


def named(names: Sequence[str]) -> list[str]:
    """`names` without repetitions. Raises PushRejected for one that no file may have."""
    return list(dict.fromkeys(map(checked_lfn, names)))


def recorded(tables: Tables, cache: CacheSettings, *, at_s: int) -> list[str]:
    """Paths of the accesses recorded of `cache`, those not read for longest first; then of the files table.

    Of the last days with accesses. Files without a known path in it are left out. Raises InputError if there
    are none.
    """
    paths = Paths.last(tables, cache, at_s=at_s)
    usable = [name for name in _paths(paths, _accessed(tables, cache.name)) if _is_usable(name)]
    if len(usable) < _MOST_ASKED:
        catalogued = _paths(paths, tables.head(FILES).rows(["did"])["did"])
        usable += [name for name in catalogued if _is_usable(name) and name not in usable]
    if not usable:
        raise InputError(
            f"the tables have no path of a file that cache {cache.name!r} was asked for; name some by --file"
        )
    return usable[:_MOST_ASKED]


def choose(
    names: Sequence[str], cache: Server, origins: Sequence[Server], *, n_files: int, all_of: bool
) -> FilesToRead:
    """The files to read: at most `n_files`, or `all_of` the names, that the cache can get and does not hold.

    The origins must have them, with the same size. Raises InputError if none is left, and what `ask` raises.
    """
    try:
        at_cache = _stats(cache, names)
    except TargetUnavailable as error:
        raise SourceUnavailable(
            f"the cache answers, but not about its files; does its origin? ({error})"
        ) from None
    at_origins = [(origin, _stats(origin, names)) for origin in origins]
    usable, left_out = list[tuple[str, int]](), dict[str, list[str]]()
    through_s = [stats[2] for stats in at_cache.values() if stats is not None and not stats[1]]
    for name in names:
        why = _fault(at_cache[name], [(origin.url, facts[name]) for origin, facts in at_origins])
        facts = at_cache[name]
        if why is None and facts is not None:
            usable.append((name, facts[0]))
        else:
            left_out.setdefault(why or "", []).append(name)
    notes = tuple(
        f"left out, {why}: {bounded(', '.join(some), 200)}"
        if all_of
        else f"left out, {why}: {len(some)} files"
        for why, some in left_out.items()
    )
    if not usable:
        raise InputError(
            f"no file can be read: {'; '.join(notes) or 'none was named'}; name others by --file"
        )
    usable.sort(key=lambda file: -file[1])
    return FilesToRead(tuple(usable if all_of else usable[:n_files]), tuple(through_s), notes)


def _stats(server: Server, names: Sequence[str]) -> dict[str, tuple[int, bool, float] | None]:
    """Size, whether a part is held, and seconds of the answer, by name."""
    answer = ask(server, "stat", names=list(names), timeout_s=_PATIENCE_S + len(names))
    return {
        name: None if facts is None else (int(facts[0]), bool(facts[1]), float(facts[2]))
        for name, facts in zip(names, answer["files"], strict=True)
    }


def _fault(
    at_cache: tuple[int, bool, float] | None, elsewhere: Sequence[tuple[str, tuple[int, bool, float] | None]]
) -> str | None:
    if at_cache is None:
        return "neither the cache nor its origin has it"
    if at_cache[1]:
        return "the cache holds it already, and what it holds is not evicted"
    if at_cache[0] < LEAST_BYTES:
        return "smaller than 1 MiB"
    for url, other in elsewhere:
        if other is None:
            return f"{url} does not have it"
        if other[0] != at_cache[0]:
            return f"{url} has it with another size ({other[0]} bytes, the cache says {at_cache[0]})"
    return None


def _accessed(tables: Tables, cache: str) -> pa.ChunkedArray:
    head = tables.head(ACCESSES)
    days = sorted(key[0] for key in head.partitions)[-_DAYS:]
    rows = head.rows(["did", "cache", "accessed_at"], since=min(days, default=None))
    rows = rows.filter(pc.equal(rows["cache"], cache))
    return rows.group_by("did").aggregate([("accessed_at", "max")]).sort_by("accessed_at_max")["did"]


def _paths(paths: Paths, dids: pa.ChunkedArray) -> list[str]:
    known: list[str] = paths.known(dids[: 10 * _MOST_ASKED].combine_chunks()).drop_null().to_pylist()
    return known[:_MOST_ASKED]


def _is_usable(name: str) -> bool:
    try:
        checked_lfn(name)
    except PushRejected:
        return False
    return True


class Fetched:
    """The files that were not in the cache before this test asked for them, by the server's own answer."""

    def __init__(self, target: XCacheTarget) -> None:
        self._target = target
        self._ours = set[str]()
        self._keeps_open = not target.removes_open_files()

    def claim(self, names: Iterable[str]) -> None:
        """Note that the cache is about to be asked for `names`. Raises PushRejected if it holds one of them.

        Files that are noted already are this test's.
        """
        new = set(names) - self._ours
        if came := self._held(new):
            raise PushRejected(
                f"{min(came)} came into the cache meanwhile: a job reads it; try again, or name others"
            )
        self._ours |= new

    def lost(self, names: Collection[str]) -> list[str]:
        """Those of `names` of which the cache holds nothing."""
        return sorted(set(names) - self._held(names))

    def remove(self, names: Collection[str]) -> list[str]:
        """Have the cache drop those of `names` that are this test's; the names of those that it keeps.

        Raises TargetUnavailable if it does not answer.
        """
        left, deadline = self._ours & set(names), time.monotonic() + _EVICT_PATIENCE_S
        again_s = 0.0
        while left:
            if time.monotonic() >= again_s:
                for name in sorted(left):
                    self._drop(name)
                again_s = time.monotonic() + _AGAIN_S
            left = self._held(left)
            if not left or time.monotonic() > deadline:
                break
            time.sleep(_POLL_S)
        return sorted(left)

    def remove_all(self) -> list[str]:
        """As `remove`, of every file; looked at again once blocks that were on their way have come."""
        if not self._ours:
            return []
        self.remove(self._ours)
        time.sleep(_SETTLE_S)
        return self.remove(self._ours)

    def _held(self, names: Collection[str]) -> set[str]:
        """Those of `names` that the server holds a part of, each asked for on a connection of its own."""
        with concurrent.futures.ThreadPoolExecutor(_AT_ONCE) as pool:
            answers = dict(zip(names, pool.map(self._holds, names), strict=True))
        return {name for name, is_held in answers.items() if is_held}

    def _holds(self, name: str) -> bool:
        try:
            return self._target.server_holds(name)
        except SourceUnavailable:
            return False  # of what it holds it answers without its origin

    def _drop(self, name: str) -> None:
        """Evict it, but not from under a job: a server before 5.6 would remove a file that is open.

        Whether it is, its record says; where this machine sees no record, nothing does.
        """
        if not self._keeps_open:
            with contextlib.suppress(TargetUnavailable):
                held = self._target.confirm(name).held
                if held is not None and held.is_open:
                    return
        self._target.evict(name, timeout_s=_TIMEOUT_S)

    def end(self) -> str | None:
        """Remove all; what may be left in the cache and why, in one line; None: nothing is."""
        why = "it keeps them as open"
        try:
            left = self.remove_all()
        except PushError as error:
            why, left = plain(str(error)), sorted(self._ours)
            with contextlib.suppress(PushError):
                left = sorted(self._held(self._ours))
        return f"may be left in the cache ({why}): {bounded(', '.join(left), 300)}" if left else None
