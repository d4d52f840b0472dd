"""Settings of the gate of completeness: what a source is expected to deliver."""

from __future__ import annotations

from typing import Literal

import pydantic

from jobs.settings.values import Pause, Seconds, Section, Share


class ArrivalSettings(Section):
    """When the records of a decision time are incomplete; conf/base.toml explains the keys."""

    usual_share: Share
    least: int = pydantic.Field(ge=1)
    weeks: int = pydantic.Field(ge=1, le=52)
    delay: Pause
    rejected: Share
    max_age: Seconds
    incomplete: Literal["note", "skip"]
