"""The caches of one site together: which of them serve now, and which holds, or is to hold, a file."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from features.common.arrays import BoolArray
from features.common.times import DAY_S
from jobs.ground.caches.inventory import last
from jobs.ground.settings.tree import CacheSettings, Settings, site_capacities
from jobs.ground.store.tables import Tables
from prefetch.plan.rules import owners
from prefetch.xcache.redirector import Redirector
from replay.federation.ranges import OwnerArray

_XROOTD_PORT = 1094


def redirector_of(caches: Collection[CacheSettings], cache: CacheSettings) -> Redirector | None:
    """The redirector before `cache`, with those of `caches` at its site as nodes; None: there is none."""
    if cache.redirector is None:
        return None
    nodes = {one.name: _addresses(one) for one in caches if one.at_site == cache.at_site}
    drained = frozenset(one.name for one in caches if one.drain)
    return Redirector(cache.redirector, nodes, drained)


def serving_at(settings: Settings, cache: CacheSettings) -> frozenset[str]:
    """The caches of its site that take files now: not drained, and nodes that a redirector names.

    Raises TargetUnavailable if the redirector does not answer, or knows none of them.
    """
    redirector = redirector_of(list(settings.caches.values()), cache)
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
        owner = _with_holders(owner, {node: _among(dids, known[node]) for node in sorted(known)})
    mine: BoolArray = owner == cache.name
    return mine


def _with_holders(owner: OwnerArray, holds: Mapping[str, BoolArray]) -> OwnerArray:
    """`owner` where it holds the file or nobody does, else the first of the nodes that hold it."""
    nodes, holders = np.array(list(holds), np.object_), np.array(list(holds.values()))
    owner_holds = (holders & (nodes[:, None] == owner[None, :])).any(axis=0)
    holder: OwnerArray = np.where(owner_holds | ~holders.any(axis=0), owner, nodes[holders.argmax(axis=0)])
    return holder


def _undrained(settings: Settings, cache: CacheSettings) -> list[str]:
    return [one.name for one in settings.caches.values() if one.at_site == cache.at_site and not one.drain]


def _among(dids: pa.Array, some: pa.ChunkedArray) -> BoolArray:
    is_among: BoolArray = pc.is_in(dids, value_set=some.combine_chunks()).to_numpy(zero_copy_only=False)
    return is_among


def _addresses(cache: CacheSettings) -> list[str]:
    parts = urlsplit(cache.url)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return [f"{host}:{parts.port or _XROOTD_PORT}", *([] if cache.address is None else [cache.address])]
