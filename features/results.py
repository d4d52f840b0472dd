"""Tables of figures: results of replays, trainings and pushes. Tables of data are in `features.schema`."""

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
        Column("prefetch_bytes", "long", "fetched by the plan", required=True),
        Column("wasted_bytes", "long", "fetched by the plan and not read before removal", required=True),
        Column("refetch_bytes", "long", "missed after the plan had evicted them", required=True),
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
    grain="fill level of one replayed cache in one hour",
    key=("policy", "capacity_bytes", "at"),
    partition=("day", "region"),
    columns=(
        Column("policy", "string", "as in replays", required=True),
        Column("capacity_bytes", "long", "size of the cache", required=True),
        Column("at", "timestamp", "begin of the hour", required=True),
        Column("used_bytes", "long", "mean of the bytes on disk after each read", required=True),
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
        Column("log_loss", "double", "nats per row; null for a score that is not a probability"),
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

DRIFT = Table(
    name="drift",
    grain="one column of the rows scored at one as_of, compared with the training",
    key=("column",),
    partition=("day", "as_of", "region"),
    columns=(
        Column("column", "string", "a feature, or `probability_1d`: a horizon's scores", required=True),
        Column("psi", "double", "population stability index; 0.1: a shift, 0.25: a large one", required=True),
        Column("usual_psi", "double", "90 % quantile of single as_ofs of the training", required=True),
        Column("null_share", "double", "share of nulls at as_of", required=True),
        Column("null_share_then", "double", "share of nulls in training", required=True),
        Column(
            "drifted",
            "bool",
            "psi above 0.25 and the usual, not by chance, a day after training",
            required=True,
        ),
        Column("n_rows", "long", "rows sampled at as_of", required=True),
        Column("model_version", "string", "the bundle whose training is compared", required=True),
    ),
)

STEWARD, S3FIFO = "steward", "s3fifo"
"""Policies that evict at each access: by a learned order, and by S3-FIFO."""
LRU, S3FIFO_PLAN = "lru", "lru+s3fifo_counts"
CHAMPION_PLAN, CHALLENGER_PLAN = "lru+champion", "lru+challenger"
"""Policies in the table `evaluations` that a promotion compares; the table may hold others."""
STEWARD_PLAN, STEWARD_CHAMPION = f"{STEWARD}+plan", f"{STEWARD}+champion"
BESIDE_A_STEWARD = {STEWARD_PLAN: CHALLENGER_PLAN, STEWARD_CHAMPION: CHAMPION_PLAN}
"""Policies with a steward and plans in one cache, each with the policy that has the same plans alone."""

EVALUATIONS = Table(
    name="evaluations",
    grain="one replayed day of one policy at one capacity, in the walk-forward evaluation of a model",
    key=("model_version", "policy", "capacity_fraction", "on_day"),
    partition=("day", "as_of", "region"),
    columns=(
        Column("model_version", "string", "the challenger, for example `cachecast-emea/3`", required=True),
        Column("model_digest", "string", "sha256 of its files as trained; null: not recorded"),
        Column(
            "policy",
            "string",
            "lru, s3fifo, steward, steward+plan, lru+challenger, lru+champion, lru+s3fifo_counts, …",
            required=True,
        ),
        Column("scored_by", "string", "version of the models that the plans follow; null: none"),
        Column("capacity_fraction", "double", "share of the bytes of all files read", required=True),
        Column("capacity_bytes", "long", "size of the cache; null: not recorded"),
        Column("model_weight", "double", "of the models in the plans, the rest is recency; null: no plans"),
        Column("on_day", "string", "the replayed UTC day; no model was trained on it", required=True),
        Column("wan_bytes", "long", "demand misses, refetches among them, and prefetches", required=True),
        Column("hit_bytes", "long", "bytes served from disk", required=True),
        Column("requests", "long", "reads counted", required=True),
        Column("hits", "long", "reads of files on disk", required=True),
        Column("prefetch_bytes", "long", "fetched by the plan", required=True),
        Column("wasted_bytes", "long", "fetched by the plan and not read before removal", required=True),
        Column("core_hours", "double", "of jobs, computing and waiting for their reads; null: unknown"),
    ),
)

TRAININGS = Table(
    name="trainings",
    grain="one version of a region's models; as_of: nothing known later was used to train it",
    key=("model_version",),
    partition=("day", "as_of", "region"),
    columns=(
        Column("model_version", "string", "in MLflow, for example `cachecast-emea/3`", required=True),
        Column("model_digest", "string", "sha256 of its files as trained; no others serve", required=True),
    ),
)

ARRIVALS = Table(
    name="arrivals",
    grain="what one source delivered by one decision time",
    key=("source",),
    partition=("day", "as_of", "region"),
    columns=(
        Column("source", "string", "as in accesses", required=True),
        Column("rows", "long", "reads known in the cycle before as_of, or in its last hour", required=True),
        Column("expected", "double", "what is usual then, from its own past; null: too short a past"),
        Column("rejected_share", "double", "faulty records among those of the day", required=True),
        Column("newest_at", "timestamp", "when the newest read was known; null: longer ago than max_age"),
        Column("why", "string", "what is incomplete; empty: nothing", required=True),
        Column("complete", "bool", "whether it delivered what was expected", required=True),
    ),
)

PROMOTIONS = Table(
    name="promotions",
    grain="one decision about a region's champion",
    key=("model_version",),
    partition=("day", "as_of", "region"),
    columns=(
        Column("action", "string", "about plans: promote, refuse or rollback", required=True),
        Column(
            "model_version", "string", "the challenger; of a rollback: the champion before it", required=True
        ),
        Column("champion", "string", "the champion after it; null: none, caches run plain LRU"),
        Column("champion_digest", "string", "sha256 of the champion's files, the only ones that may act"),
        Column("may_evict", "bool", "whether the challenger's order of eviction won; null: not judged"),
        Column("steward", "string", "the version whose order may evict after it; null: none"),
        Column("steward_digest", "string", "sha256 of that version's files"),
        Column("evaluated_as_of", "string", "as_of of the evaluation used; null: none"),
        Column("reasons", "strings", "why, in words", required=True),
        Column("order_reasons", "strings", "why the order may evict or not; null: not judged"),
        Column("comparisons", "string", "JSON list of RivalComparison (models.evaluation)", required=True),
        Column("trained_until", "string", "nothing later trained model_version; null: it did not win"),
    ),
)

WORTH = Table(
    name="worth",
    grain="one day of one cache: the bytes its plans saved compared with plain LRU",
    key=("model_versions",),
    partition=("day", "cache"),
    columns=(
        Column(
            "model_versions", "string", "of the plans pushed that day, with commas between", required=True
        ),
        Column("read_bytes", "long", "read through the cache, by its own records", required=True),
        Column("hit_bytes", "long", "of these, from its disk", required=True),
        Column("missed_bytes", "long", "of these, from origins", required=True),
        Column("prefetched_bytes", "long", "fetched by pushes, by their receipts", required=True),
        Column("replayed_hit_bytes", "long", "hit in the replay with the pushes"),
        Column(
            "replayed_wan_bytes",
            "long",
            "fetched in it, with prefetches; with a steward: as recorded. null, like all that follow: "
            "withheld",
        ),
        Column("lru_hit_bytes", "long", "hit in the replay of plain LRU"),
        Column("lru_wan_bytes", "long", "fetched in it"),
        Column("saved_wan_bytes", "long", "lru_wan_bytes - replayed_wan_bytes"),
        Column("planned_hit_share", "double", "share of bytes hit, of files that may be planned"),
        Column("planned_lru_hit_share", "double", "the same with plain LRU"),
        Column("control_hit_share", "double", "the same of the control group, which is never planned"),
        Column("control_lru_hit_share", "double", "the same with plain LRU"),
        Column("warmed_s", "long", "seconds replayed before the day"),
        Column("withheld", "string", "why there is no verdict; null if there is one"),
    ),
)

STEWARD_DAYS = Table(
    name="steward_days",
    grain="one run of a cache's steward on one day: bytes saved against plain LRU, by its own count",
    key=("started_at",),
    partition=("day", "cache"),
    columns=(
        Column("started_at", "timestamp", "when the steward was started", required=True),
        Column("watched_s", "long", "seconds of the day that the figures cover", required=True),
        Column(
            "orders", "string", "orders of eviction followed that day, with commas between", required=True
        ),
        Column("model_version", "string", "of the learned order; null: none was at hand"),
        Column("wan_bytes", "long", "of the files that were read while not on disk", required=True),
        Column("lru_wan_bytes", "long", "of those that plain LRU would not have had on disk", required=True),
        Column("saved_wan_bytes", "long", "lru_wan_bytes - wan_bytes", required=True),
        Column("evicted_files", "long", "evicted by the steward, confirmed by the cache", required=True),
        Column("evicted_bytes", "long", "their bytes on disk", required=True),
    ),
)

ANNOUNCED = Table(
    name="announced",
    grain="one day of one queue: the files that it announced, and those of them that were read in time",
    key=("judged_at",),
    partition=("day", "queue"),
    columns=(
        Column("files", "long", "files that jobs were said to read", required=True),
        Column("read_files", "long", "of these, read while an entry was valid", required=True),
        Column("claimed", "double", "sum over the files: certainty squared", required=True),
        Column("kept", "double", "sum over the files that were read: certainty", required=True),
        Column("read_after_s", "double", "from its first entry until half of those read were; null: none"),
        Column("judged_at", "timestamp", "by the reads known then; not used before", required=True),
    ),
)
