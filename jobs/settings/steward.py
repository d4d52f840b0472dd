"""The settings of `[steward]`."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from jobs.settings.values import Seconds, Section

Policy = Literal["auto", "learned", "s3fifo", "sieve", "2q", "dataset-lru", "lru"]


class StewardSettings(Section):
    """The order in which stewards evict, how much stays free, and where their figures are."""

    policy: Policy
    look: Seconds
    state: Path

    def figures(self, cache: str) -> Path:
        """What it reports of itself."""
        return self.state / f"{cache}.json"
