"""Datasets in use: their number of files, and the progress of the present pass.

A pass is a sequence of reads without a pause longer than `active_dataset_s`.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from features.spark.candidates import latest, with_counted
from features.spark.cells import FILE
from features.spark.folds import fold
from features.spark.grid import next_boundary
from features.spark.popularity import heads, sketch_steps
from features.spark.sketch import estimate, word_names
from features.spec import FeatureSpec


def active(counted: DataFrame, files: DataFrame | None, *, spec: FeatureSpec) -> DataFrame:
    """`counted` (datasets, as from `with_counted`) with n_members and is_active.

    - n_members: files of the catalogue with this dataset, created before as_of (or at an unknown time)
      and known before as_of; null if there are none
    - is_active: read in [as_of - active_dataset_s, as_of)
    """
    last_cycle = F.get("cells", F.lit(0))["cycle"]
    rows = counted.withColumn("is_active", last_cycle >= F.col("as_of") - F.lit(spec.active_dataset_s))
    if files is None:
        return rows.withColumn("n_members", F.lit(None).cast("long"))
    growth = _growth(files, cycle_s=spec.cycle_s).withColumnRenamed("dataset", "entity")
    grown = rows.join(growth, "entity", how="left")
    existing = F.filter("growth", lambda step: step["since"] <= F.col("as_of"))
    n = F.aggregate(existing, F.lit(0).cast("long"), lambda total, step: total + step["n_files"])
    return grown.withColumn("n_members", F.nullif(n, F.lit(0))).drop("growth")


def _growth(files: DataFrame, *, cycle_s: int) -> DataFrame:
    """dataset (unique), growth: the number of files added, by the first as_of that may know of them."""
    since = F.greatest(next_boundary(F.col("known_at"), cycle_s), next_boundary(F.col("created_at"), cycle_s))
    return (
        files.where(F.col("dataset").isNotNull())
        .groupBy("dataset", since.alias("since"))
        .agg(F.count(F.lit(1)).alias("n_files"))
        .groupBy("dataset")
        .agg(F.collect_list(F.struct("since", "n_files")).alias("growth"))
    )


def with_progress(datasets: DataFrame, *, spec: FeatureSpec) -> DataFrame:
    """`datasets` (as from `active`) with `spec.progress_columns` except dataset_shift_s, as doubles.

    - dataset_n_files: n_members; if null, the distinct files read within history_s (estimated)
    - dataset_touched_share: distinct files read in this pass (estimated) / dataset_n_files, at most 1
    - dataset_n_passes: passes within history_s, this one included
    - dataset_pass_age_s: as_of minus the first read of this pass
    - dataset_pass_rate: distinct files read in this pass per hour of its age
    """
    first_of_pass = F.filter("cells", lambda cell, i: _begins(cell, i, spec.active_dataset_s))
    rows = datasets.withColumn("passes", first_of_pass)
    start = F.get("passes", F.lit(0))
    rows = rows.withColumn("pass_start", start["first_at"]).withColumn("pass_cycle", start["cycle"])
    this_pass = F.filter("cells", lambda cell: cell["cycle"] >= F.col("pass_cycle"))
    steps = sketch_steps("files")
    rows = rows.withColumns({"of_pass": fold(this_pass, steps), "of_all": fold(F.col("cells"), steps)})
    rows = rows.withColumns(
        {"touched": _n_distinct("of_pass"), "n_files": F.coalesce("n_members", _n_distinct("of_all"))}
    )
    age = F.col("as_of") - F.col("pass_start")
    values = {
        "dataset_n_files": F.col("n_files"),
        "dataset_touched_share": F.least(F.col("touched") / F.col("n_files"), F.lit(1.0)),
        "dataset_n_passes": F.size("passes"),
        "dataset_pass_age_s": age,
        "dataset_pass_rate": F.col("touched") * F.lit(3600.0) / F.greatest(age, F.lit(1)),
    }
    return rows.withColumns({name: value.cast("double") for name, value in values.items()})


def shifts(state: DataFrame, as_ofs: DataFrame, *, spec: FeatureSpec) -> DataFrame:
    """dataset, as_of (unique together), dataset_shift_s: the time between the last pass and this one.

    The median over the dataset's files read in [as_of - front_s, as_of) and in an earlier cycle within
    history_s, of the time between the last reads in the two cycles. A file is read once per pass, so this
    separates passes that follow each other without a pause.
    """
    begin = F.col("as_of") - F.lit(spec.front_s)
    rows = with_counted(state, FILE, as_ofs, spec=spec).where(F.get("cells", F.lit(0))["cycle"] >= begin)
    last, before = (F.get(heads(F.col("cells")), F.lit(i))["last_at"] for i in (0, 1))
    by_file = rows.select(latest("dataset"), "as_of", (last - before).alias("shift"))
    median = F.median("shift").alias("dataset_shift_s")
    return (
        by_file.where(F.col("dataset").isNotNull() & F.col("shift").isNotNull())
        .groupBy("dataset", "as_of")
        .agg(median)
    )


def _n_distinct(words: str) -> Column:
    return estimate([F.col(words)[name] for name in word_names("files")])


def _begins(cell: Column, index: Column, pause_s: int) -> Column:
    """Whether the cell at `index` (latest first) begins a pass: it follows a pause, or is the first."""
    before = F.get("cells", index + F.lit(1))
    return before.isNull() | (cell["first_at"] - before["last_at"] > F.lit(pause_s))
