"""What the table promotions lets act. The table is ours; in MLflow, whoever reaches it can move an alias."""

from __future__ import annotations

import pyarrow as pa

from features.common.errors import ServiceError
from features.results import PROMOTIONS
from jobs.store.tables import Tables, read_partitions
from models.serving.names import CHAMPION, STEWARD, Named


def named(tables: Tables, *, region: str) -> dict[str, Named]:
    """What the region's last decision lets act, by alias in MLflow; nothing acts by an alias that is missing.

    Raises ServiceError if the table cannot be read.
    """
    columns = ["champion", "champion_digest", "steward", "steward_digest"]
    try:
        newest = tables.newest(PROMOTIONS, owner=region)
        rows = read_partitions(newest, newest.partitions, columns).to_pylist()
    except (OSError, pa.ArrowException) as error:
        raise ServiceError(f"the table promotions cannot be read: {error}") from None
    return {
        alias: Named(row[alias], row[f"{alias}_digest"])
        for row in rows
        for alias in (CHAMPION, STEWARD)
        if row[alias] is not None
    }


def unproven_because(model: Named, champion: Named | None) -> str | None:
    """Why plans by `model` may not act, if the table promotions lets `champion` act; None: they may."""
    if champion is None:
        return f"the plan is by {model.version}, and no model was promoted yet"
    if model.version != champion.version:
        return f"the plan is by {model.version}, and the champion is {champion.version}"
    if model.digest is None or model.digest != champion.digest:
        return f"the plan is by {model.version}, but not by those files of it that were promoted"
    return None
