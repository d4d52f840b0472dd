"""Candidates: the files scored at an as_of, with the facts known then."""

from __future__ import annotations

import math

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from features.spark.cells import FACTS, FILE
from features.spark.grid import next_boundary
from features.spark.histories import counted
from features.spec import FeatureSpec

PAIR = ["did", "as_of"]
COLUMNS = [*PAIR, *FACTS, "cells"]
_SAMPLE_STEPS = 1_000_000


def candidates(
    state: DataFrame, datasets: DataFrame, files: DataFrame | None, as_ofs: DataFrame, *, spec: FeatureSpec
) -> DataFrame:
    """One row per candidate: did, as_of (unique), FACTS, and the cells that count at as_of.

    A candidate was read in [as_of - candidate_s, as_of), or within history_s if its dataset was read in
    [as_of - active_dataset_s, as_of). Files of such a dataset that were not read within history_s are
    candidates if they are in the catalogue, created before as_of (or at an unknown time) and known before
    as_of: the first `unread_per_dataset` by did. A fact is that of the latest cell that has it, else that of
    the catalogue.

    A sample has the share `spec.sample_share` of the candidates. Its unread files are the first by did among
    those sampled, up to that share of the bound, because finding the first of all would cost as much as no
    sampling.

    `state`: histories; `datasets`: as from `features.spark.datasets.active`; `files`: as the table, or
    None; `as_ofs`: a small table of as_of.
    """
    is_active = datasets.where("is_active").select(F.col("entity").alias("dataset"), "as_of", "is_active")
    read = _read(state, as_ofs, spec=spec).join(F.broadcast(is_active), ["dataset", "as_of"], how="left")
    recent = F.get("cells", F.lit(0))["cycle"] >= F.col("as_of") - F.lit(spec.candidate_s)
    chosen = read.where(recent | F.col("is_active")).select(*COLUMNS)
    if files is None or not spec.unread_per_dataset:
        return chosen
    return chosen.unionByName(_unread(files, is_active, read, spec=spec))


def with_counted(state: DataFrame, kind: str, as_ofs: DataFrame, *, spec: FeatureSpec) -> DataFrame:
    """entity, as_of, cells that count at as_of within history_s; entities without such cells are left out."""
    cells = counted(F.col("cells"), F.col("as_of"), within_s=spec.history_s, cycle_s=spec.cycle_s)
    return (
        state.where(F.col("kind") == kind)
        .crossJoin(F.broadcast(as_ofs))
        .select("entity", "as_of", cells.alias("cells"))
        .where(F.size("cells") > 0)
    )


def _read(state: DataFrame, as_ofs: DataFrame, *, spec: FeatureSpec) -> DataFrame:
    rows = with_counted(state, FILE, as_ofs, spec=spec).where(_is_sampled("entity", spec))
    return rows.select(F.col("entity").alias("did"), "as_of", "cells", *(latest(name) for name in FACTS))


def latest(fact: str) -> Column:
    """The fact of the latest cell in the column `cells` that has it."""
    with_fact = F.filter("cells", lambda cell: cell[fact].isNotNull())
    return F.get(with_fact, F.lit(0))[fact].alias(fact)


def _unread(files: DataFrame, is_active: DataFrame, read: DataFrame, *, spec: FeatureSpec) -> DataFrame:
    known = files.where(F.col("dataset").isNotNull()).select(
        "did",
        *(F.col(name) for name in FACTS if name != "created_at"),
        F.unix_seconds("created_at").alias("created_at"),
        next_boundary(F.col("known_at"), spec.cycle_s).alias("file_known_cycle"),
    )
    exists = F.col("created_at").isNull() | (F.col("created_at") < F.col("as_of"))
    members = (
        known.join(F.broadcast(is_active), "dataset", how="inner")
        .where((F.col("file_known_cycle") <= F.col("as_of")) & exists & _is_sampled("did", spec))
        .join(read.select(*PAIR), PAIR, how="left_anti")
    )
    rank = F.row_number().over(Window.partitionBy("dataset", "as_of").orderBy("did"))
    most = math.ceil(spec.unread_per_dataset * spec.sample_share)
    bounded = members.withColumn("rank", rank).where(F.col("rank") <= most)
    nothing = F.array().cast(read.schema["cells"].dataType)
    return bounded.withColumn("cells", nothing).select(*COLUMNS)


def _is_sampled(did: str, spec: FeatureSpec) -> Column:
    if spec.sample_share >= 1:
        return F.lit(True)
    return F.pmod(F.xxhash64(did, "as_of"), F.lit(_SAMPLE_STEPS)) < round(spec.sample_share * _SAMPLE_STEPS)
