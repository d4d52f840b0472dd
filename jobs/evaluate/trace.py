"""Step `evaluate --trace`: a learned order of eviction beside the other policies, on any trace.

The order is learned once, from what lies before the counted days. Nothing is prefetched, and every policy
decides at each access.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import partial

from features.common.progress import Advance
from features.common.times import day_label
from features.results import STEWARD
from jobs.evaluate.evaluate import EvaluationAnswer, write_files
from jobs.evaluate.ready import check_days
from jobs.evaluate.record import Compared, Evaluated, answer_rows, no_bounds, record_run
from jobs.evaluate.scene import capacity_bytes
from jobs.settings.tree import MlflowSettings
from jobs.store.traces import Beside, TraceFile
from models.learning.order import Learning
from replay.access_context import AccessContext, story
from replay.contest import BOUND, Lineup, standings
from replay.policies import PartPolicy, Policy
from replay.steward.policies import AUTO, DATASET_LRU, Orders, steward_policy

STEWARDS = (STEWARD, AUTO, DATASET_LRU)
"""The learned order, the choice among it and heuristics, and the one of these that is no policy itself."""
MOST_FOLLOWED = 4_000_000
"""No kernel serves the last two of `STEWARDS`: with more accesses, times capacities, they are left out."""
POLICIES = ("lru", "fifo", "lfu", "lfu-da", "gdsf", "sieve", "2q", "s3fifo", "clairvoyant")


def run(
    file: TraceFile,
    beside: Beside,
    *,
    from_s: int,
    fractions: Sequence[float],
    mlflow: MlflowSettings | None = None,
    on_progress: Advance,
) -> EvaluationAnswer:
    """A row per capacity and policy, counted from `from_s`; what lies before is learned from, and warms.

    `mlflow`: where the evaluation becomes a run; None: nowhere. Raises InputError, SchemaError.
    """
    on_progress(0, 1, "reading")
    loaded = file.load(keep=[name for name in beside if name is not None])
    trace = loaded.trace
    told = story(loaded, **beside._asdict())
    check_days(int(trace.time_s[0]), int(trace.time_s[-1]), from_s=from_s)
    capacities = [capacity_bytes(trace, share) for share in fractions]
    orders = Learning(trace, told, capacities).orders(from_s, on_progress)
    stewards = STEWARDS if trace.n_accesses * len(capacities) <= MOST_FOLLOWED else STEWARDS[:1]
    lineups = [
        Lineup(size, _policies(stewards, told, {size: order}))
        for size, order in zip(capacities, orders, strict=True)
    ]
    replayed = standings(
        trace,
        lineups,
        count_from_s=from_s,
        on_done=lambda done, total, policy: on_progress(done, total, f"{policy} replayed"),
    )
    compared = [Compared(share, at) for share, at in zip(fractions, replayed, strict=True)]
    answer = EvaluationAnswer(
        model_version=None,
        first_day=day_label(from_s),
        last_day=day_label(int(trace.time_s[-1])),
        rows=answer_rows(compared),
        notes=(*loaded.notes, *_notes(stewards), *no_bounds(compared)),
    )
    if mlflow is None:
        return answer
    params = {"trace": file.path.name, "first_day": answer.first_day, "last_day": answer.last_day}
    name = f"{file.path.name} {answer.first_day} to {answer.last_day}"
    evaluated = Evaluated(name, params, compared, from_s)
    return dataclasses.replace(answer, run_id=record_run(mlflow, evaluated, partial(write_files, answer)))


def _policies(
    stewards: Sequence[str], told: AccessContext, learned: Orders
) -> dict[str, Policy | PartPolicy | None]:
    """All that competes at one capacity; the stewards share what was learned."""
    followed = {name: steward_policy(name, told, learned) for name in stewards}
    return {**dict.fromkeys(POLICIES), **followed, BOUND: None}


def _notes(stewards: Sequence[str]) -> tuple[str, ...]:
    if left_out := [name for name in STEWARDS if name not in stewards]:
        return (f"too many accesses for {' and '.join(left_out)}: `replay --policy` runs them alone",)
    return ()
