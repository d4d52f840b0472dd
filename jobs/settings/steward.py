"""The settings of `[steward]`."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from jobs.settings.values import Seconds, Section

Policy = Literal["auto", "learned", "s3fifo", "dataset-lru", "lru"]


class StewardSettings(Section):
    """The order in which stewards evict, how much stays free, and where their figures are."""

    policy: Policy
    look: Seconds
    state: Path
    """A folder per cache, which may belong to another account than the rest."""

    def figures(self, cache: str) -> Path:
        """What it reports of itself."""
        return self.state / cache / f"{cache}.json"
