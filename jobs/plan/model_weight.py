"""How far plans follow the models, by capacity: as set, or as the evaluation of the models found best."""

from __future__ import annotations

import math
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from features.results import EVALUATIONS
from jobs.settings.plan import PlanSettings
from jobs.store.tables import Tables
from models.evaluation.weight import UNPROVEN
from models.serving.names import Named

_COLUMNS = ["as_of", "scored_by", "capacity_bytes", "model_weight"]


def model_weight(tables: Tables, plan: PlanSettings, *, region: str, version: str) -> Callable[[int], float]:
    """The weight of the models `version` in plans for a cache of so many bytes.

    "auto": of the capacity nearest to it in the newest evaluation of these models; UNPROVEN without one.
    """
    if plan.model_weight != "auto":
        chosen = plan.model_weight
        return lambda _: chosen
    found = _evaluated(tables, region, version)
    if not found:
        return lambda _: UNPROVEN
    return lambda capacity_bytes: found[min(found, key=lambda known: abs(math.log(known / capacity_bytes)))]


MODEL_COLUMNS = ["model_version", "model_digest"]
"""Of predictions, and of plans: what made them."""


def model_of(rows: pa.Table) -> Named:
    """What made `rows`, with the MODEL_COLUMNS; no digest if that are several models, or it is not known."""
    versions, digests = (pc.unique(rows[name]).to_pylist() for name in MODEL_COLUMNS)
    return Named(", ".join(sorted(map(str, versions))), digests[0] if len(digests) == 1 else None)


def _evaluated(tables: Tables, region: str, version: str) -> dict[int, float]:
    """The weights by capacity in the newest evaluation of `version` that chose some."""
    if not tables.exists(EVALUATIONS):
        return {}
    rows = [
        row
        for row in tables.read_arrow(EVALUATIONS, owner=region, columns=_COLUMNS).to_pylist()
        if row["scored_by"] == version and row["model_weight"] is not None and row["capacity_bytes"]
    ]
    newest = max((row["as_of"] for row in rows), default=None)
    return {row["capacity_bytes"]: row["model_weight"] for row in rows if row["as_of"] == newest}
