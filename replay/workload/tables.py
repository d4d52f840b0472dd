"""The generated accesses and files as Arrow tables, slice by slice."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from features.common.arrays import BoolArray, FloatArray, IntArray
from replay.workload.catalogue import ONCE, SETTLE_DAYS, Catalogue
from replay.workload.config import ANALYSIS, PRODUCTION, WorkloadConfig
from replay.workload.names import EVENT_ID, DatasetNames, file_names, hex_ids, padded
from replay.workload.tasks import PackedReads, Tasks

ROWS_AT_ONCE = 1 << 20
"""Rows of a slice, and of a row group where slices are written."""

_TIME = pa.timestamp("us", tz="UTC")
_DAY_US = 86_400_000_000
_READ_SPREAD = 0.1
# A MINIAOD job reads about 2.4 MB/s of an unscaled file (SOCAL).
_RATE_BYTES_PER_S = 2.4e6
_TASK_LABELS = {"cms": ("crab_", "prod_"), "atlas": ("anal_", "prod_")}


@dataclasses.dataclass(frozen=True, eq=False)
class Workload:
    """A generated region: its files, the passes over its datasets, and every read in time order.

    `created_day`: when the first file of each dataset was created, in days from the start.
    """

    config: WorkloadConfig
    catalogue: Catalogue
    tasks: Tasks
    reads: PackedReads
    names: DatasetNames
    created_day: FloatArray

    @property
    def n_accesses(self) -> int:
        """Reads within the days."""
        return len(self.reads)

    @property
    def n_files(self) -> int:
        """Files of the catalogue, read or not."""
        return self.catalogue.size_bytes.size

    def access_slices(self, *, raw: bool = False) -> Iterator[pa.Table]:
        """The accesses in tables of up to `ROWS_AT_ONCE` rows; see `accesses`."""
        for begin in range(0, self.n_accesses, ROWS_AT_ONCE):
            yield self._accesses(begin, min(self.n_accesses, begin + ROWS_AT_ONCE), raw)

    def file_slices(self) -> Iterator[pa.Table]:
        """The catalogue in tables of up to `ROWS_AT_ONCE` rows; see `files`."""
        for begin in range(0, self.n_files, ROWS_AT_ONCE):
            yield self._files(np.arange(begin, min(self.n_files, begin + ROWS_AT_ONCE)))

    def accesses(self, *, raw: bool = False) -> pa.Table:
        """One row per read, by time: accessed_at, closed_at, did, dataset, category, tier, size_bytes,
        read_bytes, origin, site, user (a plain name), task, activity; strings are dictionary-encoded.
        With `raw` also scope, name and event_id: all that a Rucio trace has.
        """
        return pa.concat_tables(self.access_slices(raw=raw)).unify_dictionaries()

    def files(self) -> pa.Table:
        """One row per file, read or not: did, scope, name, dataset, category, tier, campaign, experiment,
        size_bytes, created_at, origin; strings but did and name are dictionary-encoded.
        """
        return pa.concat_tables(self.file_slices()).unify_dictionaries()

    def _accesses(self, begin: int, end: int, raw: bool) -> pa.Table:
        reads, datasets = self.reads.slice(begin, end), self.catalogue.datasets
        dataset = self.tasks.dataset[reads.task].astype(np.int64)
        size = self.catalogue.size_bytes[reads.file]
        read, seconds = self._transfers(reads.task, dataset, size, begin)
        names, code = self._names_of(reads.file)
        columns: dict[str, Any] = {
            "accessed_at": pa.array(reads.accessed_us).cast(_TIME),
            "closed_at": pa.array(reads.accessed_us + (seconds * 1e6).astype(np.int64)).cast(_TIME),
            "did": _coded(pc.binary_join_element_wise(*names, ":"), code),
            "dataset": self._dataset(dataset),
            "category": _coded(self._vocabulary["category"], datasets.category[dataset]),
            "tier": self._tier.take(pa.array(dataset)),
            "size_bytes": size,
            "read_bytes": read,
            "origin": _coded(self._vocabulary["origin"], datasets.origin[dataset]),
            "site": _coded(self._vocabulary["site"], self.tasks.site[reads.task]),
            "user": _coded(self._vocabulary["user"], self.tasks.user[reads.task] + 1),
            "task": self._task(reads.task),
            "activity": _coded(self._vocabulary["activity"], self.tasks.production[reads.task]),
        }
        if raw:
            columns["scope"], columns["name"] = (values.take(pa.array(code)) for values in names)
            columns["event_id"] = pa.array(hex_ids(self.config.seed, np.arange(begin, end), kind=EVENT_ID))
            columns["event_id"] = columns["event_id"].cast(pa.string())
        return pa.table(columns)

    def _files(self, file: IntArray) -> pa.Table:
        datasets, dataset = self.catalogue.datasets, self.catalogue.dataset_of(file)
        place = file - self.catalogue.first_file[dataset]
        names = file_names(self.config, self.names, dataset, place, file)
        scope = self._scope.take(pa.array(dataset))
        day = self.created_day[dataset] + SETTLE_DAYS * place / datasets.n_files[dataset]
        created = self.config.start_s * 1_000_000 + (day * _DAY_US).astype(np.int64)
        return pa.table(
            {
                "did": pc.binary_join_element_wise(scope.cast(pa.string()), names, ":"),
                "scope": scope,
                "name": names,
                "dataset": self._dataset(dataset),
                "category": _coded(self._vocabulary["category"], datasets.category[dataset]),
                "tier": self._tier.take(pa.array(dataset)),
                "campaign": self._campaign.take(pa.array(dataset)),
                "experiment": _coded(pa.array([self.config.experiment]), np.zeros(file.size, np.int32)),
                "size_bytes": self.catalogue.size_bytes[file],
                "created_at": pa.array(created).cast(_TIME),
                "origin": _coded(self._vocabulary["origin"], datasets.origin[dataset]),
            }
        )

    def _transfers(
        self, task: IntArray, dataset: IntArray, size: IntArray, begin: int
    ) -> tuple[IntArray, FloatArray]:
        """Bytes read, and for how many seconds."""
        # Each slice has its own generator, so that it does not depend on the slices made before.
        rng = np.random.default_rng((self.config.seed, begin))
        usual = np.array([c.read_share for c in self.config.categories])
        share = usual[self.catalogue.datasets.category[dataset]]
        varied = np.clip(share + _READ_SPREAD * rng.standard_normal(task.size), 0.01, 1.0)
        read = np.where(self._read_whole[task] | (share >= 1), 1.0, varied) * size
        seconds = read / self.config.size_scale / _RATE_BYTES_PER_S * rng.uniform(0.8, 1.3, task.size)
        return read.astype(np.int64), seconds

    def _names_of(
        self, file: IntArray
    ) -> tuple[tuple[pa.StringArray, pa.StringArray], npt.NDArray[np.int32]]:
        """Scope and name of the files that occur in `file`, and the index of each entry among them."""
        used, code = _compact(file, self.n_files)
        dataset = self.catalogue.dataset_of(used)
        place = used - self.catalogue.first_file[dataset]
        names = file_names(self.config, self.names, dataset, place, used)
        return (self.names.scope.take(pa.array(dataset)), names), code

    def _dataset(self, dataset: IntArray) -> pa.DictionaryArray:
        used, code = _compact(dataset, self.created_day.size)
        index = pa.array(used)
        values = pc.binary_join_element_wise(self.names.scope.take(index), self.names.name.take(index), ":")
        return _coded(values, code)

    def _task(self, task: IntArray) -> pa.DictionaryArray:
        used, code = _compact(task, self.tasks.dataset.size)
        analysis, production = _TASK_LABELS[self.config.experiment]
        kind = pc.if_else(pa.array(self.tasks.production[used]), production, analysis)
        return _coded(pc.binary_join_element_wise(kind, padded(used, 8), ""), code)

    @cached_property
    def _read_whole(self) -> BoolArray:
        once = self.catalogue.datasets.role == ONCE
        whole: BoolArray = once[self.tasks.dataset]
        return whole

    @cached_property
    def _vocabulary(self) -> dict[str, pa.StringArray]:
        config = self.config
        users = [f"{config.experiment[:3]}prod", *(f"user{i:03d}" for i in range(config.n_users))]
        return {
            "category": pa.array([c.name for c in config.categories]),
            "origin": pa.array([o.name for o in config.origins]),
            "site": pa.array(config.sites),
            "user": pa.array(users),
            "activity": pa.array([ANALYSIS, PRODUCTION]),
        }

    @cached_property
    def _tier(self) -> pa.DictionaryArray:
        return self.names.tier.dictionary_encode()

    @cached_property
    def _campaign(self) -> pa.DictionaryArray:
        return self.names.campaign.dictionary_encode()

    @cached_property
    def _scope(self) -> pa.DictionaryArray:
        return self.names.scope.dictionary_encode()


def _coded(values: pa.StringArray, code: npt.NDArray[Any]) -> pa.DictionaryArray:
    # Codes come from `_compact` or an index, so they are in range; checking them would double the time.
    return pa.DictionaryArray.from_arrays(pa.array(code.astype(np.int32)), values, safe=False)


def _compact(index: IntArray, n: int) -> tuple[IntArray, npt.NDArray[np.int32]]:
    """The numbers below `n` that occur in `index`, ascending, and the place of each entry among them."""
    occurs = np.zeros(n, np.bool_)
    occurs[index] = True
    used = np.flatnonzero(occurs)
    place = np.empty(n, np.int32)
    place[used] = np.arange(used.size, dtype=np.int32)
    return used, place[index]
