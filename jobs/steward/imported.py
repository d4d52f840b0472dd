"""The order of eviction that another site has exported and `jobs.train.exchange` took in, for a steward."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from features.common.errors import ModelError, ServiceError
from features.results import IMPORTED_ORDERS
from jobs.store.tables import Tables, read_partitions

if TYPE_CHECKING:
    from models.serving.served_order import ServedOrder


def imported(tables: Tables, region: str, *, known: ServedOrder | None) -> ServedOrder | None:
    """The region's newest imported order; None if there is none.

    `known`: an order that was loaded before, returned if it is still the same. Raises ModelError if its file
    does not have its digest or cannot be followed, ServiceError if the table cannot be read.
    """
    try:
        newest = tables.newest(IMPORTED_ORDERS, owner=region)
        rows = read_partitions(newest, newest.partitions).to_pylist()
    except (OSError, pa.ArrowException) as error:
        raise ServiceError(f"the table {IMPORTED_ORDERS.name} cannot be read: {error}") from None
    for row in rows:
        version = f"imported-{row['digest'][:12]}"
        if known is not None and known.version == version:
            return known
        return _served(row["file"].encode(), row["digest"], version)
    return None


def _served(data: bytes, expected: str, version: str) -> ServedOrder:
    from models.learning.order import horizon_models
    from models.serving.order_file import OrderFile, digest
    from models.serving.served_order import ServedOrder
    from replay.policies.learned import Order

    if digest(data) != expected:
        raise ModelError(f"the file of {version} in the table {IMPORTED_ORDERS.name} was changed")
    try:
        found = OrderFile.of(data)
    except ModelError as error:
        raise ModelError(f"{version} in the table {IMPORTED_ORDERS.name} is not followed: {error}") from None
    order = Order(found.order.until_s, horizon_models(found.rungs))
    return ServedOrder(
        order, found.order.kinds, found.order.until_s, version, found.order.readers, is_imported=True
    )
