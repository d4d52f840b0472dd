"""The steps of the placement service as settings configure them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING

from jobs.settings.tree import Settings

if TYPE_CHECKING:
    from jobs.placement.refresh import PlacementSummary


def place(settings: Settings, *, as_of_s: int) -> PlacementSummary:
    """Refresh what the placement service knows."""
    from jobs.placement.refresh import run
    from jobs.placement.serve import rates
    from jobs.store.tables import Tables
    from prefetch.placement.database import Database

    caches = list(settings.caches.values())
    n_nodes = {site: sum(c.at_site == site for c in caches) for site in {c.at_site for c in caches}}
    with closing(Database(settings.serve.database)) as database:
        return run(
            Tables(settings.tables.root),
            database=database,
            caches=caches,
            rates_bytes_s=rates(settings.serve, n_nodes),
            region=settings.region.name,
            as_of_s=as_of_s,
            horizon_s=settings.plan.horizon,
            min_reads=settings.serve.min_reads,
        )


def serve(settings: Settings, *, host: str | None, port: int | None, log: Callable[[str], None]) -> None:
    """Run the placement service until it is stopped."""
    from jobs.placement.serve import run

    given = {key: value for key, value in (("host", host), ("port", port)) if value is not None}
    chosen = settings.serve.model_copy(update=given)
    run(chosen, job_read_rate_bytes_s=settings.benefit.job_read_rate, log=log)
