"""Names of the columns of `features.stream.row`, and the times that they are of."""

from __future__ import annotations

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

COLUMNS = (
    *("size_bytes", "tier", "n_reads", "since_first_s", "recency_s"),
    *(f"decayed_{s / 3600:.0f}h" for s in HALF_LIVES_S),
    *(f"gap_{k}_s" for k in range(GAPS)),
    *("dataset_recency_s", "dataset_n_files", "dataset_reads_per_file"),
    *(f"dataset_decayed_{s / 3600:.0f}h" for s in HALF_LIVES_S),
    *("dataset_since_first_s", "dataset_n_passes", "dataset_passes_per_day", "dataset_since_pass_s"),
    *(f"dataset_passes_{s / 3600:.0f}h" for s in PASS_HALF_LIVES_S),
    "due_s",
    *(
        f"pass_{k}_{what}"
        for k in range(SHOWN_PASSES)
        for what in ("age_s", "share", "silence_s", "has_read", "gap_s", "front_due_s")
    ),
    *("n_in_progress", "n_to_come", "least_share_to_come", "most_share_to_come", "rate_to_come"),
    *("front_due_s", "position", "hour", "weekday"),
)
"""Names of the columns, in the order of a row; `..._to_come`: of passes in progress that have not read the
file."""
