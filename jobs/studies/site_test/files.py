"""The files that a test reads: those that were named, or some of the recorded accesses; none in the cache."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from features.common.errors import InputError, PushRejected, SourceUnavailable, TargetUnavailable, bounded
from features.schema import ACCESSES, FILES
from jobs.ground.caches.paths import Paths
from jobs.ground.settings.tree import CacheSettings
from jobs.ground.store.tables import Tables
from jobs.studies.site_test.processes import Server, ask
from jobs.studies.site_test.schedule import LEAST_BYTES
from prefetch.lfn import checked_lfn

_MOST_ASKED = 64
"""Names of the tables that servers are asked about."""
_DAYS = 30
_PATIENCE_S = 10.0
"""Longest time for an answer about one file."""


@dataclasses.dataclass(frozen=True)
class Chosen:
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
        catalogued = _paths(paths, _catalogued(tables))
        usable += [name for name in catalogued if _is_usable(name) and name not in usable]
    if not usable:
        raise InputError(
            f"the tables have no path of a file that cache {cache.name!r} was asked for; name some by --file"
        )
    return usable[:_MOST_ASKED]


def choose(
    names: Sequence[str], cache: Server, origins: Sequence[Server], *, n_files: int, all_of: bool
) -> Chosen:
    """The files to read: at most `n_files`, or `all_of` the names, that the cache can get and does not hold.

    The origins must have them, with the same size. Raises InputError if none is left, and what `ask` raises.
    """
    try:
        at_cache = _stats(cache, names)
    except TargetUnavailable as error:
        raise SourceUnavailable(
            f"the cache answers, but not about its files; does its origin? ({error})"
        ) from None
    at_origins = [(one, _stats(one, names)) for one in origins]
    usable, left_out = list[tuple[str, int]](), dict[str, list[str]]()
    through_s = [one[2] for one in at_cache.values() if one is not None and not one[1]]
    for name in names:
        why = _fault(at_cache[name], [(one.url, found[name]) for one, found in at_origins])
        found = at_cache[name]
        if why is None and found is not None:
            usable.append((name, found[0]))
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
    return Chosen(tuple(usable if all_of else usable[:n_files]), tuple(through_s), notes)


def _stats(server: Server, names: Sequence[str]) -> dict[str, tuple[int, bool, float] | None]:
    """Size, whether a part is held, and seconds of the answer, by name."""
    answer = ask(server, "stat", names=list(names), timeout_s=_PATIENCE_S + len(names))
    return {
        name: None if found is None else (int(found[0]), bool(found[1]), float(found[2]))
        for name, found in zip(names, answer["files"], strict=True)
    }


def _fault(
    found: tuple[int, bool, float] | None, elsewhere: Sequence[tuple[str, tuple[int, bool, float] | None]]
) -> str | None:
    if found is None:
        return "neither the cache nor its origin has it"
    if found[1]:
        return "the cache holds it already, and what it holds is not evicted"
    if found[0] < LEAST_BYTES:
        return "smaller than 1 MiB"
    for url, other in elsewhere:
        if other is None:
            return f"{url} does not have it"
        if other[0] != found[0]:
            return f"{url} has it with another size ({other[0]} bytes, the cache says {found[0]})"
    return None


def _accessed(tables: Tables, cache: str) -> pa.ChunkedArray:
    days = sorted(key[0] for key in tables.head(ACCESSES).partitions)[-_DAYS:]
    if not days:
        return pa.chunked_array([], pa.string())
    rows = tables.read_arrow(ACCESSES, since=days[0], columns=["did", "cache", "accessed_at"])
    rows = rows.filter(pc.equal(rows["cache"], cache))
    return rows.group_by("did").aggregate([("accessed_at", "max")]).sort_by("accessed_at_max")["did"]


def _catalogued(tables: Tables) -> pa.ChunkedArray:
    if not tables.exists(FILES):
        return pa.chunked_array([], pa.string())
    return tables.read_arrow(FILES, columns=["did"])["did"]


def _paths(paths: Paths, dids: pa.ChunkedArray) -> list[str]:
    """The known paths of the first of `dids`."""
    known: list[str] = paths.known(dids[: 10 * _MOST_ASKED].combine_chunks()).drop_null().to_pylist()
    return known[:_MOST_ASKED]


def _is_usable(name: str) -> bool:
    try:
        checked_lfn(name)
    except PushRejected:
        return False
    return True
