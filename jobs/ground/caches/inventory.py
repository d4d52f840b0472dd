"""A configured cache: its target, its verified inventory, the limits of what a decision may remove, and its
site, where one of several caches serves, holds or is to hold a file.
"""

import contextlib
import logging
import random
from collections.abc import Collection, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from features.common import files
from features.common.arrays import BoolArray
from features.common.errors import LimitError, PushError, StaleInputError, TargetUnavailable, without_login
from features.common.times import DAY_S, as_of_label, parse_as_of
from features.common.units import duration_label, format_bytes
from features.schema import CONTENTS, PLANS
from jobs.ground.settings.tree import CacheSettings, Settings, site_capacities
from jobs.ground.store.commits import Key
from jobs.ground.store.tables import Tables
from prefetch.actions import Action
from prefetch.directory import DirectoryTarget
from prefetch.plan.rules import owners
from prefetch.target import CacheTarget, Held
from prefetch.xcache import server
from prefetch.xcache.client import XCacheTarget
from prefetch.xcache.redirector import Redirector

_N_EXPECTED = 50
N_DRAWN = 60
"""Files of a host's inventory that its server is asked for, at random: whoever wrote it knows none of them.

It must hold two thirds of them. So 99 of 100 times an inventory is refused of which half is false, and one of
1000 times an inventory is refused of which a sixth was evicted since.
"""
_CHANCE = random.SystemRandom()
_log = logging.getLogger(__name__)


def target(
    cache: CacheSettings, *, walks_apart: bool = False, redirector: Redirector | None = None
) -> CacheTarget:
    """The target of `cache`, where this process logs in; `redirector`: to ask before a prefetch.

    Raises ConfigError if it cannot log in, and TargetUnavailable if the file system of one of its folders
    does not answer.
    """
    if (silent := files.silent(cache.folders)) is not None:
        raise TargetUnavailable(f"cache {cache.name!r}: {silent}")
    if cache.kind == "directory":
        assert cache.origin is not None, "settings without it are refused"
        return DirectoryTarget(cache.name, cache.origin, Path(cache.url))
    if cache.keytab is not None:
        server.use_login(server.KEYTAB, cache.keytab, f"caches.{cache.name}.keytab")
    if cache.proxy is not None:
        server.use_login(server.PROXY, cache.proxy, f"caches.{cache.name}.proxy")
    if cache.token is not None:
        server.use_token(cache.token, cache.audience, cache.url, f"caches.{cache.name}.token")
    return XCacheTarget(
        cache.name,
        cache.url,
        cache.namespace,
        cache.gstream,
        spaces=cache.spaces,
        hosts=cache.senders,
        walks_apart=walks_apart,
        redirector=redirector,
    )


class Inventory(NamedTuple):
    """What a cache held at `taken_s`, s since 1970."""

    held: list[Held]
    taken_s: int


def verified(
    settings: Settings, cache: CacheSettings, *, at_s: int, reported: Sequence[str] = ()
) -> Inventory:
    """The inventory of `cache`, verified by samples; of a cache elsewhere the last one that its host wrote.

    Some names of its last inventory until `at_s`, and of `reported`, are looked up in it; the server is asked
    for missing ones. Raises TargetUnavailable if it does not answer, or holds files that the namespace lacks;
    StaleInputError if the host wrote none within [plan] inventory_age, or by a wrong clock.
    """
    tables = Tables.of(settings)
    if cache.kind == "xcache" and cache.namespace is None:
        return _by_its_host(settings, tables, cache, at_s=at_s)
    names: list[str] = last(tables, cache.name, at_s=at_s)["name"].to_pylist()
    held = list(target(cache).inventory([*_some(names), *_some(reported)]))
    _log.info("cache %s at %s holds %d files", cache.name, without_login(cache.url), len(held))
    return Inventory(held, at_s)


def _by_its_host(settings: Settings, tables: Tables, cache: CacheSettings, *, at_s: int) -> Inventory:
    """The last inventory that its host wrote, with what was pushed since; the server must agree."""
    again, most_age_s = f"run `cachecast scan --cache {cache.name}` on its host", settings.plan.inventory_age
    key, rows = _scanned(tables, cache.name, at_s=at_s)
    taken_s = None if key is None else parse_as_of(key[1])
    at = target(cache)
    assert isinstance(at, XCacheTarget)
    if taken_s is None or at_s - taken_s > most_age_s:
        _check_clock(at, cache)  # by a wrong one a new inventory looks old, or is still to come
    if taken_s is None:
        raise StaleInputError(
            f"there is no inventory of cache {cache.name!r} until {as_of_label(at_s)}, and no `namespace` "
            f"to read here: {again}, every hour"
        )
    of = as_of_label(taken_s)
    if at_s - taken_s > most_age_s:
        raise StaleInputError(
            f"the last inventory of cache {cache.name!r} is of {of}, more than [plan] inventory_age = "
            f"{duration_label(most_age_s)} before {as_of_label(at_s)}: {again}, every hour"
        )
    from prefetch.journal.journal import Journal  # noqa: PLC0415  a scan loads no SQLAlchemy

    with contextlib.closing(Journal(settings.push.journal)) as journal:
        pushed = journal.reports.pushed(cache.name, since_s=taken_s, until_s=at_s)
    held = {row["name"]: held_of(row) for row in rows.to_pylist()}
    for name, size_bytes, at_disk_s in pushed:
        held.pop(name, None)
        if size_bytes is not None:
            held[name] = Held(name, size_bytes, size_bytes, True, int(at_disk_s), False)
    known = [file.name for file in held.values() if file.bytes_on_disk]
    at.check_listed(_CHANCE.sample(known, min(N_DRAWN, len(known))), of)
    _check_clock(at, cache)
    _log.info("cache %s held %d files at %s, by its host", cache.name, len(held), of)
    return Inventory(list(held.values()), taken_s)


def _scanned(tables: Tables, cache: str, *, at_s: int) -> tuple[Key | None, pa.Table]:
    """The last inventory until `at_s` that was taken when its key says.

    A plan writes the one that it was made from again, by its own time, and that may be later than a scan
    which was not there yet.
    """
    head, plans, until = tables.head(CONTENTS), tables.head(PLANS).partitions, as_of_label(at_s)
    keys = [key for key in head.partitions if key[2] == cache and key[1] <= until]
    for key in sorted(keys, key=itemgetter(1), reverse=True):
        times = head.rows_of([key], ["scanned_at"])["scanned_at"]
        if (times[0].as_py().timestamp() == parse_as_of(key[1])) if len(times) else key not in plans:
            return key, head.rows_of([key])
    return None, head.rows_of([])


def _check_clock(at: XCacheTarget, cache: CacheSettings) -> None:
    """Raise StaleInputError if the server on its host tells its clock, and that is not ours."""
    try:
        skew_s = at.clock_skew_s()
    except PushError:
        return
    if abs(skew_s) > cache.max_clock_skew:
        raise StaleInputError(
            f"the clock of cache {cache.name!r} is {abs(skew_s):.0f} s "
            f"{'ahead of' if skew_s > 0 else 'behind'} ours, more than max_clock_skew: nobody knows how old "
            "its inventory is; set both by NTP"
        )


def held_of(row: Mapping[str, Any]) -> Held:
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
    newest = tables.newest(CONTENTS, owner=cache, after=as_of_label(since_s - 1), until=as_of_label(at_s))
    return newest.rows(["name", "did", "bytes_on_disk"])


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


def _bytes_of(inventory: pa.Table) -> int:
    return int(pc.sum(inventory["bytes_on_disk"]).as_py() or 0)


def redirector_of(settings: Settings, cache: CacheSettings) -> Redirector | None:
    """The redirector before `cache`, with the caches at its site as nodes; None: there is none."""
    if cache.redirector is None:
        return None
    caches = settings.caches.values()
    nodes = {
        node.name: [address for address in ("{}:{}".format(*node.door), node.address) if address is not None]
        for node in caches
        if node.at_site == cache.at_site
    }
    drained = frozenset(node.name for node in caches if node.drain)
    return Redirector(cache.redirector, nodes, drained)


def serving_at(settings: Settings, cache: CacheSettings) -> frozenset[str]:
    """The caches of its site that take files now. Raises TargetUnavailable if its redirector cannot say."""
    redirector = redirector_of(settings, cache)
    undrained = frozenset(_undrained(settings, cache))
    return undrained if redirector is None else undrained & redirector.serving()


def is_here(
    settings: Settings,
    cache: CacheSettings,
    dids: pa.Array,
    *,
    held: Collection[str] = (),
    serving: Collection[str] | None = None,
    at_s: int = 0,
) -> BoolArray | None:
    """Whether each file belongs to this cache of its site; None: all do, the site has no other cache.

    Files belong to one of `serving` (None: all that are not drained) by Rucio's hash. Behind a redirector a
    file belongs to the node that holds it, because readers are sent there; of several to the one that the
    hash names, or the first by name. `held`: DIDs of what this cache holds; what others hold is known by
    their last inventories of the day before `at_s`.
    """
    members = site_capacities(settings.caches.values()).get(cache.at_site, {})
    if len(members) < 2 and not cache.drain:
        return None
    serving = _undrained(settings, cache) if serving is None else serving
    owner = owners(dids.to_pylist(), members, serving)
    if cache.redirector is not None and cache.name in serving:
        tables, since_s = Tables.of(settings), max(0, at_s - DAY_S)
        others = [node for node in serving if node != cache.name]
        known = {node: last(tables, node, at_s=at_s, since_s=since_s)["did"] for node in others}
        known[cache.name] = pa.chunked_array([pa.array(held, pa.string())])
        holds = {
            node: np.array(pc.is_in(dids, value_set=known[node].combine_chunks())) for node in sorted(known)
        }
        nodes, holders = np.array(list(holds), np.object_), np.array(list(holds.values()))
        owner_holds = (holders & (nodes[:, None] == owner[None, :])).any(axis=0)
        owner = np.where(owner_holds | ~holders.any(axis=0), owner, nodes[holders.argmax(axis=0)])
    mine: BoolArray = owner == cache.name
    return mine


def _undrained(settings: Settings, cache: CacheSettings) -> list[str]:
    return [
        node.name for node in settings.caches.values() if node.at_site == cache.at_site and not node.drain
    ]
