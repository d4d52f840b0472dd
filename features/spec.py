"""Settings of features and labels, and the names of their columns. Every duration is in seconds."""

import dataclasses
from collections.abc import Mapping
from typing import Final

from features.common.times import DAY_S
from features.common.units import duration_label
from features.schema import Column, Table

HOUR_S = 3600.0
DECAYS = 4
HALF_LIVES_S = (2 * HOUR_S, 12 * HOUR_S, 48 * HOUR_S, 192 * HOUR_S)
"""Half-lives of the decayed counts of reads of a file and of a dataset, s."""
PASS_DECAYS = 3
PASS_HALF_LIVES_S = (24 * HOUR_S, 96 * HOUR_S, 384 * HOUR_S)
"""Half-lives of the decayed counts of a dataset's passes, s."""
GAPS = 3
"""Last gaps between reads that a file keeps."""
SHOWN_PASSES = 3
"""Last passes of the dataset whose columns a row has."""

_SHARE, _SECONDS, _WORD = "share, 0 to 1", "seconds", "a word"
_OF_A_PASS = {
    **{"age_s": _SECONDS, "share": _SHARE, "silence_s": _SECONDS, "has_read": "0 or 1"},
    **{"gap_s": _SECONDS, "front_due_s": _SECONDS},
}
_OF_A_ROW = {
    **{"size_bytes": "bytes", "tier": _WORD, "n_reads": "reads"},
    **{"since_first_s": _SECONDS, "recency_s": _SECONDS},
    **{f"decayed_{s / 3600:.0f}h": "reads, decayed" for s in HALF_LIVES_S},
    **{f"gap_{k}_s": _SECONDS for k in range(GAPS)},
    **{"dataset_recency_s": _SECONDS, "dataset_n_files": "files"},
    "dataset_reads_per_file": "reads per file",
    **{f"dataset_decayed_{s / 3600:.0f}h": "reads per file, decayed" for s in HALF_LIVES_S},
    **{"dataset_since_first_s": _SECONDS, "dataset_n_passes": "passes"},
    **{"dataset_passes_per_day": "passes per day", "dataset_since_pass_s": _SECONDS},
    **{f"dataset_passes_{s / 3600:.0f}h": "passes, decayed" for s in PASS_HALF_LIVES_S},
    "due_s": _SECONDS,
    **{f"pass_{k}_{what}": unit for k in range(SHOWN_PASSES) for what, unit in _OF_A_PASS.items()},
    **{"n_in_progress": "passes", "n_to_come": "passes"},
    **{"least_share_to_come": _SHARE, "most_share_to_come": _SHARE, "rate_to_come": "share per hour"},
    **{"front_due_s": _SECONDS, "position": _SHARE},
    **{"hour": "hour of the day, UTC", "weekday": "day of the week, 0 is Thursday"},
}
COLUMNS = tuple(_OF_A_ROW)
"""Names of the columns, in the order of a row; `..._to_come`: of passes in progress that have not read the
file."""
UNITS: Final[Mapping[str, str]] = {**_OF_A_ROW, "age_s": _SECONDS, "campaign": _WORD}
"""The unit of each model input."""


LONGEST_HORIZON_S = 63 * 86400
"""Longest horizon of a label."""


_TYPES = {"size_bytes": "double"}
"""Columns that must be exact: plans count bytes by them."""


@dataclasses.dataclass(frozen=True)
class FeatureSpec:
    """Settings of features and labels. Raises ValueError if a duration is not on the grid.

    `cycle_s`: the grid of as_ofs; the other durations are multiples of it. A file is a candidate if it was
    read within `candidate_s` before as_of, or if its dataset was read within `active_dataset_s`; of unread
    files at most `unread_per_dataset` are candidates, the first by name. `history_s`: a dataset that is
    silent for longer begins anew. `sample_share`: share of the candidates that are kept, by a hash of file
    and as_of; samples are stored in tables of their own, and their models serve all files.
    """

    cycle_s: int
    horizons_s: tuple[int, ...]
    candidate_s: int
    active_dataset_s: int
    unread_per_dataset: int = 1000
    history_s: int = 90 * 86400
    sample_share: float = dataclasses.field(default=1.0, compare=False)

    def __post_init__(self) -> None:
        on_grid = (*self.horizons_s, self.candidate_s, self.active_dataset_s, self.history_s)
        if off := [value for value in on_grid if value % self.cycle_s]:
            raise ValueError(f"durations must be multiples of the cycle of {self.cycle_s} s, got {off[0]}")
        if self.history_s < max(self.candidate_s, self.active_dataset_s):
            raise ValueError("the history must be at least as long as candidates and active datasets")

    def dormant_before(self, as_of_s: int) -> int:
        """The time (s since 1970) before which the last read of a dormant dataset was counted.

        From `as_of_s` on, a dormant dataset has no candidates until it is read again.
        """
        return as_of_s // DAY_S * DAY_S - max(self.candidate_s, self.active_dataset_s)

    @property
    def numeric_columns(self) -> list[str]:
        """Every numeric model input, in order: of `features.stream.row`, and the file's age, age_s."""
        return [*(name for name in COLUMNS if name != "tier"), "age_s"]

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
        return self._table(
            "features",
            Column("dataset", "string", "did of the dataset"),
            Column("tier", "string", "data tier"),
            Column("campaign", "string", "production campaign or era"),
            *(
                Column(name, _TYPES.get(name, "float"), "see features.stream.row")
                for name in self.numeric_columns
            ),
        )

    @property
    def labels_table(self) -> Table:
        """The labels table of this spec."""
        next_read = "seconds to the next read within the longest horizon; null: none known"
        return self._table(
            "labels",
            *(Column(name, "long", "reads within the horizon") for name in self.label_columns),
            *(Column(name, "long", "days with a read") for name in self.day_label_columns),
            Column("next_access_s", "long", next_read),
        )

    def _table(self, name: str, *columns: Column) -> Table:
        did = Column("did", "string", "scope:name", required=True)
        sample = "_sample" if self.sample_share < 1 else ""
        grain, partition = "(file, region, as_of)", ("day", "as_of", "region")
        return Table(f"{name}{sample}", grain, ("did",), partition, (did, *columns))
