"""What a replay answers."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class ReplayAnswer:
    """A row per capacity and policy, and notes on rows of the trace that were changed or dropped.

    `verdict`: what rows of several caches show, in sentences.
    """

    rows: list[dict[str, object]]
    notes: tuple[str, ...]
    verdict: str = ""
