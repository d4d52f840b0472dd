"""Queues of jobs: their reports into the queue table, and their valid entries into plans."""

from __future__ import annotations

import dataclasses
import datetime as dt
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from features.common.arrays import FloatArray, IntArray
from features.common.errors import InputError
from features.common.times import day_label, parse_as_of
from features.schema import FILES, QUEUE, REJECTS, arrow_schema
from jobs.ground.settings.sources import SERVER
from jobs.ground.settings.tree import Settings
from jobs.ground.store.commits import Key, MomentKey
from jobs.ground.store.rejects import replace_rejects
from jobs.ground.store.tables import Tables, read_partitions
from jobs.loop.ingest.known_names import plain_names
from jobs.loop.ingest.queue_entries import FURTHEST_S, Checked, check_entries
from jobs.loop.ingest.queues.answers import Kind, entries_of, read_answer
from jobs.loop.ingest.queues.place import Place
from jobs.loop.ingest.queues.rucio import NEW_S
from prefetch.plan.scores import KnownWork

SOURCE = "queued_jobs"
_LOOK_BACK_S = FURTHEST_S + 7 * 86400
_GROWN, _FEW = 10, 1000
_COLLECTED = "rucio-*.jsonl"
"""What the collector keeps of Rucio's messages, until they are too old to be read."""


@dataclasses.dataclass(frozen=True)
class QueueSummary:
    """What a queue reported. `jobs`: of the accepted entries; `inputs`: their names, once per job.

    `rejected`: entries by reason; they are in the rejects table. `alarms`: it grows too fast.
    """

    queue: str
    as_of: str
    entries: int
    jobs: int
    inputs: int
    duplicates: int
    rejected: dict[str, int]
    alarms: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Queued:
    """Files that queued jobs will read: did, size_bytes, n_jobs, wait_s and certainty, one row per file.

    `n_unknown`: inputs that the files table does not know; `n_stale`: inputs whose entries are stale.
    """

    files: pa.Table
    n_unknown: int = 0
    n_stale: int = 0

    def of(self, dids: pa.Array) -> KnownWork:
        """The same for a planner that numbers files by their index in `dids`, which contains all of them."""
        item = pc.index_in(self.files["did"], value_set=dids).to_numpy().astype(np.int64)
        size, jobs, wait_s, certainty = (self.files[name].to_numpy() for name in _NOTHING.column_names[1:])
        return KnownWork(item, size, jobs, wait_s, certainty)


_NOTHING = pa.table(
    {"did": pa.array([], pa.string())}
    | {n: pa.array([], pa.int64()) for n in ("size_bytes", "n_jobs", "wait_s")}
    | {"certainty": pa.array([], pa.float64())}
)


def run(
    settings: Settings,
    *,
    name: str,
    source: str,
    as_of_s: int,
    site: str | None = None,
    kind: Kind = "auto",
) -> QueueSummary:
    """Read a queue of jobs; its entries are the state of `name` from `as_of_s` on.

    `source`: as `read_answer` takes it, or `SERVER`: the configured Rucio server.
    """
    if source == SERVER:
        # A cache's host has no rucio-clients.
        from jobs.loop.ingest.catalogue import session  # noqa: PLC0415
        from jobs.loop.ingest.queues import rucio_server  # noqa: PLC0415

        raw = rucio_server.asked(session(settings.rucio), as_of_s)
    else:
        token, timeout_s = settings.queue.token.get_secret_value(), settings.queue.timeout
        raw = read_answer(source, token=token, timeout_s=timeout_s, since_s=as_of_s - NEW_S)
    stated = entries_of(raw, kind, Place.of(settings, as_of_s, site))
    accepted = check_entries(stated, as_of_s=as_of_s, stale_s=settings.queue.stale, site=site)
    address = source.partition("?")[0]
    summary = write(Tables.of(settings), accepted, queue=name, source=address, as_of_s=as_of_s)
    for file in Path(source).glob(_COLLECTED):
        if file.match(f"bus/rucio/{_COLLECTED}") and file.lstat().st_mtime < as_of_s - NEW_S:
            file.unlink(missing_ok=True)
    return summary


def write(tables: Tables, entries: Checked, *, queue: str, source: str, as_of_s: int) -> QueueSummary:
    """Replace what the queue reports at `as_of_s` by `entries`; `source` names it among the rejects.

    Raises InputError if every entry is faulty; earlier entries then stay. None that waits is an answer, too.
    """
    key = MomentKey.at(as_of_s, queue)
    refused = [
        {"source": SOURCE, "input": source, "reason": reason, "n_rows": n, "sample": entries.samples[reason]}
        for reason, n in sorted(entries.refused.items())
    ]
    replace_rejects(
        tables, SOURCE, key.day, pa.array([source]), pa.Table.from_pylist(refused, arrow_schema(REJECTS))
    )
    if refused and entries.n_faulty == entries.n_entries:
        raise InputError(
            f"no entry of {source} can be used: {refused[0]['reason']} ({entries.refused.total()} in all); "
            "docs/prefill.md describes them"
        )
    alarms = _growth(tables, key, len(entries.rows))
    tables.replace_rows(QUEUE, list(entries.rows.values()), key)
    rejected = dict(sorted(entries.refused.items()))
    return QueueSummary(
        queue,
        key.as_of,
        entries.n_entries,
        entries.n_jobs,
        len(entries.rows),
        entries.n_duplicates,
        rejected,
        alarms,
    )


def _growth(tables: Tables, key: MomentKey, n_inputs: int) -> tuple[str, ...]:
    """What to say of a queue with many more inputs than its answer before."""
    head = tables.head(QUEUE)
    earlier = [at for at in head.partitions if at[2] == key.owner and at < key]
    n_before = head.partitions[max(earlier)].n_rows if earlier else n_inputs
    if n_inputs <= _GROWN * max(n_before, _FEW):
        return ()
    return (
        f"queue {key.owner} names {n_inputs} inputs, {n_before} before: does it repeat or invent work? Plans "
        "fetch no more of all queues than [plan] queued_share",
    )


def known_work(tables: Tables, *, as_of_s: int, cache: str, site: str) -> Queued:
    """The files that jobs will read through `cache` of `site`, by the queues as known at `as_of_s`."""
    if not tables.exists(QUEUE):
        return Queued(_NOTHING)
    snapshot = tables.snapshot(QUEUE)
    since, until = day_label(as_of_s - _LOOK_BACK_S), day_label(as_of_s)
    latest: dict[str, Key] = {}
    for key in snapshot.select(since=since, until=until):
        if parse_as_of(key[1]) <= as_of_s:
            latest[key[2]] = key  # in order of time
    rows = read_partitions(snapshot, {key: snapshot.partitions[key] for key in latest.values()})
    now = pa.scalar(dt.datetime.fromtimestamp(as_of_s, dt.UTC), pa.timestamp("us", tz="UTC"))
    ours = pc.and_(
        pc.fill_null(pc.equal(rows["cache"], cache), True), pc.fill_null(pc.equal(rows["site"], site), True)
    )
    rows = rows.filter(pc.and_(ours, pc.less_equal(rows["known_at"], now)))
    valid = rows.filter(pc.greater(rows["expires_at"], now))
    return dataclasses.replace(
        files_of_inputs(tables, valid, as_of_s), n_stale=rows.num_rows - valid.num_rows
    )


def files_of_inputs(tables: Tables, rows: pa.Table, as_of_s: int) -> Queued:
    """The files behind the inputs of `rows`, as the files table knew them at `as_of_s`."""
    if not rows.num_rows or not tables.exists(FILES):
        return Queued(_NOTHING, n_unknown=rows.num_rows)
    now = pa.scalar(dt.datetime.fromtimestamp(as_of_s, dt.UTC), pa.timestamp("us", tz="UTC"))
    files = tables.read_arrow(FILES, columns=["did", "name", "dataset", "size_bytes", "known_at"])
    files = files.filter(pc.less_equal(files["known_at"], now)).combine_chunks()
    n_jobs, first = np.zeros(files.num_rows, np.int64), np.full(files.num_rows, np.iinfo(np.int64).max)
    missed: FloatArray = np.zeros(files.num_rows)
    n_known = 0
    for is_dataset in (False, True):
        named = rows.filter(pc.equal(rows["is_dataset"], is_dataset))
        inputs = _inputs(named if is_dataset else _plain(named), as_of_s)
        for names in _datasets(files) if is_dataset else _names(files):
            index = pc.index_in(names, value_set=inputs["input"].combine_chunks())
            file = np.flatnonzero(index.is_valid().to_numpy(zero_copy_only=False))
            entry = index.drop_null().to_numpy().astype(np.int64)
            n_jobs[file] += inputs["n_jobs"].to_numpy()[entry]
            missed[file] += inputs["missed"].to_numpy()[entry]
            first[file] = np.minimum(first[file], inputs["wait_s"].to_numpy()[entry])
            n_known += np.unique(entry).size
    n_inputs = len(
        pc.unique(pc.binary_join_element_wise(rows["input"], rows["is_dataset"].cast(pa.string()), "\n"))
    )
    queued: IntArray = np.flatnonzero(n_jobs > 0)
    columns = {
        "did": files["did"].take(pa.array(queued)),
        "size_bytes": files["size_bytes"].take(pa.array(queued)),
        "n_jobs": n_jobs[queued],
        "wait_s": first[queued],
        "certainty": -np.expm1(missed[queued]),
    }
    return Queued(pa.table(columns), n_unknown=max(0, n_inputs - n_known))


def _plain(rows: pa.Table) -> pa.Table:
    """`rows` with their inputs, files, as the catalogue names them."""
    coded = rows["input"].combine_chunks().dictionary_encode()
    plain = plain_names(coded.dictionary).take(coded.indices)
    return rows.set_column(rows.column_names.index("input"), rows.schema.field("input"), plain)


def _inputs(rows: pa.Table, as_of_s: int) -> pa.Table:
    """Each input of `rows` once: `n_jobs` that will read it, and `wait_s` until the first.

    `missed`: the logarithm of the chance that none reads it. What several queues say of the same work counts
    once: most jobs, the earliest start and the highest certainty.
    """
    starts_s = pc.floor(pc.divide(rows["starts_at"].cast(pa.int64()), 1_000_000)).cast(pa.int64())
    each = pc.binary_join_element_wise("", pa.array(np.arange(rows.num_rows)).cast(pa.string()), "\n")
    stated = {
        "input": rows["input"],
        "work": pc.coalesce(rows["work"], each),
        "n_jobs": rows["n_jobs"],
        "wait_s": pc.fill_null(pc.max_element_wise(pc.subtract(starts_s, as_of_s), 0), 0),
        "certainty": pc.fill_null(rows["certainty"], 1.0),
    }
    works = pa.table(stated).group_by(["input", "work"])
    works = works.aggregate([("n_jobs", "max"), ("wait_s", "min"), ("certainty", "max")])
    works = works.append_column("missed", pc.log1p(pc.negate(works["certainty_max"])))
    sums = works.group_by("input").aggregate(
        [("n_jobs_max", "sum"), ("wait_s_min", "min"), ("missed", "sum")]
    )
    names = {"n_jobs_max_sum": "n_jobs", "wait_s_min_min": "wait_s", "missed_sum": "missed"}
    return sums.rename_columns(names)


def _names(files: pa.Table) -> tuple[pa.Array, pa.Array]:
    return files["did"].combine_chunks(), files["name"].combine_chunks()


def _datasets(files: pa.Table) -> tuple[pa.Array, pa.Array]:
    """The dataset of each file, with and without its scope."""
    coded = files["dataset"].combine_chunks().dictionary_encode()
    names = pc.replace_substring_regex(coded.dictionary, r"^[^:/]*:", "")
    bare = pc.if_else(pc.equal(names, coded.dictionary), None, names)
    return files["dataset"].combine_chunks(), bare.take(coded.indices)
