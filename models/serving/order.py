"""The region's order of eviction, as a steward takes it from MLflow."""

from __future__ import annotations

import dataclasses

from models.serving.bundle_files import read_about, read_order
from models.serving.names import STEWARD, Named
from models.serving.registry import Registry
from replay.policies.learned import Order


@dataclasses.dataclass(frozen=True)
class ServedOrder:
    """An order for one cache. `kinds`: names of the tiers that it was trained with (`replay.access_context`).

    `readers`: the kinds of readers that it was told of (`features.stream.readers`).
    """

    order: Order
    kinds: tuple[str, ...]
    until_s: int
    version: str
    readers: tuple[str, ...] = ()


def load_order(
    registry: Registry,
    region: str,
    capacity_bytes: int,
    *,
    named: Named | None,
    known: ServedOrder | None = None,
) -> ServedOrder | None:
    """The region's order that may evict, for a cache of so many bytes; None if there is none.

    `named`: what the table promotions names. `known`: one that was loaded before, returned without its files
    being read again if it still is the one. Raises ModelError if its files were changed or cannot be read, or
    the alias is not at `named`, and ServiceError.
    """
    if (confirmed := registry.confirmed(region, STEWARD, named)) is None:
        return None
    version = confirmed.version
    if known is not None and known.version == version:
        return known
    with registry.files(confirmed) as folder:
        found = read_about(folder).order
        if found is None:
            return None
        order = Order(found.until_s, read_order(folder, found), found.share(capacity_bytes))
    return ServedOrder(order, found.kinds, found.until_s, version, found.readers)
