"""The planner that production and replay share: fed by predictions, with the weight of the models."""

import functools
import math
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from features.common.arrays import IntArray
from features.common.errors import StaleInputError
from features.common.times import as_of_label
from features.common.units import duration_label
from features.results import EVALUATIONS
from features.schema import PREDICTIONS
from jobs.ground.settings.plan import PlanSettings
from jobs.ground.store.tables import Tables
from models.evaluation.promotion import UNPROVEN
from models.serving.versions import ModelVersion
from prefetch.plan.items import PlanLimits
from prefetch.plan.planner import ValuePlanner
from prefetch.plan.scores import NEVER_S, Files, KnownWork, Scores, with_known

KEPT_BOUNDARIES = 256  # scores in memory, because a replay repeats the same weeks per capacity
_COLUMNS = ["did", "horizon_s", "probability", "size_bytes", "last_read_s"]
_WEIGHT_COLUMNS = ["as_of", "scored_by", "capacity_bytes", "model_weight"]
MODEL_COLUMNS = ["model_version", "model_digest"]  # of predictions, and of plans: what made them


def planner(
    tables: Tables,
    dids: pa.Array,
    *,
    region: str,
    plan: PlanSettings,
    cycle_s: int,
    predicted_every_s: int | None = None,
    files: Files,
    origin_bytes: IntArray | None = None,
    work_at: Callable[[int], KnownWork] | None = None,
    version: str,
) -> ValuePlanner:
    """A planner over the files `dids` (a file's dense id is its index there).

    At each boundary it reads the latest predictions, made every `predicted_every_s` (None: at each boundary);
    files that are not among `dids` are left out. `files`: facts about them. `version`: of the models that
    made the predictions. Raises StaleInputError at a boundary without predictions.
    """
    every_s = predicted_every_s or cycle_s

    @functools.lru_cache(maxsize=KEPT_BOUNDARIES)
    def predicted(as_of_s: int) -> Scores:
        label = as_of_label(as_of_s)
        rows = tables.read_arrow(PREDICTIONS, as_of=label, owner=region, columns=_COLUMNS)
        if not pc.any(pc.equal(rows["horizon_s"], plan.horizon)).as_py():
            # Without scores every file would look worthless, so there must be no plan.
            raise StaleInputError(
                f"no predictions at {label} for region {region!r} within {duration_label(plan.horizon)}, "
                "the [plan] horizon; run predict, or plan by a horizon that was predicted"
            )
        return _scores(rows, dids, as_of_s)

    def scores_at(as_of_s: int) -> Scores:
        scores = predicted(as_of_s - as_of_s % every_s)
        return scores if work_at is None else with_known(scores, work_at(as_of_s))

    return ValuePlanner(
        scores_at,
        limits(plan, cycle_s, origin_bytes),
        files,
        plan.horizon,
        plan.objective,
        model_weight(tables, plan, region=region, version=version),
    )


def limits(plan: PlanSettings, cycle_s: int, origin_bytes: IntArray | None = None) -> PlanLimits:
    return PlanLimits(
        cycle_s=cycle_s,
        prefetch_share=plan.prefetch_share,
        queued_share=plan.queued_share,
        min_prefetch_probability=plan.min_prefetch_probability,
        read_once_below=plan.read_once_below,
        hysteresis=plan.hysteresis,
        wan_bytes_per_hour=plan.wan_per_hour,
        quiet_hours=plan.quiet_hours,
        origin_bytes=origin_bytes,
        cached_fraction=1.0 if plan.cluster is None else plan.cluster.cached_fraction,
    )


def _scores(rows: pa.Table, dids: pa.Array, as_of_s: int) -> Scores:
    item = pc.index_in(rows["did"], value_set=dids)
    usable = pc.and_(pc.is_valid(item), pc.is_valid(rows["size_bytes"]))
    rows = rows.append_column("item", item).filter(usable)
    ids, is_there = rows["item"].to_numpy(), np.zeros(len(dids), np.bool_)
    is_there[ids] = True
    items, entry = np.flatnonzero(is_there), (np.cumsum(is_there) - 1)[ids]
    horizons = np.sort(pc.unique(rows["horizon_s"]).to_numpy())
    row = np.searchsorted(horizons, rows["horizon_s"].to_numpy())
    probability = np.zeros((horizons.size, items.size))
    probability[row, entry] = rows["probability"].to_numpy()
    size, last_read_s = np.zeros(items.size, np.int64), np.zeros(items.size, np.int64)
    size[entry] = rows["size_bytes"].to_numpy()
    last_read_s[entry] = pc.subtract(as_of_s, rows["last_read_s"]).fill_null(NEVER_S).to_numpy()
    return Scores(as_of_s, items, size, tuple(horizons.tolist()), probability, last_read_s)


def model_weight(tables: Tables, plan: PlanSettings, *, region: str, version: str) -> Callable[[int], float]:
    """The weight of models `version` in plans, 0 to 1, by the cache's capacity in bytes.

    `"auto"`: of the nearest capacity in their newest evaluation; UNPROVEN without one.
    """
    if plan.model_weight != "auto":
        weight = plan.model_weight
        return lambda _: weight
    weights = _evaluated(tables, region, version)
    if not weights:
        return lambda _: UNPROVEN
    return lambda capacity_bytes: weights[
        min(weights, key=lambda known: abs(math.log(known / capacity_bytes)))
    ]


def model_of(rows: pa.Table) -> ModelVersion:
    """The model that made `rows` (with MODEL_COLUMNS); without a digest if that is not one known model."""
    versions, digests = (pc.unique(rows[name]).to_pylist() for name in MODEL_COLUMNS)
    return ModelVersion(", ".join(sorted(map(str, versions))), digests[0] if len(digests) == 1 else None)


def _evaluated(tables: Tables, region: str, version: str) -> dict[int, float]:
    """The weights by capacity in the newest evaluation of `version` that chose some."""
    rows = [
        row
        for row in tables.head(EVALUATIONS).rows(_WEIGHT_COLUMNS, owner=region).to_pylist()
        if row["scored_by"] == version and row["model_weight"] is not None and row["capacity_bytes"]
    ]
    newest = max((row["as_of"] for row in rows), default=None)
    return {row["capacity_bytes"]: row["model_weight"] for row in rows if row["as_of"] == newest}
