"""Step `prefill`: fetch the files that a task will read, at once."""

import contextlib
import dataclasses
import hashlib
import itertools
import time
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from features.common.errors import ConflictError, InputError
from features.common.progress import Advance
from features.common.times import as_of_label, day_label, parse_as_of
from features.schema import PLANS, QUEUE, arrow_schema
from jobs.ground.settings.tree import Settings
from jobs.ground.store.commits import MomentKey
from jobs.ground.store.tables import Tables
from jobs.loop.ingest.announced import PREFILLS
from jobs.loop.ingest.queue import check_state, fold_prefills, write
from jobs.loop.ingest.queue_entries import Checked, check_entries
from jobs.loop.ingest.queued_files import Queued, files_of_inputs
from jobs.loop.ingest.queues.answers import entries_of, read_answer
from jobs.loop.ingest.queues.place import Place
from jobs.loop.ingest.sources.local import check_answers
from jobs.loop.plan.cache_state import CacheAtMoment
from jobs.loop.plan.items import items
from jobs.loop.plan.planner import limits
from jobs.loop.push import push
from prefetch.actions import Action
from prefetch.plan.lists import Case
from prefetch.plan.planner import Prefill, prefill
from prefetch.plan.scores import Chances, certain
from prefetch.plan.value import absent, on_disk
from prefetch.push.push import PushSummary

_COMMENT = "#"


@dataclasses.dataclass(frozen=True)
class PrefillRequest:
    """The inputs of a task: datasets and files, read by `n_jobs` jobs from `starts_s` on (None: soon)."""

    datasets: Sequence[str]
    files: Sequence[str]
    n_jobs: int = 1
    starts_s: int | None = None


@dataclasses.dataclass(frozen=True)
class PrefillSummary:
    """Summary of a prefill; `pushed`: that of its push, None for a dry run.

    `files`, `bytes`: of the request, by the files table; `on_disk`: files in the cache, pinned from now on;
    `unknown`: requested names that the files table lacks; `left_out`: files by reason; `bound_by`: the limit
    that kept more from being fetched.
    """

    cache: str
    as_of: str
    queue: str
    files: int
    bytes: int
    on_disk: int
    prefetch: int
    prefetch_bytes: int
    unknown: int
    left_out: dict[str, int]
    bound_by: str
    pushed: PushSummary | None


def listed(path: Path) -> list[str]:
    """The names in a file, one per line; lines that begin with # are ignored. Raises InputError."""
    check_answers(str(path))
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read the list {path}: {error}") from None
    return [name for line in lines if (name := line.strip()) and not name.startswith(_COMMENT)]


def with_described(request: PrefillRequest, path: Path, as_of_s: int) -> PrefillRequest:
    """`request` with the inputs that jobs of a description name, as a queue would. Raises InputError."""
    raw = read_answer(str(path), token="", timeout_s=0)
    checked = check_entries(entries_of(raw, "auto", Place(as_of_s)), as_of_s=as_of_s, stale_s=1)
    if not checked.rows:
        why = next(iter(checked.refused), "no job")
        raise InputError(f"{path} describes no job that reads data: {why}")
    inputs = [(str(row["input"]), bool(row["is_dataset"])) for row in checked.rows.values()]
    return dataclasses.replace(
        request,
        datasets=[*request.datasets, *(name for name, is_dataset in inputs if is_dataset)],
        files=[*request.files, *(name for name, is_dataset in inputs if not is_dataset)],
    )


class TakenError(InputError):
    """The cache has a plan of the same time."""

    def __init__(self, key: MomentKey) -> None:
        super().__init__(
            f"cache {key.owner!r} has a plan at {key.as_of}; give another --as-of, "
            "or resume it: cachecast push run"
        )


def run_now(
    settings: Settings, request: PrefillRequest, *, cache: str, from_s: int, on_progress: Advance
) -> PrefillSummary:
    """`run` at `from_s`, or at the first second after it that no other plan of the cache has."""
    for at_s in itertools.count(from_s):
        time.sleep(max(0.0, at_s - time.time()))
        with contextlib.suppress(TakenError):
            return run(settings, request, cache=cache, as_of_s=at_s, dry_run=False, on_progress=on_progress)
    raise AssertionError


def run(
    settings: Settings,
    request: PrefillRequest,
    *,
    cache: str,
    as_of_s: int,
    dry_run: bool,
    on_progress: Advance,
) -> PrefillSummary:
    """Fetch the files of `request` into a cache within its limits; later plans keep them.

    A dry run writes nothing. Raises InputError if the request names nothing usable, or if the cache has a
    plan of the same time.
    """
    check_state(settings)
    tables, key = Tables.of(settings), MomentKey.at(as_of_s, cache)
    plans = tables.head(PLANS)
    if not dry_run and key in plans.partitions:
        raise TakenError(key)
    moment = CacheAtMoment.asked(settings, cache, as_of_s)
    # Repeating a request replaces its earlier entries.
    text = "\n".join([cache, *sorted(request.datasets), "", *sorted(request.files)])
    name = PREFILLS + hashlib.sha256(text.encode()).hexdigest()[:12]
    entries = _entries(request, name, as_of_s, settings.queue.stale)
    requested = pa.Table.from_pylist(list(entries.rows.values()), arrow_schema(QUEUE))
    requested = requested.append_column("queue", pa.repeat(pa.scalar(name), requested.num_rows))
    queued = files_of_inputs(tables, requested, as_of_s)
    if not queued.files.num_rows:
        raise InputError(
            f"the files table knows none of the {len(entries.rows)} names asked for; pull the catalogue "
            "first, or write them as scope:name"
        )
    planned, dids, origins = _planned(moment, queued)
    rows = items(
        planned.plan,
        dids,
        origins,
        moment.paths,
        key=key,
        as_of_s=as_of_s,
        horizon_s=settings.plan.horizon,
        model=None,
        queued=queued,
    )
    pushed = None
    if not dry_run:
        for row in entries.rows.values():
            row["cache"] = cache
        try:
            write(tables, entries, queue=name, source="prefill", as_of_s=as_of_s)
            if rows.num_rows:  # an empty plan would say that nothing is to be done
                tables.replace_partition(PLANS, rows, key, base=plans)
        except ConflictError:
            raise TakenError(key) from None
        fold_prefills(tables, min(as_of_s, int(time.time())))
        if rows.num_rows:
            pushed = push.run(settings, cache=cache, as_of_s=as_of_s, on_progress=on_progress)
        else:
            pushed = push.resume(settings, cache=cache, on_progress=on_progress)
    plan = planned.plan
    return PrefillSummary(
        cache=key.owner,
        as_of=key.as_of,
        queue=name,
        files=queued.files.num_rows,
        bytes=int(queued.files["size_bytes"].to_numpy().sum()),
        on_disk=plan.of(Action.PIN).size,
        prefetch=plan.of(Action.PREFETCH).size,
        prefetch_bytes=plan.bytes_of(Action.PREFETCH),
        unknown=queued.n_unknown,
        left_out=planned.left_out,
        bound_by=plan.bound_by[Action.PREFETCH],
        pushed=pushed,
    )


def _entries(request: PrefillRequest, name: str, as_of_s: int, stale_s: int) -> Checked:
    starts = {} if request.starts_s is None else {"expected_start": as_of_label(request.starts_s)}
    job = {"job_id": name, "work": name, "n_jobs": request.n_jobs, **starts}
    raw = [job | {"dataset": name} for name in request.datasets] + [job | {"file": f} for f in request.files]
    if not raw:
        raise InputError("nothing is asked for; give --dataset, or --files with a list that names some")
    entries = check_entries(raw, as_of_s=as_of_s, stale_s=stale_s)
    if entries.refused:
        reason = next(iter(entries.refused))
        raise InputError(f"{entries.samples[reason]} cannot be used: {reason}")
    return entries


def _planned(moment: CacheAtMoment, queued: Queued) -> tuple[Prefill, pa.Array, pa.Table]:
    plan, requested = moment.settings.plan, queued.files["did"].combine_chunks()
    of_request = set(requested.to_pylist())
    # The rest of a file that is held in part is fetched.
    held = [file for file in moment.inventory if file.complete or moment.dids[file.name] not in of_request]
    dids, index = moment.with_held(requested, held)
    files, budget, origins = moment.facts(dids)
    state = moment.state(held, index)
    scores = certain(queued.of(dids), as_of_s=moment.as_of_s, horizon_s=plan.horizon)
    chances = Chances(scores, 0)
    disk = on_disk(state, scores, files, plan.objective, chances, recent_s=moment.cycle_s)
    candidates = absent(state, scores, files, plan.objective, chances)
    bounds = dataclasses.replace(limits(plan, moment.cycle_s, budget), evicts=not moment.cache.steward)
    case = Case(state, scores, files, bounds, disk, candidates)
    return prefill(case, _fetched_bytes(moment)), dids, origins


def _fetched_bytes(moment: CacheAtMoment) -> int:
    """What prefills of the last cycle fetch: many together are bounded as one is."""
    since_s, plans = moment.as_of_s - moment.cycle_s, moment.tables.head(PLANS)
    keys = plans.select(since=day_label(since_s), until=day_label(moment.as_of_s), owner=moment.cache.name)
    recent = (key for key in keys if since_s < parse_as_of(key[1]) < moment.as_of_s)
    rows = plans.rows_of(recent, ["cost_bytes", "model_version"])
    return pc.sum(rows["cost_bytes"].filter(pc.is_null(rows["model_version"]))).as_py() or 0
