"""A configured cache: its target, its verified inventory, and the limits of what a decision may remove."""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from features.common.errors import ConfigError, LimitError, StaleInputError
from features.common.redaction import without_login
from features.common.times import as_of_label, parse_as_of
from features.common.units import duration_label, format_bytes
from features.schema import CONTENTS
from jobs.ground.settings.tree import CacheSettings
from jobs.ground.store.keys import Key
from jobs.ground.store.tables import Tables, read_partitions
from prefetch.actions import Action
from prefetch.directory import DirectoryTarget
from prefetch.target import CacheTarget, Held
from prefetch.xcache import server
from prefetch.xcache.client import XCacheTarget
from prefetch.xcache.redirector import NodeTarget, Redirector
from prefetch.xcache.server import LastUsed

_N_EXPECTED = 50
_log = logging.getLogger(__name__)


def target(
    cache: CacheSettings, *, walks_apart: bool = False, redirector: Redirector | None = None
) -> CacheTarget:
    """The target of `cache`; `walks_apart`: see `XCacheTarget`; `redirector`: to ask before a prefetch.

    ConfigError if settings are missing.
    """
    if cache.kind == "directory":
        if cache.origin is None:
            raise ConfigError(
                f"caches.{cache.name}.origin", "a directory cache needs the folder of its origin"
            )
        return DirectoryTarget(cache.name, cache.origin, Path(cache.url))
    log_in(cache)
    made = XCacheTarget if redirector is None else functools.partial(NodeTarget, redirector)
    return made(
        cache.name,
        cache.url,
        cache.namespace,
        cache.gstream,
        spaces=cache.spaces,
        hosts=[host.lower() for host in cache.hosts],
        walks_apart=walks_apart,
    )


def log_in(cache: CacheSettings) -> None:
    """Let the XRootD client of this process log in as the cache's settings say. Raises ConfigError."""
    if cache.keytab is not None:
        server.use_login(server.KEYTAB, cache.keytab, f"caches.{cache.name}.keytab")
    if cache.proxy is not None:
        server.use_login(server.PROXY, cache.proxy, f"caches.{cache.name}.proxy")
    if cache.token is not None:
        server.use_token(cache.token, cache.audience, cache.url, f"caches.{cache.name}.token")


class Inventory(NamedTuple):
    """What a cache held at `taken_s`, s since 1970."""

    held: list[Held]
    taken_s: int


def verified(
    tables: Tables, cache: CacheSettings, *, at_s: int, most_age_s: int, reported: Sequence[str] = ()
) -> Inventory:
    """The inventory of `cache`, verified by samples; of a cache elsewhere the last one that its host wrote.

    Some names of its last inventory until `at_s`, and of `reported`, are looked up in it; the server is asked
    for missing ones. Raises TargetUnavailable if it does not answer, or holds files that the namespace lacks;
    StaleInputError if the host wrote none within `most_age_s`.
    """
    if cache.kind == "xcache" and cache.namespace is None:
        return _by_its_host(tables, cache, at_s=at_s, most_age_s=most_age_s)
    names: list[str] = last(tables, cache.name, at_s=at_s)["name"].to_pylist()
    held = list(target(cache).inventory([*_some(names), *_some(reported)]))
    _log.info("cache %s at %s holds %d files", cache.name, without_login(cache.url), len(held))
    return Inventory(held, at_s)


def _by_its_host(tables: Tables, cache: CacheSettings, *, at_s: int, most_age_s: int) -> Inventory:
    """The last inventory that its host wrote by `cachecast scan`, if it is young and the server agrees."""
    again = f"run `cachecast scan --cache {cache.name}` on its host, every hour"
    key, rows = _last(tables, cache.name, at_s=at_s, columns=None)
    if key is None:
        raise StaleInputError(
            f"there is no inventory of cache {cache.name!r} until {as_of_label(at_s)}, and no `namespace` "
            f"to read here: {again}"
        )
    # A plan writes the inventory that it was made from again, with the time when it was taken.
    taken_s = rows["scanned_at"][0].as_py().timestamp() if rows.num_rows else parse_as_of(_moment(key))
    taken = as_of_label(int(taken_s))
    if at_s - taken_s > most_age_s:
        raise StaleInputError(
            f"the last inventory of cache {cache.name!r} is of {taken}, more than [plan] inventory_age = "
            f"{duration_label(most_age_s)} before {as_of_label(at_s)}: {again}"
        )
    held = [held_of(row) for row in rows.to_pylist()]
    asked = LastUsed()
    for file in held:
        if file.bytes_on_disk:
            asked.offer(file.name, file.last_detach_s or 0)
    at = target(cache)
    assert isinstance(at, XCacheTarget)
    at.check_listed(asked.names, taken)
    _log.info("cache %s held %d files at %s, by its host", cache.name, len(held), taken)
    return Inventory(held, int(taken_s))


def held_of(row: Mapping[str, Any]) -> Held:
    """A row of the table contents."""
    detached = row["last_detach"]
    return Held(
        row["name"],
        row["size_bytes"],
        row["bytes_on_disk"],
        row["complete"],
        None if detached is None else int(detached.timestamp()),
        row["open"],
    )


def last(tables: Tables, cache: str, *, at_s: int, since_s: int = 0) -> pa.Table:
    """Names, dids and bytes of the cache's last inventory from `since_s` to `at_s`; empty: there is none."""
    return _last(tables, cache, at_s=at_s, since_s=since_s, columns=["name", "did", "bytes_on_disk"])[1]


def _last(
    tables: Tables, cache: str, *, at_s: int, since_s: int = 0, columns: list[str] | None
) -> tuple[Key | None, pa.Table]:
    head, since, until = tables.head(CONTENTS), as_of_label(since_s), as_of_label(at_s)
    known = (key for key in head.partitions if key[2] == cache and since <= key[1] <= until)
    keys = sorted(known, key=_moment)
    newest = {key: head.partitions[key] for key in keys[-1:]}
    return (keys[-1] if keys else None), read_partitions(head, newest, columns)


def check_loss(tables: Tables, cache: str, *, held_bytes: int, at_s: int, share: float) -> None:
    """Raise LimitError if `cache` lost more than `share` of its bytes since its last inventory."""
    known = _bytes_of(last(tables, cache, at_s=at_s))
    if known - held_bytes > share * known:
        raise LimitError(
            f"cache {cache!r} holds {format_bytes(held_bytes)}, and held {format_bytes(known)} at its last "
            f"inventory: more than [plan] lost_share = {share:g} is gone; check that all its disks are "
            "mounted, then give --force"
        )


def check_evictions(evicted_bytes: int, held_bytes: int, *, cache: str, share: float) -> None:
    """Raise LimitError if a plan evicts more than `share` of what `cache` holds."""
    if evicted_bytes > share * held_bytes:
        raise LimitError(
            f"the plan evicts {format_bytes(evicted_bytes)} of the {format_bytes(held_bytes)} in cache "
            f"{cache!r}: more than [plan] evict_share = {share:g}; check its rules, and give --force if "
            "this is intended"
        )


def check_planned_evictions(tables: Tables, plan: pa.Table, *, cache: str, at_s: int, share: float) -> None:
    """The same check for `plan`, rows of the plans table, by the inventory that it was made from."""
    evicted = plan.filter(pc.equal(plan["action"], Action.EVICT))["did"].combine_chunks()
    check_listed_evictions(tables, evicted, "did", cache=cache, at_s=at_s, share=share)


def check_listed_evictions(
    tables: Tables, evicted: pa.Array, column: str, *, cache: str, at_s: int, share: float
) -> None:
    """The same check for files by their `column` (did or name), by the last inventory until `at_s`."""
    held = last(tables, cache, at_s=at_s)
    if len(evicted) and not held.num_rows:
        raise LimitError(
            f"the plan evicts {len(evicted)} files of cache {cache!r}, of which no inventory until "
            f"{as_of_label(at_s)} shows a file; plan again, or give --force if that is meant"
        )
    going = held.filter(pc.is_in(held[column], value_set=evicted))
    check_evictions(_bytes_of(going), _bytes_of(held), cache=cache, share=share)


def check_withdrawals(n_removed: int, n_reported: int, *, rse: str, share: float) -> None:
    """Raise LimitError if more than `share` of the replicas reported at `rse` would be removed."""
    if n_removed > share * n_reported:
        raise LimitError(
            f"{n_removed} of {n_reported} replicas at {rse} would be withdrawn: more than [rucio] "
            f"withdraw_share = {share:g}; check that all the cache's disks are mounted, then give --force"
        )


def _some(names: Sequence[str]) -> Sequence[str]:
    """A sample spread over `names`, because neighbours in order may lie on the same disk."""
    return names[:: 1 + len(names) // _N_EXPECTED]


def _moment(key: Key) -> str:
    return key[1]


def _bytes_of(inventory: pa.Table) -> int:
    return int(pc.sum(inventory["bytes_on_disk"]).as_py() or 0)
