"""The refresh of the placement service: predictions, inventories and plans in, one snapshot out."""

import dataclasses
import logging
import time
from collections.abc import Sequence
from contextlib import closing

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from features.common.arrays import FloatArray, IntArray
from features.common.errors import ConfigError, StaleInputError
from features.common.times import DAY_S, as_of_label
from features.common.units import duration_label
from features.schema import CONTENTS, FILES, PREDICTIONS
from jobs.ground.settings.sections import SiteSettings
from jobs.ground.settings.tree import CacheSettings, Settings, site_capacities
from jobs.ground.store import commits
from jobs.ground.store.sizes import agreed
from jobs.ground.store.tables import Tables
from jobs.loop.trainings import promoted_models
from jobs.operator.placement.current_plans import acting_plan
from jobs.operator.placement.loads import cache_loads
from models.serving.versions import CHAMPION
from prefetch.actions import Action
from prefetch.placement.database import PlacementTables
from prefetch.placement.snapshot import (
    NOWHERE,
    CacheHolding,
    Snapshot,
    Supply,
    dump,
    fraction,
    placed,
    snapshot_of,
)
from prefetch.plan.rules import owners
from replay.ranges import keys_of

MAX_CACHES = 250
_KEPT = pa.array([Action.PIN, Action.PREFETCH])
_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class PlacementSummary:
    """Counts of a refresh.

    `no_inventory`: caches without an inventory in the last day; `misplaced`: pins and prefetches of files
    that another cache owns, because their plans were made with other caches or capacities configured.
    """

    as_of: str
    refresh: int
    datasets: int
    nowhere: int
    files: int
    sites: int
    caches: int
    no_inventory: list[str]
    misplaced: int
    snapshot_bytes: int


def run(settings: Settings, *, as_of_s: int, if_current: bool = False) -> PlacementSummary:
    """Place every dataset that is predicted or held at `as_of_s`, and store it for the placement service.

    Without predictions inventories and plans decide. Nothing later is used. Raises ConfigError,
    StaleInputError, ServiceError; with `if_current` NotDueError if a later one is stored.
    """
    tables, caches, region = (Tables.of(settings), list(settings.caches.values()), settings.region.name)
    if not 0 < len(caches) <= MAX_CACHES:
        raise ConfigError("caches", f"the service places at 1 to {MAX_CACHES} caches, not at {len(caches)}")
    since, until = as_of_label(as_of_s - DAY_S), as_of_label(as_of_s)
    # Of a cache without an inventory in the last day it has no partition.
    newest = [tables.newest(CONTENTS, owner=cache.name, after=since, until=until) for cache in caches]
    inventories = [inventory.rows(["did", "size_bytes", "bytes_on_disk"]) for inventory in newest]
    champion = promoted_models(tables, region=region).get(CHAMPION)
    plans = [acting_plan(tables, cache.name, as_of_s, champion) for cache in caches]
    columns = ["did", "dataset", "size_bytes", "expected_accesses", "horizon_s"]
    rows = tables.head(PREDICTIONS).rows(columns, as_of=as_of_label(as_of_s), owner=region)
    predictions = rows.filter(pc.equal(rows["horizon_s"], settings.plan.horizon)).drop_columns("horizon_s")
    if not predictions.num_rows:
        _check_inventories(newest, as_of_s, settings)
    files = _files(tables, predictions, [*inventories, *plans])
    holdings = _holdings(files["did"], inventories, plans)
    # Without predictions it is unknown how often a dataset will be read: none is too rarely read.
    min_reads = settings.serve.min_reads if predictions.num_rows else 0.0
    placed_at = _snapshot(files, holdings, settings, as_of_s=as_of_s, min_reads=min_reads)
    snapshot = dataclasses.replace(placed_at, loads=cache_loads(tables, caches, as_of_s))
    data = dump(snapshot)
    with closing(PlacementTables(settings.serve.database)) as database:
        now = as_of_label(int(time.time())) if if_current else None
        refreshed = database.refresh(data, snapshot.as_of, now=now)
    return PlacementSummary(
        as_of=snapshot.as_of,
        refresh=refreshed,
        datasets=snapshot.dataset_keys.size,
        nowhere=int((snapshot.placed[:, 0] == NOWHERE).sum()),
        files=files.num_rows,
        sites=len(snapshot.sites),
        caches=len(caches),
        no_inventory=[
            cache.name for cache, inventory in zip(caches, newest, strict=True) if not inventory.partitions
        ],
        misplaced=_misplaced(caches, plans),
        snapshot_bytes=len(data),
    )


def _misplaced(caches: Sequence[CacheSettings], plans: Sequence[pa.Table]) -> int:
    capacities, n = site_capacities(caches), 0
    for cache, plan in zip(caches, plans, strict=True):
        if cache.redirector is not None:
            continue  # the redirector sends readers to whichever node holds a file
        dids = plan.filter(pc.is_in(plan["action"], value_set=_KEPT))["did"].to_pylist()
        serving = [cache.name for cache in caches if not cache.drain]
        n += int((owners(dids, capacities[cache.at_site], serving) != cache.name).sum())
    return n


def _check_inventories(newest: Sequence[commits.Snapshot], as_of_s: int, settings: Settings) -> None:
    """Say that there are no predictions. Raises StaleInputError if there is no inventory either."""
    region, horizon = settings.region.name, duration_label(settings.plan.horizon)
    none = f"no predictions at {as_of_label(as_of_s)} for region {region!r} within {horizon}"
    if not any(inventory.partitions for inventory in newest):
        raise StaleInputError(f"{none}, and no inventory of the last day; run scan or predict")
    _log.warning("%s were used: datasets are placed by what caches hold", none)


def _files(tables: Tables, predictions: pa.Table, others: Sequence[pa.Table]) -> pa.Table:
    """One row per did: `size_bytes`, `dataset` (without CMS block), `expected_accesses` (0: no candidate)."""
    parts = [predictions, *(other.select(["did", "size_bytes"]) for other in others)]
    values = ("dataset", "expected_accesses")
    rows = pa.concat_tables(parts, promote_options="default")
    files = rows.group_by("did").aggregate([(name, "max") for name in values])
    files = files.rename_columns({f"{name}_max": name for name in values})
    size = agreed(tables, files["did"].combine_chunks(), rows)
    files = files.append_column("size_bytes", pa.array(np.maximum(0, size)))
    catalogue = tables.head(FILES).rows(["did", "dataset"])
    at = pc.index_in(files["did"], value_set=catalogue["did"].combine_chunks())
    dataset = pc.coalesce(files["dataset"], catalogue["dataset"].take(at))
    columns = {
        "dataset": pc.replace_substring_regex(dataset, "#.*$", ""),
        "expected_accesses": files["expected_accesses"].fill_null(0.0),
    }
    return pa.table({name: files[name] for name in files.column_names} | columns)


def _holdings(
    dids: pa.ChunkedArray, inventories: Sequence[pa.Table], plans: Sequence[pa.Table]
) -> list[CacheHolding]:
    """The files held by each cache, by their index in `dids`."""
    parts = [part["did"] for pair in zip(inventories, plans, strict=True) for part in pair]
    # One look-up for all caches, because its hash table is as large as `dids`.
    all_dids = pa.chunked_array([chunk for part in parts for chunk in part.chunks], pa.string())
    at = pc.index_in(all_dids, value_set=dids.combine_chunks()).to_numpy().astype(np.int64)
    pieces = iter(np.split(at, np.cumsum([len(part) for part in parts])[:-1]))
    return [
        _holding(next(pieces), inventory, next(pieces), plan)
        for inventory, plan in zip(inventories, plans, strict=True)
    ]


def _holding(held: IntArray, inventory: pa.Table, planned: IntArray, plan: pa.Table) -> CacheHolding:
    evicted, fetched = (
        pc.equal(plan["action"], action).to_numpy().astype(bool) for action in (Action.EVICT, Action.PREFETCH)
    )
    item = np.unique(np.concatenate([held, planned[fetched]]))
    now = np.zeros(item.size)
    now[np.searchsorted(item, held)] = inventory["bytes_on_disk"].to_numpy()
    soon = now.copy()
    soon[np.isin(item, planned[evicted])] = 0.0
    soon[np.searchsorted(item, planned[fetched])] = plan["size_bytes"].to_numpy()[fetched]
    return CacheHolding(item, now, soon)


def _snapshot(
    files: pa.Table, holdings: Sequence[CacheHolding], settings: Settings, *, as_of_s: int, min_reads: float
) -> Snapshot:
    supply, caches = _supply(settings), list(settings.caches.values())
    encoded = files["dataset"].combine_chunks().dictionary_encode()
    datasets = encoded.dictionary.to_pylist()
    no_dataset = len(datasets)
    dataset_of_file = encoded.indices.fill_null(no_dataset).to_numpy()

    def by_dataset(values: FloatArray) -> FloatArray:
        return np.bincount(dataset_of_file, values, no_dataset + 1)[:no_dataset]

    size = files["size_bytes"].to_numpy().astype(np.float64)
    reads = files["expected_accesses"].to_numpy()
    total = by_dataset(size)
    whole = [_with_datasets(holding, dataset_of_file, files.num_rows, no_dataset) for holding in holdings]
    held = np.zeros((no_dataset, len(supply.sites)))
    for at, site in enumerate(supply.sites):
        n_bytes = np.zeros(files.num_rows)
        for cache, holding in zip(caches, holdings, strict=True):
            if cache.at_site == site and _serves(cache):
                n_bytes[holding.item] += holding.predicted_bytes
        # What several caches of a site have of a file counts once.
        held[:, at] = fraction(by_dataset(np.minimum(n_bytes, size)), total)
    keys = keys_of(datasets)
    rows = placed(
        keys,
        held,
        by_dataset(reads * size) / settings.plan.horizon,
        by_dataset(reads) / by_dataset(np.ones(size.size)),
        supply,
        min_reads=min_reads,
    )
    return snapshot_of(
        as_of=as_of_label(as_of_s),
        sites=supply.sites,
        caches=[(cache.name, cache.at_site) for cache in caches],
        capacities=site_capacities(caches),
        datasets=keys,
        placed=rows,
        items=[*files["did"].to_pylist(), *datasets],
        size_bytes=np.concatenate([size, total]),
        holdings=whole,
    )


def _with_datasets(
    holding: CacheHolding, dataset_of_file: IntArray, n_files: int, n_datasets: int
) -> CacheHolding:
    """The holdings of a cache by file, followed by those by dataset.

    `dataset_of_file`: index of each file's dataset; `n_datasets` for files without one.
    """
    now, soon = (
        np.bincount(dataset_of_file[holding.item], n_bytes, n_datasets + 1)[:n_datasets]
        for n_bytes in (holding.cached_bytes, holding.predicted_bytes)
    )
    return CacheHolding(
        np.concatenate([holding.item, n_files + np.arange(n_datasets)]),
        np.concatenate([holding.cached_bytes, now]),
        np.concatenate([holding.predicted_bytes, soon]),
    )


def _serves(cache: CacheSettings) -> bool:
    """Whether the service sends readers there: to no folder, and to no drained cache."""
    return cache.kind == "xcache" and not cache.drain


def _supply(settings: Settings) -> Supply:
    """The sites, the capacities of caches that serve, and the bytes/s that a dataset may read at each."""
    serve, capacities = settings.serve, site_capacities(filter(_serves, settings.caches.values()))
    sites = tuple(sorted(capacities))
    weights = tuple(float(sum(capacities[site].values())) for site in sites)
    node_bytes_s = [serve.sites.get(site, SiteSettings()).cache_read or serve.cache_read for site in sites]
    bytes_s = tuple(
        serve.site_share * len(capacities[site]) * rate
        for site, rate in zip(sites, node_bytes_s, strict=True)
    )
    return Supply(sites, weights, bytes_s)
