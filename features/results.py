"""Tables of figures: what replays and trainings found. The tables of data are in `features.schema`."""

from __future__ import annotations

from features.schema import Column, Table

REPLAYS = Table(
    name="replays",
    grain="one policy at one capacity over the replayed days",
    key=("policy", "capacity_bytes"),
    partition=("day", "region"),
    columns=(
        Column("policy", "string", "lru, clairvoyant, lru+plan or bound", required=True),
        Column("capacity_bytes", "long", "size of the cache", required=True),
        Column("capacity_fraction", "double", "share of the bytes of all files read", required=True),
        Column("requests", "long", "reads counted", required=True),
        Column("hits", "long", "reads of files on disk; null for a bound on bytes"),
        Column("hit_ratio", "double", "hits / requests"),
        Column("byte_hit_ratio", "double", "1 - demand-missed bytes / bytes_requested"),
        Column("bytes_requested", "long", "sizes of the files read, summed over reads", required=True),
        Column("wan_bytes", "long", "demand misses, refetches among them, and prefetches", required=True),
        Column("prefetch_bytes", "long", "brought by the plan", required=True),
        Column("wasted_bytes", "long", "brought by the plan and not read before they left", required=True),
        Column("refetch_bytes", "long", "missed because the plan had evicted them", required=True),
        Column("peak_usage_bytes", "long", "most bytes on disk", required=True),
        Column("byte_gap_closed", "double", "(WAN_LRU - WAN) / (WAN_LRU - WAN_bound)"),
        Column("seconds", "double", "time the replay took", required=True),
    ),
)

REPLAY_DAYS = Table(
    name="replay_days",
    grain="one day of one replayed policy at one capacity",
    key=("policy", "capacity_bytes", "on_day"),
    partition=("day", "region"),
    columns=(
        Column("policy", "string", "as in replays", required=True),
        Column("capacity_bytes", "long", "size of the cache", required=True),
        Column("on_day", "string", "the replayed day", required=True),
        Column("hits", "long", "reads of files on disk", required=True),
        Column("misses", "long", "the other reads", required=True),
        Column("hit_bytes", "long", "bytes served from disk", required=True),
        Column("wan_bytes", "long", "as in replays", required=True),
    ),
)

REPLAY_FILLS = Table(
    name="replay_fills",
    grain="fill level of one replayed cache at one moment",
    key=("policy", "capacity_bytes", "at"),
    partition=("day", "region"),
    columns=(
        Column("policy", "string", "as in replays", required=True),
        Column("capacity_bytes", "long", "size of the cache", required=True),
        Column("at", "timestamp", "moment", required=True),
        Column("used_bytes", "long", "bytes on disk", required=True),
    ),
)

MODEL_METRICS = Table(
    name="model_metrics",
    grain="one model at one horizon, on days it was not trained on",
    key=("model", "horizon_s"),
    partition=("day", "as_of", "region"),
    columns=(
        Column("model", "string", "learner or baseline", required=True),
        Column("horizon_s", "long", "seconds after as_of", required=True),
        Column("auc", "double", "area under the ROC curve"),
        Column("average_precision", "double", "area under the precision-recall curve"),
        Column("log_loss", "double", "nats per row; null for a score that is no probability"),
        Column("brier", "double", "mean squared error of the probability; null as above"),
        Column("calibration_error", "double", "expected, over ten equal bins; null as above"),
        Column("n_rows", "long", "rows tested on", required=True),
        Column("run_id", "string", "MLflow run"),
    ),
)

RELIABILITY = Table(
    name="reliability",
    grain="one bin of one model's calibration curve",
    key=("model", "horizon_s", "bin"),
    partition=("day", "as_of", "region"),
    columns=(
        Column("model", "string", "as in model_metrics", required=True),
        Column("horizon_s", "long", "seconds after as_of", required=True),
        Column("bin", "long", "from 0, by rising probability", required=True),
        Column("predicted", "double", "mean probability", required=True),
        Column("observed", "double", "share that was read", required=True),
        Column("n_rows", "long", "rows in the bin", required=True),
    ),
)
