"""The settings of `[features]`."""

from __future__ import annotations

import pydantic

from features.spec import LONGEST_HORIZON_S, FeatureSpec
from jobs.ground.settings.values import Seconds, Section, Share


class FeatureSettings(Section):
    """Grid, candidates and horizons of features and labels."""

    cycle: Seconds
    horizons: tuple[Seconds, ...] = pydantic.Field(min_length=1)
    candidates: Seconds
    active_datasets: Seconds
    unread_per_dataset: int = pydantic.Field(ge=0)
    history: Seconds
    local_up_to: int = pydantic.Field(ge=0)
    kept_at: Share

    @pydantic.model_validator(mode="after")
    def _on_the_grid(self) -> FeatureSettings:
        if 86400 % self.cycle and self.cycle % 86400:
            raise ValueError("cycle must divide a day, or be whole days")
        for key, values in (
            ("horizons", self.horizons),
            ("candidates", (self.candidates,)),
            ("active_datasets", (self.active_datasets,)),
            ("history", (self.history,)),
        ):
            if any(value % self.cycle for value in values):
                raise ValueError(f"{key} must be multiples of cycle")
        if max(self.horizons) > LONGEST_HORIZON_S:
            raise ValueError(f"horizons must be at most {LONGEST_HORIZON_S // 86400} days")
        if self.history < max(self.candidates, self.active_datasets):
            raise ValueError("history must be at least as long as candidates and active_datasets")
        return self

    @property
    def spec(self) -> FeatureSpec:
        """The same values in the type of the features room."""
        return FeatureSpec(
            cycle_s=self.cycle,
            horizons_s=self.horizons,
            candidate_s=self.candidates,
            active_dataset_s=self.active_datasets,
            unread_per_dataset=self.unread_per_dataset,
            history_s=self.history,
        )
