"""The files and datasets of a region as they were known at decision times: a state, and rows of features.

What is known of a dataset depends on no other, so `dataset_parts` divides a region into parts that can be
worked on alone.
"""

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from features.accesses import catalogue_first
from features.common.arrays import AnyFloatArray, BoolArray, FloatArray, Ids, IntArray
from features.common.hashes import mixed
from features.spec import COLUMNS, FeatureSpec
from features.stream import facts
from features.stream.events import count, hashes, ordered, usable
from features.stream.facts import Fact, Statements, Stored
from features.stream.names import merged, numbered, part_of, ranked
from features.stream.row import written
from features.stream.state import D_COUNTED, D_LAST, D_LIFE, LAST, LIFE, Files, new_state

AGEING = 1 / 8
"""By so much of the time since its dataset's last read a row becomes older before it counts as changed."""
_STEPS = 2.0**64
_EVENTS_PER_THREAD = 100_000
_ROWS_PER_THREAD = 4096


class Region:
    """The state and the features of some datasets, at one decision time after another.

    `accesses`, `files`: rows of the tables with the columns `events.COLUMNS` and `facts.CATALOGUE`; `stored`:
    a state to carry on from, which has counted none of the accesses. What is known of one dataset does not
    depend on others, so a region may be worked on in parts that divide no dataset.
    """

    def __init__(self, accesses: pa.Table, files: pa.Table, stored: Stored, spec: FeatureSpec) -> None:
        self._spec = spec
        columns = [stored.files["entity"], files["did"], accesses["did"]]
        with ThreadPoolExecutor(2) as pool:
            naming = pool.submit(merged, columns)
            self._events, order = ordered(accesses, lambda: naming.result()[1][2], cycle_s=spec.cycle_s)
            self._dids, (of_stored, of_files, _) = naming.result()
            m = len(self._dids)
            unread = pool.submit(new_state, m, 0)
            before = stored.statements(of_stored)
            catalogue = facts.of_catalogue(files, of_files, cycle_s=spec.cycle_s)
            stated = accesses.select(["dataset", *facts.OF_READS]).take(pa.array(order))
            reads = Statements(self._events.item, self._events.from_s, stated)
            self._stated = [before, reads]
            placing = pool.submit(datasets, before, catalogue, reads, m)
            texts = {name: pool.submit(facts.text, name, m, catalogue, self._stated) for name in facts.TEXTS}
            self._listed = {name: facts.fact(name, m, [catalogue]) for name in ("created_at", "size_bytes")}
            self._facts = {"size_bytes": facts.fact("size_bytes", m, self._stated)}
            self._of_reads = self._facts | {name: text.result()[0] for name, text in texts.items()}
            self._facts |= {name: text.result()[1] for name, text in texts.items()}
            dataset, dataset_s, self._named = placing.result()
        self._listed_s = np.maximum(dataset_s, facts.listed_from(catalogue, m, cycle_s=spec.cycle_s))
        alone = np.flatnonzero(dataset >= len(self._named))
        own = pc.binary_join_element_wise(self._dids.take(pa.array(alone)), "", facts.ALONE)
        self._dataset_names = pa.concat_arrays([self._named, own.cast(pa.string())])
        n_datasets = len(self._dataset_names) + 1  # the last one stands for none, which is -1
        self._files = Files(
            dataset.astype(np.int32),
            self._facts["tier"].value.astype(np.int32),
            self._facts["size_bytes"].value.copy(),
            np.full(m, -1, np.int32),
            np.zeros(n_datasets, np.int64),
            float(spec.history_s),
        )
        self._state = new_state(0, n_datasets)._replace(file=unread.result().file)
        stored.put_into(self._state, of_stored, self._dataset_names)
        self._n_counted = 0
        self._since_began: Mapping[str, Fact] | None = None  # what reads stated since each dataset began
        self._hashes = hashes(self._dids) if spec.sample_share < 1 else None

    def advance(self, as_of_s: int) -> None:
        """Count what may be used at `as_of_s`; times never decrease."""
        start = self._n_counted
        stop = int(np.searchsorted(self._events.from_s, as_of_s, side="right"))
        if stop == start:
            return
        self._since_began = None
        n_threads = len(os.sched_getaffinity(0)) if stop - start > _EVENTS_PER_THREAD else 1
        with ThreadPoolExecutor(n_threads) as pool:
            counted = [
                pool.submit(count, self._state, self._files, self._events, (start, stop), (k, n_threads))
                for k in range(n_threads)
            ]
            for share in counted:
                share.result()
        self._n_counted = stop

    def features(self, as_of_s: int, before_s: int | None = None) -> pa.Table:
        """The rows of the candidates at `as_of_s`, by did, in the features table's columns; texts are coded.

        A candidate was read in [as_of - candidate_s, as_of), or it is a file of a dataset that was read in
        [as_of - active_dataset_s, as_of): read within history_s, or listed by the catalogue and unread; of
        those the first `unread_per_dataset` by did. Of a sample, those whose hash is below its share.

        `before_s`: only rows that have changed since then: of datasets that were read or listed since, as
        counted, and those that have become older by `AGEING`.
        """
        self.advance(as_of_s)
        item = self._candidates(as_of_s)
        if before_s is not None:
            item = item[self._has_changed(item, as_of_s, before_s)]
        listed, stated = (of["size_bytes"].at(item, as_of_s) for of in (self._listed, self._facts))
        size = catalogue_first(listed, stated)
        self._files.size_bytes[item] = size
        n_threads = len(os.sched_getaffinity(0)) if item.size > _ROWS_PER_THREAD else 1
        with ThreadPoolExecutor(n_threads) as pool:
            parts = np.array_split(np.arange(item.size), n_threads)
            rows = pool.map(lambda part: self._rows(item[part], size[part], as_of_s), parts)
            return pa.concat_tables(rows)

    def _rows(self, item: Ids, size: IntArray, as_of_s: int) -> pa.Table:
        """The rows of some candidates, no file twice, whose sizes are these, -1: not known."""
        numeric = written(self._state, self._files, item, float(as_of_s))
        values: dict[str, AnyFloatArray] = dict(zip(COLUMNS, numeric, strict=True))
        values["size_bytes"] = np.where(size < 0, np.nan, size)
        created = self._listed["created_at"].at(item, as_of_s)
        age = np.where(created < 0, np.nan, np.maximum(0, as_of_s - created))
        values["age_s"] = age.astype(np.float32)
        dataset = self._files.dataset[item]
        texts = {
            "did": _coded(item, self._dids),
            "dataset": _coded(dataset, self._dataset_names, is_null=dataset >= len(self._named)),
            "tier": self._facts["tier"].column(item, as_of_s),
            "campaign": self._facts["campaign"].column(item, as_of_s),
        }
        columns = {name: pa.array(values[name], from_pandas=True) for name in self._spec.numeric_columns}
        return pa.table(texts | columns)

    def stored(self, as_of_s: int, counted_s: tuple[float, float] = (-np.inf, np.inf)) -> Stored:
        """The state at `as_of_s`, without what a dataset has forgotten by then.

        Only of datasets whose last read was counted at the first of `counted_s` or later, before the last.
        """
        self.advance(as_of_s)
        last, counted = self._state.dataset[:, D_LAST], self._state.dataset[:, D_COUNTED]
        alive = last >= as_of_s - self._spec.history_s
        is_stored = alive & (counted >= counted_s[0]) & (counted < counted_s[1])
        item = np.flatnonzero(self._is_known() & is_stored[self._files.dataset]).astype(np.int32)
        if self._since_began is None:
            began_s, m = self._state.dataset[self._files.dataset, D_LIFE], len(self._dids)
            self._since_began = {
                name: facts.fact(name, m, self._stated, since_s=began_s)
                if (first.from_s < began_s).any()
                else first
                for name, first in self._of_reads.items()
            }
        columns = {}
        for name, stated in self._since_began.items():
            columns[name] = stated.column(item, as_of_s)
            columns[f"{name}_s"] = pa.array(stated.from_s[item], mask=stated.at(item, as_of_s) < 0)
        return Stored.of(
            self._state,
            item,
            np.flatnonzero(is_stored),
            dids=self._dids,
            dataset_of=self._files.dataset,
            dataset_names=self._dataset_names,
            facts=columns,
        )

    def _is_known(self) -> BoolArray:
        """Files that were read since their dataset began."""
        known: BoolArray = self._state.file[:, LIFE] == self._state.dataset[self._files.dataset, D_LIFE]
        return known

    def _has_changed(self, item: Ids, as_of_s: int, before_s: int) -> BoolArray:
        counted_s, of_dataset = self._state.dataset[:, D_COUNTED], self._files.dataset[item]

        def age(at_s: int) -> FloatArray:
            return np.asarray(np.log(np.maximum(1, at_s - counted_s)) // np.log1p(AGEING), np.float64)

        is_other = (counted_s > before_s) | (age(as_of_s) != age(before_s))
        is_listed = np.zeros(is_other.size, np.bool_)
        is_listed[of_dataset[self._listed_s[item] > before_s]] = True
        return np.asarray((is_other | is_listed)[of_dataset], np.bool_)

    def _candidates(self, as_of_s: int) -> Ids:
        spec, of_dataset = self._spec, self._files.dataset
        last: FloatArray = self._state.dataset[:, D_LAST]
        in_use = last >= as_of_s - spec.active_dataset_s
        alive = last >= as_of_s - spec.history_s
        known = self._is_known()
        recent = self._state.file[:, LAST] >= as_of_s - spec.candidate_s
        read = known & alive[of_dataset] & (recent | in_use[of_dataset])
        listed = (self._listed_s <= as_of_s) & (of_dataset >= 0)
        self._files.n_files[:] = np.bincount(of_dataset[listed], minlength=self._files.n_files.size)
        unread = listed & ~known & in_use[of_dataset]
        waiting = np.flatnonzero(unread)
        rank = _rank(of_dataset[waiting])
        self._files.rank[waiting] = rank
        read[waiting[rank < spec.unread_per_dataset]] = True
        if self._hashes is not None:
            of_time = np.uint64(as_of_s * 0x9E3779B97F4A7C15 % 2**64)
            read &= mixed(self._hashes + of_time) < spec.sample_share * _STEPS
        return np.flatnonzero(read).astype(np.int32)


def _coded(numbers: Ids, names: pa.Array, *, is_null: BoolArray | None = None) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(numbers, mask=is_null), names)


def datasets(
    before: Statements, catalogue: Statements, reads: Statements, n_files: int
) -> tuple[IntArray, IntArray, pa.Array]:
    """The dataset of each file, as a code into the names returned, and from when on the file is in it.

    The code is -1 for a file that is not read, and listed in no dataset.

    The dataset is that of the state to be carried on; else of the catalogue, if that knew it when the file
    was first read (or if nobody read it); else the first by name of those that the reads of that time state.
    Else the file is alone: its code is a number of its own after those of the names.
    """
    stating = (before, catalogue, reads)
    names, (carried, listed, stated) = ranked([statements.rows["dataset"] for statements in stating])
    first_s = _least(n_files, reads.item, reads.from_s)
    by_catalogue = facts.fact("dataset", n_files, [catalogue], coded=(names, [listed]))
    dataset = np.where(by_catalogue.from_s <= first_s, by_catalogue.value, -1)
    from_s = np.where(dataset < 0, first_s, by_catalogue.from_s)
    rows = np.flatnonzero((stated >= 0) & (reads.from_s == first_s[reads.item]))
    by_reads = _least(n_files, reads.item[rows], stated[rows].astype(np.int64))
    dataset = np.where((dataset < 0) & (by_reads != facts.NEVER), by_reads, dataset)
    dataset[before.item], from_s[before.item] = carried, before.from_s
    is_read = first_s != facts.NEVER
    is_read[before.item] = True
    alone = np.flatnonzero(is_read & (dataset < 0))
    dataset[alone] = len(names) + np.arange(alone.size)
    return dataset, from_s, names


def _least(n_files: int, item: Ids, values: IntArray) -> IntArray:
    """The least of the `values` of each file, int64[m]; NEVER: it has none."""
    least = np.full(n_files, facts.NEVER)
    np.minimum.at(least, item.astype(np.intp), values)
    return least


def _rank(group: Ids) -> IntArray:
    """The place of each entry among those of its group, in their order."""
    order = np.argsort(group, kind="stable")
    starts = np.flatnonzero(np.diff(group[order], prepend=-1))
    rank = np.empty(group.size, np.int64)
    rank[order] = np.arange(group.size) - np.repeat(starts, np.diff(np.append(starts, group.size)))
    return rank


class DatasetParts(NamedTuple):
    """The part of each row, int[n] per table; -1: a catalogue file that belongs to no dataset."""

    reads: IntArray
    files: IntArray
    states: IntArray


def dataset_parts(
    reads: pa.Table, files: pa.Table, stored: Stored, n_parts: int, *, cycle_s: int
) -> DatasetParts:
    """Which of `n_parts` parts each row of the three tables goes to.

    A file's dataset is the one that `features.stream.region` counts it in, so parts can be worked on alone.
    """
    columns = [stored.files["entity"], files["did"], reads["did"]]
    dids, (of_stored, of_files, of_reads) = numbered(columns)
    from_s = usable(reads, cycle_s=cycle_s)
    by_reads = Statements(of_reads, from_s, reads)  # in no order, which datasets do not need
    by_catalogue = facts.of_catalogue(files, of_files, cycle_s=cycle_s)
    dataset, _, names = datasets(stored.statements(of_stored), by_catalogue, by_reads, len(dids))
    alone = np.flatnonzero(dataset >= len(names))
    own = pc.binary_join_element_wise(dids.take(pa.array(alone)), "", facts.ALONE)
    part = np.append(part_of(names, n_parts), -1)[np.where(dataset < len(names), dataset, -1)]
    part[alone] = part_of(own, n_parts)
    rows = stored.rows
    entity = pc.coalesce(rows["dataset"].cast(pa.string()), rows["entity"])
    return DatasetParts(part[of_reads], part[of_files], part_of(entity, n_parts))
