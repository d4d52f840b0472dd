"""The files behind the inputs of queued jobs: which jobs will read each, when first, with what certainty."""

import dataclasses
import datetime as dt
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from features.common.arrays import BoolArray, FloatArray, IntArray
from features.schema import FILES
from jobs.ground.store.tables import Tables
from jobs.loop.ingest.known_names import plain_names
from prefetch.plan.scores import HALF_READ_S, KnownWork

_STATED = ("n_jobs", "missed", "doubt")
_LEAST = 1e-9
_NUMBERS = ("size_bytes", "n_jobs", "wait_s", "certainty", "late_s")
NO_FILES = pa.table(
    {"did": pa.array([], pa.string())}
    | {name: pa.array([], pa.int64()) for name in _NUMBERS}
    | {"certainty": pa.array([], pa.float64()), "queues": pa.array([], pa.string())}
)


@dataclasses.dataclass(frozen=True)
class Queued:
    """Files that queued jobs will read, as `NO_FILES` has them; `queues`: with commas between.

    Inputs: `n_unknown` to the files table, `n_stale`, and `n_doubted` of queues that are not believed.
    """

    files: pa.Table
    n_unknown: int = 0
    n_stale: int = 0
    n_doubted: int = 0

    def of(self, dids: pa.Array) -> KnownWork:
        """The same for a planner that numbers files by their index in `dids`, which contains all of them."""
        item = pc.index_in(self.files["did"], value_set=dids).to_numpy().astype(np.int64)
        return KnownWork(item, *(self.files[name].to_numpy() for name in _NUMBERS))

    def announcers(self, dids: pa.Array) -> pa.Array:
        """The queues that announced each of `dids`; null: none did."""
        place = pc.index_in(dids, value_set=self.files["did"].combine_chunks())
        return self.files["queues"].combine_chunks().take(place)


def files_of_inputs(
    tables: Tables, rows: pa.Table, as_of_s: int, believed: Mapping[str, float] = {}
) -> Queued:
    """The files behind the inputs of `rows`, as the files table knew them at `as_of_s`.

    `rows`: of the table queue, with their `queue`; `believed`: how far each queue is, 1 where it is missing:
    no file is surer than the queues that name it are believed together.
    """
    if not rows.num_rows or not tables.exists(FILES):
        return Queued(NO_FILES, n_unknown=int(_is_first(inputs_of(rows, as_of_s)).sum()))
    files = known_files(tables, as_of_s)
    inputs = inputs_of(rows, as_of_s, believed, files)
    n_inputs = int(_is_first(inputs).sum())
    file, entry = files_named(files, inputs)
    named = inputs.take(pa.array(entry))
    n_known = int(_is_first(inputs)[np.unique(entry)].sum())
    pairs = pa.table({"file": file} | {name: named[name] for name in ("queue", *_STATED)})
    by_queue = pairs.group_by(["file", "queue"]).aggregate(
        [("n_jobs", "sum"), ("missed", "sum"), ("doubt", "min")]
    )
    missed = pc.max_element_wise(by_queue["missed_sum"], by_queue["doubt_min"])
    by_queue = by_queue.append_column("missed", missed).sort_by("queue")
    of = by_queue.group_by("file", use_threads=False).aggregate(
        [("n_jobs_sum", "sum"), ("missed", "sum"), ("queue", "list")]
    )
    of = of.sort_by("file")
    due_s, _ = _nearest(file, files.num_rows, named["due_s"].to_numpy(), named["away_s"].to_numpy())
    due_s = due_s[of["file"].to_numpy()]
    columns = {
        "did": files["did"].take(of["file"]),
        "size_bytes": files["size_bytes"].take(of["file"]),
        "n_jobs": of["n_jobs_sum_sum"],
        "wait_s": np.maximum(due_s, 0),
        "late_s": np.maximum(-due_s, 0),
        "certainty": -np.expm1(of["missed_sum"].to_numpy()),
        "queues": pc.binary_join(of["queue_list"], ", "),
    }
    return Queued(pa.table(columns), n_unknown=n_inputs - n_known)


def inputs_of(
    rows: pa.Table, as_of_s: int, believed: Mapping[str, float] = {}, files: pa.Table | None = None
) -> pa.Table:
    """What each queue says of each input in `rows`: `input`, `is_dataset` and `queue`.

    `due_s`: until the job that is least far away starts, less than 0 if it is late: from its entry into the
    queue on where no start is stated; `away_s`: how far, what is half as sure twice: what is hardly sure, or
    very late, neither brings near nor hides what is surer of another time; `expires_s`: until when an entry
    is valid; `doubt`: the logarithm of the chance that the queue is wrong, by how far it is `believed`. Of
    what several queues say of the same work the surest counts: `n_jobs`, and `missed`, the logarithm of the
    chance that none reads it. What is said of an input stands together. With `files` a work that names a
    file, and its dataset too, says no more of the file than the surer of both.
    """
    plain, work = _plain(rows).dictionary_encode(), rows["work"].combine_chunks().dictionary_encode()
    named = 2 * plain.indices.to_numpy().astype(np.int64) + rows["is_dataset"].to_numpy()
    queue = rows["queue"].combine_chunks().dictionary_encode()
    queues = sorted(queue.dictionary.to_pylist())
    of = pc.index_in(queue.dictionary, value_set=pa.array(queues, pa.string()))
    by, trust = of.take(queue.indices).to_numpy(), np.array([believed.get(name, 1.0) for name in queues])
    starts_at = pc.coalesce(rows["starts_at"], rows["known_at"])
    due_s = pc.subtract(pc.divide(starts_at.cast(pa.int64()), 1_000_000), as_of_s).to_numpy()
    certainty = rows["certainty"].fill_null(1.0).to_numpy() * trust[by]
    away_s = np.maximum(np.maximum(due_s, -due_s / 2), HALF_READ_S) / np.maximum(certainty, _LEAST)
    stated = pa.table(
        {
            "named": named,
            "by": by.astype(np.int64),
            "work": pc.coalesce(work.indices.cast(pa.int64()), pa.array(-1 - np.arange(rows.num_rows))),
            "n_jobs": rows["n_jobs"],
            "expires_s": pc.divide(rows["expires_at"].cast(pa.int64()), 1_000_000),
            "certainty": certainty,
        }
    )
    surest = stated.sort_by([("certainty", "descending"), ("by", "ascending")])
    works = surest.group_by(["named", "work"], use_threads=False).aggregate(
        [("by", "first"), ("n_jobs", "max"), ("certainty", "first")]
    )
    with np.errstate(divide="ignore"):
        doubt, missed = np.log1p(-trust), np.log1p(-works["certainty_first"].to_numpy())
    missed, n_jobs = _once(works, missed, plain.dictionary, files)
    of_queue = stated.group_by(["named", "by"]).aggregate([("expires_s", "max")])
    of_queue = of_queue.sort_by([("named", "ascending"), ("by", "ascending")])
    entry = named * len(queues) + by
    named, by = of_queue["named"].to_numpy(), of_queue["by"].to_numpy()
    key = works["named"].to_numpy() * len(queues) + works["by_first"].to_numpy()
    place = np.searchsorted(named * len(queues) + by, key)
    entry = np.searchsorted(named * len(queues) + by, entry)
    first_s, least_s = _nearest(entry, named.size, due_s, away_s)
    # In order of their size: a sum must not depend on the order of the rows.
    least = np.argsort(missed, kind="stable")
    all_jobs = np.zeros(named.size, np.int64)
    np.add.at(all_jobs, place, n_jobs)
    return pa.table(
        {
            "input": plain.dictionary.take(pa.array(named // 2)),
            "is_dataset": pa.array(named % 2 == 1),
            "queue": pa.array(queues, pa.string()).take(pa.array(by)),
            "n_jobs": all_jobs,
            "due_s": first_s,
            "away_s": least_s,
            "missed": np.bincount(place[least], weights=missed[least], minlength=named.size),
            "doubt": doubt[by],
            "expires_s": of_queue["expires_s_max"],
        }
    )


def _nearest(of: IntArray, n: int, due_s: IntArray, away_s: FloatArray) -> tuple[IntArray, FloatArray]:
    """What is least far away of each of `n` things, which entries are `of`: when it is due, and how far."""
    least_s, first_s = np.full(n, np.inf), np.full(n, np.iinfo(np.int64).max)
    np.minimum.at(least_s, of, away_s)
    is_least = away_s == least_s[of]
    np.minimum.at(first_s, of[is_least], due_s[is_least])
    return first_s, least_s


def _once(
    works: pa.Table, missed: FloatArray, names: pa.Array, files: pa.Table | None
) -> tuple[FloatArray, IntArray]:
    """What each of `works` adds, as `missed` and jobs: beside its dataset a file adds what is surer of it."""
    said, work = works["named"].to_numpy(), works["work"].to_numpy()
    n_jobs = works["n_jobs_max"].to_numpy().copy()
    of_sets: IntArray = np.flatnonzero((said % 2 == 1) & (work >= 0))
    single: IntArray = np.flatnonzero((said % 2 == 0) & np.isin(work, work[of_sets]))
    if files is None or not single.size:
        return missed, n_jobs
    single_names, number = np.unique(said[single] // 2, return_inverse=True)
    named_files, row = names.take(pa.array(single_names)), np.full(single_names.size, -1)
    for column in _names(files):
        index = pc.index_in(column, value_set=named_files)
        row[index.drop_null().to_numpy()] = np.flatnonzero(index.is_valid().to_numpy(zero_copy_only=False))
    n_works, all_missed, all_jobs = int(work.max()) + 1, missed.copy(), n_jobs.copy()
    keys = said[of_sets] * n_works + work[of_sets]
    order = np.argsort(keys)
    for column in _datasets(files):
        sets = column.take(pa.array(row, mask=row < 0))
        code = pc.index_in(sets, value_set=names).fill_null(-1).to_numpy().astype(np.int64)[number]
        key = (2 * code + 1) * n_works + work[single]
        at = np.minimum(np.searchsorted(keys[order], key), keys.size - 1)
        is_its = (keys[order][at] == key) & (code >= 0)
        file, whole = single[is_its], of_sets[order[at[is_its]]]
        with np.errstate(invalid="ignore"):  # two that are certain
            surer = np.minimum(missed[file] - missed[whole], 0.0)
        all_missed[file] = np.nan_to_num(surer, neginf=-np.inf)
        all_jobs[file] = np.maximum(n_jobs[file] - n_jobs[whole], 0)
    return all_missed, all_jobs


def _plain(rows: pa.Table) -> pa.Array:
    """The inputs of `rows`, files as the catalogue names them."""
    coded = rows["input"].combine_chunks().dictionary_encode()
    plain = plain_names(coded.dictionary).take(coded.indices)
    return pc.if_else(rows["is_dataset"].combine_chunks(), rows["input"].combine_chunks(), plain)


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
    is_first: BoolArray = np.ones(inputs.num_rows, np.bool_)
    last, this = inputs.slice(0, max(0, inputs.num_rows - 1)), inputs.slice(1)
    is_other = [pc.not_equal(this[name], last[name]) for name in ("input", "is_dataset")]
    is_first[1:] = pc.or_(*is_other).to_numpy()
    return is_first


def _names(files: pa.Table) -> tuple[pa.Array, pa.Array]:
    return files["did"].combine_chunks(), files["name"].combine_chunks()


def _datasets(files: pa.Table) -> tuple[pa.Array, pa.Array]:
    coded = files["dataset"].combine_chunks().dictionary_encode()
    names = pc.replace_substring_regex(coded.dictionary, r"^[^:/]*:", "")
    bare = pc.if_else(pc.equal(names, coded.dictionary), None, names)
    return files["dataset"].combine_chunks(), bare.take(coded.indices)
