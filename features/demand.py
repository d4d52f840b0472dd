"""Selection of demand accesses: a read reported by two sources must not count twice."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

EVERYWHERE = "*"
"""The key of a demand source for all places without a key of their own."""

PLACES = ("cache", "site")
"""Columns with the place of an access, by precedence."""


def demand(accesses: pa.Table, sources: Mapping[str, str]) -> pa.Table:
    """The rows of `accesses` (cache, site, source) whose source is the demand source of their place."""
    wanted = pa.nulls(accesses.num_rows, pa.string())
    named = {place: source for place, source in sources.items() if place != EVERYWHERE}
    for place in PLACES:
        at = pc.index_in(accesses[place], value_set=pa.array(list(named), pa.string()), skip_nulls=True)
        wanted = pc.coalesce(wanted, pa.array(list(named.values()), pa.string()).take(at.combine_chunks()))
    if EVERYWHERE in sources:
        wanted = pc.fill_null(wanted, sources[EVERYWHERE])
    return accesses.filter(pc.fill_null(pc.equal(wanted, accesses["source"]), True))
