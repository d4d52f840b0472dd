"""Queues of jobs: their reports into the queue table, and their valid entries into plans."""

import contextlib
import dataclasses
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from features.common.errors import ConflictError, InputError
from features.common.times import day_label, parse_as_of
from features.schema import QUEUE, REJECTS, arrow_schema
from jobs.ground.settings.sources import SERVER
from jobs.ground.settings.tree import Settings
from jobs.ground.store.commits import MomentKey
from jobs.ground.store.tables import Tables
from jobs.loop.ingest import announced, judging
from jobs.loop.ingest.announced import SOURCE
from jobs.loop.ingest.pull_input import replace_rejects
from jobs.loop.ingest.queue_entries import FURTHEST_S, Checked, check_entries
from jobs.loop.ingest.queued_files import Queued, at, files_of_inputs
from jobs.loop.ingest.queues.answers import Kind, entries_of, read_answer
from jobs.loop.ingest.queues.place import Place
from jobs.loop.ingest.queues.rucio import NEW_S
from jobs.loop.ingest.sources.local import check_answers

MOST_PREFILLS = 32
_READ_WITHIN_S = 3600
_COLLECTED = "rucio-*.jsonl"  # what the collector keeps of Rucio's messages, until too old


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


def check_state(settings: Settings) -> None:
    """Raise InputError if the tables or the journal are on a file system that does not answer."""
    for place in (settings.tables.root, str(settings.push.journal)):
        check_answers(place)


def run(
    settings: Settings, *, name: str, source: str, as_of_s: int, site: str | None = None, kind: Kind = "auto"
) -> QueueSummary:
    """Read a queue of jobs; its entries are the state of `name` from `as_of_s` on.

    `source`: as `read_answer` takes it, or `SERVER`: the configured Rucio server. What the queue announced on
    past days is judged: see `judging.judge`. Raises InputError if it is called as a prefill is, or if
    `site` is none of ours.
    """
    check_state(settings)
    if name.startswith(announced.PREFILLS):
        raise InputError(f"a queue must not be called {name}: {announced.PREFILLS}… are prefills")
    place, caches = Place.of(settings, as_of_s, site), settings.caches.values()
    if site is not None and place.sites and site not in place.sites:
        raise InputError(f"there is no site {site} in [caches] or [queue] sites: {', '.join(place.sites)}")
    if source == SERVER:
        # A cache's host has no rucio-clients.
        from jobs.loop.ingest.catalogue import session  # noqa: PLC0415
        from jobs.loop.ingest.queues import rucio_server  # noqa: PLC0415

        raw = rucio_server.asked(session(settings.rucio), as_of_s)
    else:
        token, timeout_s = settings.queue.token.get_secret_value(), settings.queue.timeout
        raw = read_answer(source, token=token, timeout_s=timeout_s, since_s=as_of_s - NEW_S)
    stated = entries_of(raw, kind, place)
    accepted = check_entries(stated, as_of_s=as_of_s, stale_s=settings.queue.stale, site=site)
    address = source.partition("?")[0]
    tables = Tables.of(settings)
    summary = write(tables, accepted, queue=name, source=address, as_of_s=as_of_s)
    sites = {
        at: judging.SiteNames(place.sites[at], [cache.name for cache in caches if cache.at_site == at])
        for at in {cache.at_site for cache in caches}
    }
    now_s = min(as_of_s, int(time.time()))  # a decision time may be ahead
    judging.judge(tables, name, as_of_s=now_s, stale_s=settings.queue.stale, sites=sites)
    forget(tables, name, as_of_s=now_s, stale_s=settings.queue.stale)
    oldest_s = now_s - NEW_S
    with contextlib.suppress(OSError):  # what may not be deleted is old, and not read again
        for file in Path(source).glob(_COLLECTED):
            if file.match(f"bus/rucio/{_COLLECTED}") and file.lstat().st_mtime < oldest_s:
                file.unlink()
    return summary


def write(tables: Tables, entries: Checked, *, queue: str, source: str, as_of_s: int) -> QueueSummary:
    """Replace what the queue reports at `as_of_s` by `entries`; `source` names it among the rejects.

    Raises InputError if every entry is faulty; earlier entries then stay. None that waits is an answer, too.
    """
    key, where = MomentKey.at(as_of_s, queue), f"{queue}: {source}"
    refused = [
        {"source": SOURCE, "input": where, "reason": reason, "n_rows": n, "sample": entries.samples[reason]}
        for reason, n in sorted(entries.refused.items())
    ]
    replace_rejects(
        tables, SOURCE, key.day, pa.array([where]), pa.Table.from_pylist(refused, arrow_schema(REJECTS))
    )
    if refused and entries.n_faulty == entries.n_entries:
        raise InputError(
            f"no entry of {source} can be used: {refused[0]['reason']} ({entries.refused.total()} in all); "
            "docs/prefill.md describes them"
        )
    grown = announced.growth(tables.replace_rows(QUEUE, list(entries.rows.values()), key), key)
    rejected, alarms = dict(sorted(entries.refused.items())), (grown, announced.crowd(tables, key))
    counts = entries.n_entries, entries.n_jobs, len(entries.rows), entries.n_duplicates
    return QueueSummary(queue, key.as_of, *counts, rejected, tuple(filter(None, alarms)))


def forget(tables: Tables, queue: str, *, as_of_s: int, stale_s: int) -> None:
    """Drop what nobody reads any more, once a day of a queue; prefills that stand become one answer a day.

    The newest answer of each queue stays, and those by which it is judged.
    """
    head, today = tables.head(QUEUE), day_label(as_of_s)
    if sum(key[0] == today and key[2] == queue for key in head.partitions) > 1:
        return
    oldest = day_label(as_of_s - judging.KEPT_S - stale_s)
    newest = {key[2]: key for key in sorted(head.partitions) if parse_as_of(key[1]) <= as_of_s}
    drop = [key for key in head.partitions if key[0] < oldest and key != newest[key[2]]]
    drop += [key for key in newest.values() if key[0] < day_label(as_of_s - FURTHEST_S - stale_s)]
    with contextlib.suppress(ConflictError):  # another process has answered anew: it stays for a day
        tables.commit(QUEUE, [], base=head, drop=drop)
    fold_prefills(tables, as_of_s, most=0)


def fold_prefills(tables: Tables, as_of_s: int, *, most: int = MOST_PREFILLS) -> None:
    """Make one answer a day of prefills by `as_of_s`, if more than `most`, without what has run out."""
    head = tables.head(QUEUE)
    known = ((key, part) for key, part in head.partitions.items() if parse_as_of(key[1]) <= as_of_s)
    old = {key: part for key, part in known if key[2].startswith(announced.PREFILLS)}
    if len(old) <= most:
        return
    rows = head.rows_of(old).sort_by([("known_at", "descending")])
    rows = rows.filter(pc.greater(rows["expires_at"], at(as_of_s)))
    numbered = rows.append_column("n", pa.array(range(rows.num_rows), pa.int64()))
    newest = numbered.group_by([*QUEUE.key, "cache"]).aggregate([("n", "min")])["n_min"]
    rows = rows.take(newest.sort())
    pieces = {
        MomentKey(day, f"{day}T00:00:00Z", announced.PREFILLS + day): rows.filter(pc.equal(rows["day"], day))
        for day in pc.unique(rows["day"]).to_pylist()
    }
    with contextlib.suppress(ConflictError):  # another process does the same
        tables.replace_each(QUEUE, pieces.items(), base=head, drop=old.keys() - pieces.keys())
        tables.vacuum(QUEUE, grace_s=_READ_WITHIN_S)


def known_work(tables: Tables, *, as_of_s: int, cache: str, site: str) -> Queued:
    """The files that jobs will read through `cache` of `site`, by the queues as known at `as_of_s`.

    An entry counts as far as its queue is believed by then, one of a queue below `announced.DOUBTED` not.
    """
    snapshot = tables.head(QUEUE)
    # In order of time; what is too old is forgotten.
    latest = {key[2]: key for key in sorted(snapshot.partitions) if parse_as_of(key[1]) <= as_of_s}
    rows = snapshot.rows_of(latest.values())
    ours = pc.and_(
        pc.fill_null(pc.equal(rows["cache"], cache), True), pc.fill_null(pc.equal(rows["site"], site), True)
    )
    rows = rows.filter(pc.and_(ours, pc.less_equal(rows["known_at"], at(as_of_s))))
    valid = rows.filter(pc.greater(rows["expires_at"], at(as_of_s)))
    is_prefill = pc.starts_with(rows["queue"], announced.PREFILLS)  # they run out unnoticed
    is_stale = pc.and_not(pc.less_equal(rows["expires_at"], at(as_of_s)), is_prefill)
    believed = announced.believed(tables, as_of_s=as_of_s)
    doubted = [name for name, share in believed.items() if share < announced.DOUBTED]
    heard = valid.filter(pc.invert(pc.is_in(valid["queue"], value_set=pa.array(doubted, pa.string()))))
    return dataclasses.replace(
        files_of_inputs(tables, heard, as_of_s, believed),
        n_stale=pc.sum(is_stale).as_py() or 0,
        n_doubted=valid.num_rows - heard.num_rows,
    )
