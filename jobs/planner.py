"""The planner that production and replay share, fed from the predictions table."""

from __future__ import annotations

import functools

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from features.errors import StaleInputError
from features.schema import PREDICTIONS
from features.times import as_of_label
from features.units import duration_label
from jobs.settings import PlanSettings
from jobs.tables import Tables
from prefetch.control import is_control
from prefetch.plan import Limits, Scores, ValuePlanner

KEPT_BOUNDARIES = 256
"""Boundaries whose scores stay in memory: a replay walks several capacities through the same weeks."""

_COLUMNS = ["did", "horizon_s", "probability", "size_bytes", "last_read_s"]


def planner(tables: Tables, dids: pa.Array, *, region: str, plan: PlanSettings, cycle_s: int) -> ValuePlanner:
    """A planner over the files `dids` (a file's dense id is its index there).

    At each boundary it reads that as_of's predictions; files that are not among `dids` are left out.
    Raises StaleInputError at a boundary without predictions.
    """

    @functools.lru_cache(maxsize=KEPT_BOUNDARIES)
    def scores_at(as_of_s: int) -> Scores:
        label = as_of_label(as_of_s)
        rows = tables.read_arrow(PREDICTIONS, as_of=label, owner=region, columns=_COLUMNS)
        rows = rows.filter(pc.equal(rows["horizon_s"], plan.horizon))
        if not rows.num_rows:
            # Without scores every file would look worthless: better no plan than that one.
            raise StaleInputError(
                f"no predictions at {label} for region {region!r} within {duration_label(plan.horizon)}, "
                "the [plan] horizon; run predict, or plan by a horizon that was predicted"
            )
        return _scores(rows, dids)

    limits = Limits(
        cycle_s=cycle_s,
        pin_share=plan.pin_share,
        evict_inflow=plan.evict_inflow,
        prefetch_share=plan.prefetch_share,
        min_prefetch_probability=plan.min_prefetch_probability,
    )
    return ValuePlanner(scores_at, limits, is_control(dids.to_pylist(), plan.control_share))


def _scores(rows: pa.Table, dids: pa.Array) -> Scores:
    item = pc.index_in(rows["did"], value_set=dids)
    usable = pc.and_(pc.is_valid(item), pc.is_valid(rows["size_bytes"]))
    rows = rows.append_column("item", item).filter(usable)
    return Scores(
        item=rows["item"].to_numpy().astype(np.int64),
        size_bytes=rows["size_bytes"].to_numpy().astype(np.int64),
        probability=rows["probability"].to_numpy(),
        was_read=pc.is_valid(rows["last_read_s"]).to_numpy(),
    )
