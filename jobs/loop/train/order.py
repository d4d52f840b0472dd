"""The region's order of eviction, learned by a training from the accesses known at its time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from features.accesses import reader_kinds
from features.common.errors import StaleInputError
from features.common.progress import Advance
from features.common.times import DAY_S, as_of_label, day_label, parse_day
from features.common.units import duration_label
from features.schema import ACCESSES
from features.spec import COLUMNS
from jobs.ground.store.tables import Tables
from jobs.loop.ingest import sources
from jobs.loop.traces import from_tables
from models.learning.order import CAPACITY_FRACTIONS, HorizonTrees, Learning
from models.serving.bundle import OrderModel
from replay.access_context import CONTEXT, context_of, file_kinds

MOST_ACCESSES = 4_000_000
"""Accesses learned from, in memory with their names: of as many days as have no more, at least of one."""


class RegionOrder(NamedTuple):
    """An order of eviction: its description in a bundle, and its models."""

    model: OrderModel
    trees: HorizonTrees


def learn(
    tables: Tables, *, since_s: int, until_s: int, demand_sources: Mapping[str, str], on_progress: Advance
) -> RegionOrder:
    """The order that could be learned at `until_s` from the accesses since the day of `since_s`.

    Raises StaleInputError or InputError if they are too few.
    """
    loaded = from_tables(
        tables,
        since_s=max(since_s, _affordable_since_s(tables, until_s)),
        until_s=until_s,
        demand_sources=demand_sources,
        known_before_s=until_s,
        keep=(*CONTEXT, "source"),
    )
    trace = loaded.trace
    capacities = [max(1, int(fraction * trace.footprint_bytes)) for fraction in CAPACITY_FRACTIONS]
    learning = Learning(trace, context_of(loaded), capacities)
    trees = learning.learn(until_s, on_progress)
    if trees is None:
        past = duration_label((until_s - int(trace.time_s[0])) // DAY_S * DAY_S)
        raise StaleInputError(
            f"{trace.n_accesses} accesses in the {past} before {as_of_label(until_s)} are too few to learn "
            "from; pull more days"
        )
    told = loaded.details["source"].unique().to_pylist()
    model = OrderModel(
        horizons_s=trees.horizons_s,
        columns=COLUMNS,
        kinds=file_kinds(trace),
        until_s=until_s,
        readers=reader_kinds(loaded.details, sources.those(told, lambda source: source.of_sessions)),
    )
    return RegionOrder(model, trees)


def _affordable_since_s(tables: Tables, until_s: int) -> int:
    """The first of the days that are learned from; see `MOST_ACCESSES`."""
    days = tables.snapshot(ACCESSES).select(until=day_label(until_s))
    n_accesses, since_s = 0, until_s
    for key, part in sorted(days.items(), reverse=True):
        n_accesses += part.n_rows
        if n_accesses > MOST_ACCESSES and since_s < until_s:
            break
        since_s = parse_day(key[0])
    return since_s
