"""Selection of demand accesses: a read reported by two sources must not count twice."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from features.demand import EVERYWHERE


def demand(accesses: DataFrame, sources: Mapping[str, str]) -> DataFrame:
    """The rows of `accesses` whose source is the demand source of their place.

    `sources`: the source whose rows count, by cache or site. A cache has precedence over its site; `*` is for
    all others. Rows without a matching key all count. `accesses`: as the table.
    """
    if not sources:
        return accesses
    wanted = F.coalesce(_source_of("cache", sources), _source_of("site", sources), _source(sources))
    return accesses.where(wanted.isNull() | (wanted == F.col("source")))


def _source_of(place: str, sources: Mapping[str, str]) -> Column:
    wanted = F.lit(None).cast("string")
    for name, source in sources.items():
        if name != EVERYWHERE:
            wanted = F.when(F.col(place) == name, source).otherwise(wanted)
    return wanted


def _source(sources: Mapping[str, str]) -> Column:
    return F.lit(sources.get(EVERYWHERE)).cast("string")
