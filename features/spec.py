"""Which features and labels are computed, and the names of their columns.

Every duration is in seconds. A column's name states transform and window: `n_access_7d`, `decayed_12h`.
The same columns exist for a file and, with the prefix `dataset_`, for its dataset.
"""

from __future__ import annotations

import dataclasses

from features.schema import Column, Table
from features.units import duration_label

DATASET_PREFIX = "dataset_"


@dataclasses.dataclass(frozen=True)
class FeatureSpec:
    """Knobs of features and labels.

    `cycle_s` is the grid of as_ofs and of the roll-up; all durations but half-lives are multiples of it, else
    ValueError. A window of w covers accesses in [as_of - w, as_of). `candidate_s`: a file is a candidate if
    it was read within this time before as_of, or if its dataset was read within `active_dataset_s`.
    """

    cycle_s: int
    windows_s: tuple[int, ...]
    half_lives_s: tuple[int, ...]
    horizons_s: tuple[int, ...]
    n_gaps: int
    candidate_s: int
    active_dataset_s: int

    def __post_init__(self) -> None:
        on_grid = (*self.windows_s, *self.horizons_s, self.candidate_s, self.active_dataset_s)
        if off := [value for value in on_grid if value % self.cycle_s]:
            raise ValueError(f"durations must be multiples of the cycle of {self.cycle_s} s, got {off[0]}")

    @property
    def history_s(self) -> int:
        """How far back a feature at as_of looks: the longest of all times before it."""
        return max(*self.windows_s, self.candidate_s, self.active_dataset_s)

    def popularity_columns(self, prefix: str = "") -> list[str]:
        """Columns of one entity's own history."""
        windows = [duration_label(w) for w in self.windows_s]
        return (
            [f"{prefix}n_access_{w}" for w in windows]
            + [f"{prefix}read_bytes_{w}" for w in windows]
            + [f"{prefix}n_active_{w}" for w in windows]
            + [f"{prefix}decayed_{duration_label(h)}" for h in self.half_lives_s]
            + [f"{prefix}n_users", f"{prefix}n_tasks", f"{prefix}recency_s", f"{prefix}first_read_s"]
            + [f"{prefix}gap_{k}_s" for k in range(1, self.n_gaps + 1)]
        )

    @property
    def context_columns(self) -> list[str]:
        """Columns that are not an entity's own history."""
        return ["size_bytes", "age_s", "dataset_n_files", "dataset_touched_share", "hour", "weekday"]

    @property
    def numeric_columns(self) -> list[str]:
        """Every numeric model input, in order."""
        return self.popularity_columns() + self.popularity_columns(DATASET_PREFIX) + self.context_columns

    @property
    def categorical_columns(self) -> list[str]:
        """Every model input that is a name."""
        return ["tier"]

    @property
    def label_columns(self) -> list[str]:
        """`n_access_within_{h}` per horizon: reads in [as_of, as_of + h); null while not matured."""
        return [f"n_access_within_{duration_label(h)}" for h in self.horizons_s]

    @property
    def features_table(self) -> Table:
        """The features table under this spec. Columns are null where there is no history to tell."""
        return Table(
            name="features",
            grain="(file, region, as_of)",
            key=("did",),
            partition=("day", "as_of", "region"),
            columns=(
                Column("did", "string", "scope:name", required=True),
                Column("dataset", "string", "did of the dataset"),
                Column("tier", "string", "data tier"),
                *(Column(name, "double", "see features.spec") for name in self.numeric_columns),
            ),
        )

    @property
    def labels_table(self) -> Table:
        """The labels table under this spec."""
        return Table(
            name="labels",
            grain="(file, region, as_of)",
            key=("did",),
            partition=("day", "as_of", "region"),
            columns=(
                Column("did", "string", "scope:name", required=True),
                *(Column(name, "long", "reads within the horizon") for name in self.label_columns),
                Column(
                    "next_access_s",
                    "long",
                    "seconds to the next read within the longest horizon; null: none seen",
                ),
            ),
        )
