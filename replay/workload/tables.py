"""The made-up month as Arrow tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from features.schema import FILES, arrow_schema
from replay.planner import IntArray
from replay.workload.catalogue import Catalogue, hex_ids
from replay.workload.config import WorkloadConfig
from replay.workload.reads import Reads
from replay.workload.tasks import SETTLE_DAYS, Tasks

_SCOPE = "cms"
_TIME = pa.timestamp("us", tz="UTC")
_DAY_US = 86_400_000_000


def accesses_table(
    config: WorkloadConfig, catalogue: Catalogue, tasks: Tasks, reads: Reads, rng: np.random.Generator
) -> pa.Table:
    """One row per read; see `replay.workload.generate`."""
    dataset = catalogue.file_dataset[reads.file]
    names = _lfns(catalogue).take(pa.array(reads.file))
    site = rng.integers(0, len(config.sites), tasks.dataset.size)
    users = [f"user{user:03d}" if user >= 0 else "cmsprod" for user in tasks.user]
    labels = [f"{'crab' if user >= 0 else 'prod'}_{i:06d}" for i, user in enumerate(tasks.user)]
    return pa.table(
        {
            "did": _joined(f"{_SCOPE}:", names),
            "scope": pa.repeat(_SCOPE, len(names)),
            "name": names,
            "dataset": _taken([f"{_SCOPE}:{name}" for name in catalogue.datasets.name], dataset),
            "tier": _taken(catalogue.datasets.tier_name, dataset),
            "accessed_at": pa.array(reads.accessed_us).cast(_TIME),
            "closed_at": pa.array(reads.closed_us).cast(_TIME),
            "size_bytes": catalogue.size_bytes[reads.file],
            "read_bytes": reads.read_bytes,
            "user": _taken(users, reads.task),
            "task": _taken(labels, reads.task),
            "activity": _taken(["analysis", "production"], tasks.production[reads.task].astype(np.int64)),
            "site": _taken(config.sites, site[reads.task]),
            "origin": _taken([o.rse for o in config.origins], catalogue.datasets.origin[dataset]),
            "event_id": pa.array(hex_ids(rng, len(names))).cast(pa.string()),
        }
    )


def files_table(config: WorkloadConfig, catalogue: Catalogue) -> pa.Table:
    """The catalogue as `features.schema.FILES`; checksums are unknown, as no bytes exist."""
    datasets, dataset = catalogue.datasets, catalogue.file_dataset
    names = _lfns(catalogue)
    place = np.arange(dataset.size) - catalogue.first_file[dataset]
    born_day = datasets.born_day[dataset] + SETTLE_DAYS * place / datasets.n_files[dataset]
    created = pa.array(config.start_s * 1_000_000 + (born_day * _DAY_US).astype(np.int64)).cast(_TIME)
    origins = pa.array([[origin.rse] for origin in config.origins])
    columns: dict[str, Any] = {
        "did": _joined(f"{_SCOPE}:", names),
        "scope": pa.repeat(_SCOPE, len(names)),
        "name": names,
        "dataset": _taken([f"{_SCOPE}:{name}" for name in datasets.name], dataset),
        "tier": _taken(datasets.tier_name, dataset),
        "campaign": _taken(datasets.era, dataset),
        "experiment": pa.repeat("cms", len(names)),
        "size_bytes": pa.array(catalogue.size_bytes),
        "adler32": pa.nulls(len(names), pa.string()),
        "created_at": created,
        "origins": origins.take(pa.array(datasets.origin[dataset])),
        "known_at": created,
    }
    return pa.table(columns, schema=arrow_schema(FILES))


def _lfns(catalogue: Catalogue) -> pa.StringArray:
    folder = _taken(catalogue.datasets.folder, catalogue.file_dataset)
    hexes = pa.array(catalogue.file_hex).cast(pa.string())
    return pc.binary_join_element_wise(folder, "/", hexes, ".root", "")


def _joined(prefix: str, names: pa.StringArray) -> pa.StringArray:
    return pc.binary_join_element_wise(prefix, names, "")


def _taken(values: Sequence[str], index: IntArray) -> pa.StringArray:
    return pa.array(values, pa.string()).take(pa.array(index))
