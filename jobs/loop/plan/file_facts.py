"""Facts about files that plans need beside predictions: rules, datasets, origins, and savings of a hit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from features.common.arrays import BoolArray, IntArray
from features.common.hosts import first_fit
from features.common.times import DAY_S, day_label
from features.schema import ACCESSES, FILES, arrow_schema
from jobs.ground.settings.plan import PlanSettings
from jobs.ground.settings.study import OriginSettings
from jobs.ground.store.sizes import agreed
from jobs.ground.store.tables import Tables
from jobs.loop.plan.origins import OriginRules, nearest
from models.evaluation.promotion import HoursPerByte
from prefetch.plan import Files, Objective, treatments
from prefetch.plan.rules import Treatment, is_control
from replay.study.benefit import BenefitModel, BytesRead, cost

READ_SHARE_DAYS = 7
_FACTS = ["did", "dataset", "tier", "origins"]


def facts(tables: Tables, dids: pa.Array, rules: OriginRules | None = None) -> pa.Table:
    """Dataset, tier, and the columns of `nearest` by `rules` of each of `dids`; null if it is not known."""
    rows = arrow_schema(FILES).empty_table().select(_FACTS)
    if tables.exists(FILES):
        rows = tables.read_arrow(FILES, columns=_FACTS)
        rows = rows.filter(pc.is_in(rows["did"], value_set=dids)).combine_chunks()
    rows = rows.take(pc.index_in(dids, value_set=rows["did"].combine_chunks()))
    chosen = nearest(rows["origins"], rules or OriginRules())
    for name in chosen.column_names:
        rows = rows.append_column(name, chosen[name])
    return rows.drop_columns(["did", "origins"])


def plan_files(
    dids: pa.Array,
    known: pa.Table,
    *,
    plan: PlanSettings,
    is_here: BoolArray | None = None,
    read_share: Mapping[str, float] | None = None,
    benefit: BenefitModel | None = None,
    regions: Mapping[str, OriginSettings] | None = None,
) -> tuple[Files, list[str]]:
    """What the planner knows of `dids`, and the names of origins by code.

    `known`: their `facts`; `is_here`: whether they belong to this cache (None: all do); `read_share`: part of
    a file that a job reads, by dataset (None: all of it); `benefit` and `regions`: the savings of a hit.
    """
    dataset, datasets = _coded(known["dataset"])
    origin, origins = _coded(known["origin"])
    treatment, _ = treatments(plan.planned_by, dids, known["tier"].combine_chunks())
    share = np.array([*((read_share or {}).get(name, 1.0) for name in datasets), 1.0])
    saved = np.zeros(len(origins) + 1)
    if plan.objective is Objective.CPU_HOURS and benefit is not None:
        saved = np.array(_saved([*origins, ""], benefit, list((regions or {}).values())))
    files = Files(
        is_control=is_control(dids.to_pylist(), plan.control_share) & (treatment != Treatment.TEST),
        treatment=treatment,
        is_here=np.ones(len(dids), np.bool_) if is_here is None else is_here,
        dataset=dataset,
        tier=_coded(known["tier"])[0],
        origin=origin,
        read_share=share[dataset],
        saved_hours_per_byte=saved[origin],
        barred=known["barred"].to_numpy(),
    )
    return files, origins


def read_shares(tables: Tables, *, as_of_s: int) -> dict[str, float]:
    """The part of a file that a job reads, by dataset, in the days before `as_of_s`."""
    if not tables.exists(ACCESSES):
        return {}
    rows = tables.read_arrow(
        ACCESSES,
        since=day_label(as_of_s - READ_SHARE_DAYS * DAY_S),
        until=day_label(as_of_s),
        columns=["did", "dataset", "known_at", "closed_at", "size_bytes", "read_bytes", "n_reads"],
    )
    # The bytes of a read that was known from its open are reported at its end.
    reported_us = pc.max_element_wise(*(rows[name].cast(pa.int64()) for name in ("known_at", "closed_at")))
    known = pc.less(reported_us, as_of_s * 1_000_000)
    is_told = pc.and_(pc.is_valid(rows["read_bytes"]), pc.is_valid(rows["dataset"]))
    rows = rows.filter(pc.and_(known, is_told))
    dids = rows["did"].unique()
    size = pa.array(agreed(tables, dids, rows)).take(pc.index_in(rows["did"], value_set=dids))
    rows = rows.append_column("size", size).filter(pc.greater(size, 0))
    opened_bytes = pc.multiply(rows["size"], rows["n_reads"])
    sums = (
        rows.append_column("opened_bytes", opened_bytes)
        .group_by("dataset")
        .aggregate([("read_bytes", "sum"), ("opened_bytes", "sum")])
    )
    share = np.minimum(1.0, sums["read_bytes_sum"].to_numpy() / sums["opened_bytes_sum"].to_numpy())
    return dict(zip(sums["dataset"].to_pylist(), share.tolist(), strict=True))


def _coded(column: pa.ChunkedArray) -> tuple[IntArray, list[str]]:
    """Codes (-1: null) and the values they stand for."""
    coded = column.combine_chunks().dictionary_encode()
    codes: IntArray = coded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    return codes, coded.dictionary.to_pylist()


def hours_per_byte(
    files: Files, origins: Sequence[str], model: BenefitModel, regions: Mapping[str, OriginSettings]
) -> HoursPerByte:
    """Core-hours that a job needs per byte of each file; `origins`: by code, as of `plan_files`."""
    missed, hit = np.array(_hours([*origins, ""], model, list(regions.values()))).T
    return HoursPerByte(missed[files.origin], hit[files.origin])


def _saved(origins: Sequence[str], model: BenefitModel, regions: Sequence[OriginSettings]) -> list[float]:
    """Core hours that a byte read from the cache saves, against one fetched from each of `origins`."""
    return [max(0.0, missed - hit) for missed, hit in _hours(origins, model, regions)]


def _hours(
    origins: Sequence[str], model: BenefitModel, regions: Sequence[OriginSettings]
) -> list[tuple[float, float]]:
    """Core hours per byte that comes from each of `origins`, and per byte read from the cache instead."""
    fits = first_fit(pa.array(origins, pa.string()), [region.hosts for region in regions])
    rtt_ms = [region.rtt_ms for region in regions] + [None]
    return [_hours_at(rtt_ms[code], model) for code in fits.tolist()]


def _hours_at(rtt_ms: float | None, model: BenefitModel) -> tuple[float, float]:
    rtt = np.array([np.nan if rtt_ms is None else rtt_ms])
    amount, none = np.array([10**12]), np.array([0])
    missed = cost(BytesRead(rtt, amount, none[:, None]), model).core_hours
    hit = cost(BytesRead(rtt, none, amount[:, None]), model).core_hours
    return missed / 10**12, hit / 10**12
