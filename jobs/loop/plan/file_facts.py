"""Facts about files that plans need beside predictions: rules, datasets, origins, and savings of a hit."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from features.common.arrays import BoolArray, FloatArray, IntArray
from features.common.hosts import first_fit, stated
from features.common.times import DAY_S, day_label
from features.schema import ACCESSES, FILES
from jobs.ground.settings.plan import PlanSettings
from jobs.ground.settings.sections import OriginSettings
from jobs.ground.settings.tree import Settings
from jobs.ground.store.sizes import agreed
from jobs.ground.store.tables import Tables
from models.evaluation.promotion import HoursPerByte
from prefetch.plan.rules import Objective, Treatment, is_control, treatments
from prefetch.plan.scores import Barred, Files
from replay.study.benefit import BenefitModel, core_hours_per_byte

READ_SHARE_DAYS = 7
_FACTS = ["did", "dataset", "tier", "origins"]


def facts(tables: Tables, dids: pa.Array, rules: OriginRules | None = None) -> pa.Table:
    """Dataset, tier, and the columns of `nearest` by `rules` of each of `dids`; null if it is not known."""
    rows = tables.head(FILES).rows(_FACTS)
    rows = rows.filter(pc.is_in(rows["did"], value_set=dids)).combine_chunks()
    rows = rows.take(pc.index_in(dids, value_set=rows["did"].combine_chunks()))
    nearest_origins = nearest(rows["origins"], rules or OriginRules())
    for name in nearest_origins.column_names:
        rows = rows.append_column(name, nearest_origins[name])
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

    `known`: their `facts`; `is_here`: of this cache (None: all); `read_share`: part of a file read, by
    dataset (None: all); `benefit`, `regions`: the savings of a hit.
    """
    dataset, datasets = _coded(known["dataset"])
    origin, origins = _coded(known["origin"])
    treatment, _ = treatments(plan.planned_by, dids, known["tier"].combine_chunks())
    share = np.array([*((read_share or {}).get(name, 1.0) for name in datasets), 1.0])
    saved = np.zeros(len(origins) + 1)
    if plan.objective is Objective.CPU_HOURS and benefit is not None:
        missed, hit = _hours([*origins, ""], benefit, list((regions or {}).values()))
        saved = np.maximum(0.0, missed - hit)
    files = Files(
        is_control=is_control(dids.to_pylist(), plan.control_share) & (treatment != Treatment.TEST),
        treatment=treatment.astype(np.int8),
        is_here=np.ones(len(dids), np.bool_) if is_here is None else is_here,
        dataset=dataset.astype(np.int32),
        tier=_coded(known["tier"])[0].astype(np.int32),
        origin=origin.astype(np.int32),
        read_share=share[dataset],
        saved_hours_per_byte=saved[origin],
        barred=known["barred"].to_numpy().astype(np.int8),
    )
    return files, origins


def files_and_hours(settings: Settings, tables: Tables, dids: pa.Array) -> tuple[Files, HoursPerByte]:
    """What planners know of `dids`, whichever the cache, and the core-hours that jobs need per byte."""
    plan, benefit, regions = settings.plan, settings.benefit.model, settings.regions
    known = facts(tables, dids, OriginRules(regions, tape=plan.tape))
    files, origins = plan_files(dids, known, plan=plan, benefit=benefit, regions=regions)
    return files, hours_per_byte(files, origins, benefit, regions)


def read_shares(tables: Tables, *, as_of_s: int) -> dict[str, float]:
    """The part of a file that a job reads, by dataset, in the days before `as_of_s`."""
    rows = tables.head(ACCESSES).rows(
        ["did", "dataset", "known_at", "closed_at", "size_bytes", "read_bytes", "n_reads"],
        since=day_label(as_of_s - READ_SHARE_DAYS * DAY_S),
        until=day_label(as_of_s),
    )
    # The bytes of a read that was known from its open are reported at its end.
    reported_us = pc.max_element_wise(*(rows[name].cast(pa.int64()) for name in ("known_at", "closed_at")))
    known = pc.less(reported_us, as_of_s * 1_000_000)
    is_told = pc.and_(pc.is_valid(rows["read_bytes"]), pc.is_valid(rows["dataset"]))
    rows = rows.filter(pc.and_(known, is_told))
    dids = rows["did"].unique()
    size = pa.array(agreed(tables, dids, rows)).take(pc.index_in(rows["did"], value_set=dids))
    rows = rows.append_column("size", size).filter(pc.greater(size, 0))
    # A record may claim any number: as a float, which does not overflow.
    names = ("size", "read_bytes", "n_reads")
    size, read, n_reads = (rows[name].cast(pa.float64(), safe=False) for name in names)
    opened = pc.multiply(size, pc.max_element_wise(n_reads, 1.0))
    parts = {"dataset": rows["dataset"], "read": pc.max_element_wise(read, 0.0), "opened": opened}
    sums = pa.table(parts).group_by("dataset").aggregate([("read", "sum"), ("opened", "sum")])
    share = np.minimum(1.0, sums["read_sum"].to_numpy() / sums["opened_sum"].to_numpy())
    return dict(zip(sums["dataset"].to_pylist(), share.tolist(), strict=True))


def _coded(column: pa.ChunkedArray) -> tuple[IntArray, list[str]]:
    coded = column.combine_chunks().dictionary_encode()
    codes: IntArray = coded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    return codes, coded.dictionary.to_pylist()


def hours_per_byte(
    files: Files, origins: Sequence[str], model: BenefitModel, regions: Mapping[str, OriginSettings]
) -> HoursPerByte:
    """Core-hours that a job needs per byte of each file; `origins`: by code, as of `plan_files`."""
    missed, hit = _hours([*origins, ""], model, list(regions.values()))
    return HoursPerByte(missed[files.origin], hit[files.origin])


def _hours(
    origins: Sequence[str], model: BenefitModel, regions: Sequence[OriginSettings]
) -> tuple[FloatArray, FloatArray]:
    """Core hours per byte that comes from each of `origins`, and per byte read from the cache instead."""
    fits = first_fit(pa.array(origins, pa.string()), [region.hosts for region in regions])
    rtt_ms = np.array([*(region.rtt_ms for region in regions), None], np.float64)
    return core_hours_per_byte(rtt_ms[fits], model)[1:]


@dataclasses.dataclass(frozen=True)
class OriginRules:
    """What decides between origins, which are hosts or RSEs; patterns of them name groups.

    `regions`: groups and their distance; `storage`: the site's own, where jobs read without a cache; `tape`:
    those that nothing is fetched from; `failing`: origins that pushes leave alone now; `caches`: no origins,
    what they have came from one.
    """

    regions: Mapping[str, OriginSettings] = dataclasses.field(default_factory=dict)
    storage: tuple[str, ...] = ()
    tape: tuple[str, ...] = ()
    failing: frozenset[str] = frozenset()
    caches: tuple[str, ...] = ()


def nearest(origins: pa.ChunkedArray, rules: OriginRules) -> pa.Table:
    """The best origin of each list of `origins`: the site's own storage, else the nearest that does not fail.

    Of equals the first listed; one of unknown distance is farthest, and tape counts if there is nothing else.
    Columns: `origin` (null: none is listed); `why`, in words; `barred`, a code of `Barred`.
    """
    lists = origins.combine_chunks()
    hosts = stated(pc.list_flatten(lists))
    is_cache = pa.array(first_fit(hosts, [rules.caches]) == 0)
    flat = pc.if_else(is_cache, pa.scalar(None, pa.string()), hosts).dictionary_encode()
    code = flat.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    parent = pc.list_parent_indices(lists).to_numpy(zero_copy_only=False)
    parent, code = parent[code >= 0], code[code >= 0]
    known = _known(flat.dictionary, rules)
    rank = (known.rtt_ms, known.fails, known.barred == Barred.ON_TAPE, known.barred != Barred.AT_SITE)
    order = np.lexsort((np.arange(code.size), *(key[code] for key in rank), parent))
    owner, first = np.unique(parent[order], return_index=True)
    best: IntArray = np.full(len(lists), -1, np.int64)
    best[owner] = code[order][first]
    index = pa.array(best, mask=best < 0)
    of = np.bincount(parent, minlength=len(lists))
    failing_ms = np.full(len(lists), np.inf)
    np.minimum.at(failing_ms, parent[known.fails[code]], known.rtt_ms[code][known.fails[code]])
    is_farther = failing_ms < np.append(known.rtt_ms, np.inf)[best]
    more = np.where(of > 1, np.where(is_farther, ", nearer ones fail", ", nearest of several"), "")
    why = pc.binary_join_element_wise(known.words.take(index), pa.array(more.tolist(), pa.string()), "")
    barred = np.append(known.barred, int(Barred.NOT))[best]
    return pa.table({"origin": flat.dictionary.take(index), "why": why, "barred": barred})


@dataclasses.dataclass(frozen=True)
class _Known:
    """Facts about each distinct origin; the words are for an operator."""

    rtt_ms: FloatArray
    fails: BoolArray
    barred: IntArray
    words: pa.StringArray


def _known(names: pa.StringArray, rules: OriginRules) -> _Known:
    regions = [*rules.regions.items(), ("", None)]
    region = first_fit(names, [group.hosts for group in rules.regions.values()]).tolist()
    rtt_ms = [None if group is None else group.rtt_ms for _, group in regions]
    is_site, is_tape = (first_fit(names, [group]) == 0 for group in (rules.storage, rules.tape))
    barred = np.where(is_tape, int(Barred.ON_TAPE), np.where(is_site, int(Barred.AT_SITE), int(Barred.NOT)))
    places = [
        f"{name}, {'of unknown distance' if rtt_ms[at] is None else f'{rtt_ms[at]:g} ms ({regions[at][0]})'}"
        for name, at in zip(names.to_pylist(), region, strict=True)
    ]
    return _Known(
        rtt_ms=np.array([np.inf if group is None else group for group in rtt_ms])[region],
        fails=np.array([name in rules.failing for name in names.to_pylist()], np.bool_),
        barred=barred,
        words=pa.array(places, pa.string()),
    )
