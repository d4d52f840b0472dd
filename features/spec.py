"""Settings of features and labels, and the names of their columns.

Every duration is in seconds. A column's name states transform and window: `n_access_7d`, `decayed_12h`.
The same columns exist for a file and, with the prefix `dataset_`, for its dataset; of tiers and campaigns
there are only counts of reads.
"""

from __future__ import annotations

import dataclasses

from features.schema import Column, Table
from features.units import duration_label

DATASET_PREFIX = "dataset_"
LONGEST_HORIZON_S = 63 * 86400
"""Longest horizon of a label: its distinct days are bits of one long."""

FRONT_CYCLES = 3

GROUP_PREFIXES = {"tier": "tier_", "campaign": "campaign_"}


@dataclasses.dataclass(frozen=True)
class FeatureSpec:
    """Settings of features and labels. Raises ValueError if a duration is not on the grid.

    `cycle_s`: the grid of as_ofs and of the roll-up; all durations except half-lives are multiples of it. A
    window w covers accesses in [as_of - w, as_of). A file is a candidate if it was read within `candidate_s`
    before as_of, or if its dataset was read within `active_dataset_s`; of unread files at most
    `unread_per_dataset` are candidates, the first by name. A dataset's pass ends if it is not read for
    `active_dataset_s`. `sample_share`: share of the candidates that are kept, by a hash of file and as_of;
    samples are stored in tables of their own, and their models serve all files.
    """

    cycle_s: int
    windows_s: tuple[int, ...]
    half_lives_s: tuple[int, ...]
    horizons_s: tuple[int, ...]
    n_gaps: int
    candidate_s: int
    active_dataset_s: int
    unread_per_dataset: int = 1000
    sample_share: float = dataclasses.field(default=1.0, compare=False)

    def __post_init__(self) -> None:
        on_grid = (*self.windows_s, *self.horizons_s, self.candidate_s, self.active_dataset_s)
        if off := [value for value in on_grid if value % self.cycle_s]:
            raise ValueError(f"durations must be multiples of the cycle of {self.cycle_s} s, got {off[0]}")

    @property
    def _of_sample(self) -> str:
        return "_sample" if self.sample_share < 1 else ""

    @property
    def history_s(self) -> int:
        """The longest time before as_of that a feature depends on."""
        return max(*self.windows_s, self.candidate_s, self.active_dataset_s)

    def popularity_columns(self, prefix: str = "") -> list[str]:
        """Columns of the history of a file, or of its dataset with a prefix."""
        windows = [duration_label(w) for w in self.windows_s]
        return (
            [f"{prefix}n_access_{w}" for w in windows]
            + [f"{prefix}read_bytes_{w}" for w in windows]
            + [f"{prefix}n_active_{w}" for w in windows]
            + [f"{prefix}decayed_{duration_label(h)}" for h in self.half_lives_s]
            + [f"{prefix}n_users", f"{prefix}n_tasks", f"{prefix}recency_s", f"{prefix}first_read_s"]
            + [f"{prefix}n_same_hour", f"{prefix}n_same_weekday"]
            + [f"{prefix}gap_{k}_s" for k in range(1, self.n_gaps + 1)]
        )

    def group_columns(self, prefix: str) -> list[str]:
        """Columns of the group (tier or campaign) of a file."""
        return [f"{prefix}n_access_{duration_label(w)}" for w in self.windows_s]

    @property
    def progress_columns(self) -> list[str]:
        """Columns of the progress of a dataset's present pass."""
        return [
            "dataset_n_files",
            "dataset_touched_share",
            "dataset_n_passes",
            "dataset_pass_age_s",
            "dataset_pass_rate",
            "dataset_shift_s",
        ]

    @property
    def front_s(self) -> int:
        """Files of a dataset read within this time before as_of are the front of its present pass."""
        return FRONT_CYCLES * self.cycle_s

    @property
    def context_columns(self) -> list[str]:
        """Columns that are not the history of a file or dataset."""
        groups = [name for prefix in GROUP_PREFIXES.values() for name in self.group_columns(prefix)]
        return ["size_bytes", "age_s", *self.progress_columns, "due_s", *groups, "hour", "weekday"]

    @property
    def numeric_columns(self) -> list[str]:
        """Every numeric model input, in order."""
        return self.popularity_columns() + self.popularity_columns(DATASET_PREFIX) + self.context_columns

    @property
    def categorical_columns(self) -> list[str]:
        """Every categorical model input."""
        return ["tier", "campaign"]

    @property
    def label_columns(self) -> list[str]:
        """`n_access_within_{h}` per horizon: reads in [as_of, as_of + h); null while not matured."""
        return [f"n_access_within_{duration_label(h)}" for h in self.horizons_s]

    @property
    def day_label_columns(self) -> list[str]:
        """`n_days_within_{h}` per horizon: distinct UTC days with a read; null while not matured."""
        return [f"n_days_within_{duration_label(h)}" for h in self.horizons_s]

    @property
    def features_table(self) -> Table:
        """The features table of this spec. Columns are null where there is no history."""
        return Table(
            name=f"features{self._of_sample}",
            grain="(file, region, as_of)",
            key=("did",),
            partition=("day", "as_of", "region"),
            columns=(
                Column("did", "string", "scope:name", required=True),
                Column("dataset", "string", "did of the dataset"),
                Column("tier", "string", "data tier"),
                Column("campaign", "string", "production campaign or era"),
                *(Column(name, "double", "see features.spec") for name in self.numeric_columns),
            ),
        )

    @property
    def labels_table(self) -> Table:
        """The labels table of this spec."""
        return Table(
            name=f"labels{self._of_sample}",
            grain="(file, region, as_of)",
            key=("did",),
            partition=("day", "as_of", "region"),
            columns=(
                Column("did", "string", "scope:name", required=True),
                *(Column(name, "long", "reads within the horizon") for name in self.label_columns),
                *(Column(name, "long", "days with a read") for name in self.day_label_columns),
                Column(
                    "next_access_s",
                    "long",
                    "seconds to the next read within the longest horizon; null: none known",
                ),
                Column("kept", "bool", "in the clairvoyant's cache at the next read; null: not known"),
            ),
        )
