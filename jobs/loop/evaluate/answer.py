"""What an evaluation answers."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class EvaluationAnswer:
    """The result of an evaluation.

    `rows`: one per capacity and policy, see `record.answer_rows`; `slices`: the same by activity, see
    `slices.slice_rows`. `model_version`: the candidate that was evaluated, None without one; `run_id`: the
    run in MLflow, None if it was not recorded.
    """

    model_version: str | None
    first_day: str
    last_day: str
    rows: tuple[dict[str, object], ...]
    notes: tuple[str, ...]
    run_id: str | None = None
    slices: tuple[dict[str, object], ...] = ()
