"""The files behind the inputs of queued jobs: which jobs will read each, when first, and how surely."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from features.common.arrays import BoolArray, IntArray
from features.schema import FILES
from jobs.ground.store.tables import Tables
from jobs.loop.ingest.known_names import plain_names
from prefetch.plan.scores import KnownWork

_OF_QUEUE = ["input", "is_dataset", "queue"]
_STATED = ("n_jobs", "wait_s", "missed", "doubt")
_EVERYTHING: Mapping[str, float] = MappingProxyType({})


@dataclasses.dataclass(frozen=True)
class Queued:
    """Files that queued jobs will read, a row per file: `NO_FILES` has the columns.

    `queues`: that announced it, with commas between. `n_unknown`: inputs that the files table does not know;
    `n_stale`: inputs whose entries are stale; `n_doubted`: inputs of queues that are not believed.
    """

    files: pa.Table
    n_unknown: int = 0
    n_stale: int = 0
    n_doubted: int = 0

    def of(self, dids: pa.Array) -> KnownWork:
        """The same for a planner that numbers files by their index in `dids`, which contains all of them."""
        item = pc.index_in(self.files["did"], value_set=dids).to_numpy().astype(np.int64)
        size, jobs, wait_s, certainty = (self.files[name].to_numpy() for name in _NUMBERS)
        return KnownWork(item, size, jobs, wait_s, certainty)

    def announcers(self, dids: pa.Array) -> pa.Array:
        """The queues that announced each of `dids`; null: none did."""
        place = pc.index_in(dids, value_set=self.files["did"].combine_chunks())
        return self.files["queues"].combine_chunks().take(place)


_NUMBERS = ("size_bytes", "n_jobs", "wait_s", "certainty")
NO_FILES = pa.table(
    {"did": pa.array([], pa.string())}
    | {name: pa.array([], pa.int64()) for name in _NUMBERS[:-1]}
    | {"certainty": pa.array([], pa.float64()), "queues": pa.array([], pa.string())}
)


def files_of_inputs(
    tables: Tables, rows: pa.Table, as_of_s: int, believed: Mapping[str, float] = _EVERYTHING
) -> Queued:
    """The files behind the inputs of `rows`, as the files table knew them at `as_of_s`.

    `rows`: of the table queue, with their `queue`; `believed`: how far each queue is, 1 where it is missing:
    no file is surer than the queues that name it are believed together.
    """
    inputs = inputs_of(rows, as_of_s, believed)
    n_inputs = int(_is_first(inputs).sum())
    if not rows.num_rows or not tables.exists(FILES):
        return Queued(NO_FILES, n_unknown=n_inputs)
    files = known_files(tables, as_of_s)
    file, entry = files_named(files, inputs)
    named = inputs.take(pa.array(entry))
    n_known = int(_is_first(inputs)[np.unique(entry)].sum())
    pairs = pa.table({"file": file} | {name: named[name] for name in ("queue", *_STATED)})
    by_queue = pairs.group_by(["file", "queue"]).aggregate(
        [("n_jobs", "sum"), ("wait_s", "min"), ("missed", "sum"), ("doubt", "min")]
    )
    missed = pc.max_element_wise(by_queue["missed_sum"], by_queue["doubt_min"])
    by_queue = by_queue.append_column("missed", missed).sort_by("queue")
    of = by_queue.group_by("file", use_threads=False).aggregate(
        [("n_jobs_sum", "sum"), ("wait_s_min", "min"), ("missed", "sum"), ("queue", "list")]
    )
    of = of.sort_by("file")
    columns = {
        "did": files["did"].take(of["file"]),
        "size_bytes": files["size_bytes"].take(of["file"]),
        "n_jobs": of["n_jobs_sum_sum"],
        "wait_s": of["wait_s_min_min"],
        "certainty": -np.expm1(of["missed_sum"].to_numpy()),
        "queues": pc.binary_join(of["queue_list"], ", "),
    }
    return Queued(pa.table(columns), n_unknown=n_inputs - n_known)


def inputs_of(rows: pa.Table, as_of_s: int, believed: Mapping[str, float] = _EVERYTHING) -> pa.Table:
    """What each queue says of each input in `rows`: `input`, `is_dataset` and `queue`, sorted by these.

    `wait_s`: until the first job that reads it; `expires_s`: until when an entry is valid; `doubt`: the
    logarithm of the chance that the queue is wrong, by how far it is `believed`. Of what several queues say
    of the same work the surest counts: `n_jobs`, and `missed`, the logarithm of the chance that none reads
    it.
    """
    queue = rows["queue"].combine_chunks().dictionary_encode()
    shares = pa.array([believed.get(name, 1.0) for name in queue.dictionary.to_pylist()], pa.float64())
    trust = shares.take(queue.indices)
    starts_s = pc.floor(pc.divide(rows["starts_at"].cast(pa.int64()), 1_000_000)).cast(pa.int64())
    each = pc.binary_join_element_wise("", pa.array(np.arange(rows.num_rows)).cast(pa.string()), "\n")
    stated = pa.table(
        {
            "input": _plain(rows),
            "is_dataset": rows["is_dataset"],
            "queue": queue.cast(pa.string()),
            "work": pc.coalesce(rows["work"], each),
            "n_jobs": rows["n_jobs"],
            "wait_s": pc.fill_null(pc.max_element_wise(pc.subtract(starts_s, as_of_s), 0), 0),
            "expires_s": pc.divide(rows["expires_at"].cast(pa.int64()), 1_000_000),
            "doubt": pc.log1p(pc.negate(trust)),
            "certainty": pc.multiply(pc.fill_null(rows["certainty"], 1.0), trust),
        }
    )
    of_queue = stated.group_by(_OF_QUEUE).aggregate(
        [("wait_s", "min"), ("expires_s", "max"), ("doubt", "min")]
    )
    surest = stated.sort_by([("certainty", "descending"), ("queue", "ascending")])
    works = surest.group_by([*_OF_QUEUE[:2], "work"], use_threads=False).aggregate(
        [("queue", "first"), ("n_jobs", "max"), ("certainty", "max")]
    )
    works = works.rename_columns({"queue_first": "queue"})
    works = works.append_column("missed", pc.log1p(pc.negate(works["certainty_max"])))
    sums = works.group_by(_OF_QUEUE).aggregate([("n_jobs_max", "sum"), ("missed", "sum")])
    joined = of_queue.join(sums, _OF_QUEUE).sort_by([(name, "ascending") for name in _OF_QUEUE])
    return pa.table(
        {name: joined[name] for name in _OF_QUEUE}
        | {
            "n_jobs": pc.fill_null(joined["n_jobs_max_sum"], 0),
            "wait_s": joined["wait_s_min"],
            "missed": pc.fill_null(joined["missed_sum"], 0.0),
            "doubt": joined["doubt_min"],
            "expires_s": joined["expires_s_max"],
        }
    )


def _plain(rows: pa.Table) -> pa.Array:
    """The inputs of `rows`, files as the catalogue names them."""
    coded = rows["input"].combine_chunks().dictionary_encode()
    return pc.if_else(rows["is_dataset"], rows["input"], plain_names(coded.dictionary).take(coded.indices))


def known_files(tables: Tables, as_of_s: int) -> pa.Table:
    """did, name, dataset and size of the files that were known at `as_of_s`."""
    files = tables.read_arrow(FILES, columns=["did", "name", "dataset", "size_bytes", "known_at"])
    return files.filter(pc.less_equal(files["known_at"], at(as_of_s))).combine_chunks()


def at(moment_s: int) -> pa.Scalar:
    """A time, s since 1970, to compare columns with."""
    return pa.scalar(dt.datetime.fromtimestamp(moment_s, dt.UTC), pa.timestamp("us", tz="UTC"))


def files_named(files: pa.Table, inputs: pa.Table) -> tuple[IntArray, IntArray]:
    """Pairs of a row of `files` and a row of `inputs` that names it, or its dataset.

    Rows of the same `input` and `is_dataset` stand together.
    """
    first: IntArray = np.flatnonzero(_is_first(inputs))
    n_rows = np.diff(np.append(first, inputs.num_rows))
    pairs: list[tuple[IntArray, IntArray]] = []
    for is_dataset, columns in ((False, _names(files)), (True, _datasets(files))):
        here = np.flatnonzero(inputs["is_dataset"].to_numpy()[first] == is_dataset)
        named = inputs["input"].take(pa.array(first[here])).combine_chunks()
        for names in columns:
            index = pc.index_in(names, value_set=named)
            file: IntArray = np.flatnonzero(index.is_valid().to_numpy(zero_copy_only=False))
            pairs.append((file, here[index.drop_null().to_numpy()]))
    file, place = (np.concatenate(column).astype(np.int64) for column in zip(*pairs, strict=True))
    n_each = n_rows[place]
    within = np.arange(n_each.sum()) - np.repeat(np.cumsum(n_each) - n_each, n_each)
    return np.repeat(file, n_each), np.repeat(first[place], n_each) + within


def _is_first(inputs: pa.Table) -> BoolArray:
    """Whether each row of `inputs` is the first of its input."""
    named = pc.binary_join_element_wise(inputs["input"], inputs["is_dataset"].cast(pa.string()), "\n")
    codes = named.combine_chunks().dictionary_encode().indices.to_numpy()
    is_first: BoolArray = np.diff(codes, prepend=-1) != 0
    return is_first


def _names(files: pa.Table) -> tuple[pa.Array, pa.Array]:
    return files["did"].combine_chunks(), files["name"].combine_chunks()


def _datasets(files: pa.Table) -> tuple[pa.Array, pa.Array]:
    """The dataset of each file, with and without its scope."""
    coded = files["dataset"].combine_chunks().dictionary_encode()
    names = pc.replace_substring_regex(coded.dictionary, r"^[^:/]*:", "")
    bare = pc.if_else(pc.equal(names, coded.dictionary), None, names)
    return files["dataset"].combine_chunks(), bare.take(coded.indices)
