"""The demo: the steps of the loop in order, by the same functions as the commands."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from features.common.errors import ServiceError
from features.common.names import names_of
from features.common.progress import Advance, unwatched
from features.common.times import DAY_S, HOUR_S, day_label
from features.schema import FILES, PREDICTIONS, RECEIPTS
from jobs.ground import text
from jobs.ground.caches.inventory import target
from jobs.ground.store import generated
from jobs.ground.text import Row, as_row, select
from jobs.local_site.demo import pair
from jobs.local_site.demo.pair import answers_of, section
from jobs.local_site.demo.site import Demo, Screen, fresh
from jobs.local_site.demo.xcache import NAME, DemoCache, read_all, running
from jobs.loop.ingest import pull
from jobs.loop.outcomes import outcomes
from jobs.loop.plan import plan
from jobs.loop.push import push
from jobs.loop.train import features, predict, training
from jobs.operator.site_report import build
from jobs.pages.verdicts import savings
from jobs.studies.simulate import replay_trace, site_replay, workload
from jobs.studies.simulate.accesses import Accesses
from jobs.studies.simulate.replay_trace import Caches
from models.serving.mlflow_session import connect
from prefetch.actions import Action, ItemState
from replay.comparison import PLAN

UNPROVEN = (
    "pushed with --unproven: the demo promotes no model, because a month of records is too short to train "
    "one and prove it on the days after"
)
READS_BEFORE, READS_AFTER = 700, 400  # reads of jobs: the last before the plan, and the first after it
PARTS = 5  # today's reads are made in this many parts, each followed by a push and a purge
HISTORY_DAYS, WARM_DAYS = 30, 6
FRACTIONS = (0.05, 0.1, 0.2)
POLICIES = ("lru", "lru+plan", "clairvoyant")


@dataclasses.dataclass(frozen=True)
class Reads:
    """Names of the files that jobs read before and after the time of the plan, in order.

    `after_s`: time from the plan to the last of the reads after it, in the recorded traces.
    """

    before: Sequence[str]
    after: Sequence[str]
    after_s: int

    @classmethod
    def around(cls, yesterday: Path, today: Path, *, midnight_s: int) -> Reads:
        """The reads around midnight, from two days' raw traces."""
        earlier, later = (pd.read_json(traces, lines=True) for traces in (yesterday, today))
        later = later.head(READS_AFTER)
        return cls(
            before=earlier["filename"].tolist()[-READS_BEFORE:],
            after=later["filename"].tolist(),
            after_s=int(later["transferStart"].max()) - midnight_s,
        )


def plan_and_push(demo: Demo, cache: DemoCache, reads: Reads) -> dict[str, Any]:
    """Warm the cache, plan, push, account what today's jobs then read; return the answer of each step."""
    with demo.step("plan") as advance:
        advance(0, 4, "files at the origin")
        region = demo.settings.region.name
        predicted = demo.tables.read_arrow(PREDICTIONS, as_of=demo.as_of, owner=region, columns=["did"])
        files = demo.tables.read_arrow(FILES, columns=["did", "name", "size_bytes"])
        is_read = pc.is_in(files["name"], value_set=pa.array({*reads.before, *reads.after}, pa.string()))
        is_predicted = pc.is_in(files["did"], value_set=pc.unique(predicted["did"]))
        rows = files.filter(pc.or_(is_read, is_predicted))
        cache.add_files(dict(zip(rows["name"].to_pylist(), rows["size_bytes"].to_pylist(), strict=True)))
        advance(1, 4, "yesterday's jobs read")
        read_all(cache, reads.before)
        advance(2, 4, "the cache purges")
        cache.purge()
        advance(3, 4, "deciding")
        planned = plan.run(demo.settings, cache=NAME, as_of_s=demo.as_of_s)
    with demo.step("push") as advance:
        pushed = _push(demo, advance)
    demo.show_result(f"to {cache.kind}; {UNPROVEN}")
    with demo.step("outcomes") as advance:
        # A site's cache purges a few percent at a time, and pushes keep the pins out of their reach. This one
        # takes in days within seconds, each part about a fifth of what it holds: read in one part, it would
        # grow to three times its limit, and purge what was used moments ago.
        length = -(-len(reads.after) // PARTS)
        for n in range(PARTS):
            advance(n, PARTS + 1, "today's jobs read")
            read_all(cache, reads.after[n * length : (n + 1) * length])
            last = _push(demo, unwatched)
            cache.purge()
        purge = _check_purge(demo)
        advance(PARTS, PARTS + 1, "the cache's records")
        records = pull.run(
            demo.settings, source="xcache_gstream", path=str(cache.gstream), day_s=demo.as_of_s
        )
        earned = outcomes.of_plan(demo.settings, cache=NAME, as_of_s=demo.as_of_s)
    hours = f"the first {reads.after_s / HOUR_S:.1f} h of the plan's day"
    demo.show_result(f"{len(reads.after)} reads, {hours}; {earned.in_words}")
    return {
        "plan": planned,
        "push": pushed,
        "last push": last,
        "purge": purge,
        "records": records,
        "outcomes": earned,
    }


def _push(demo: Demo, advance: Advance) -> Any:
    return push.run(demo.settings, cache=NAME, as_of_s=demo.as_of_s, on_progress=advance, unproven=True)


def _check_purge(demo: Demo) -> dict[str, int]:
    """The inventory after a purge. Raises ServiceError if a pinned file was purged."""
    held = {file.name for file in target(demo.settings.cache(NAME)).inventory()}
    receipts = demo.tables.read_arrow(RECEIPTS, as_of=demo.as_of, owner=NAME)
    receipts = receipts.filter(pc.equal(receipts["state"], ItemState.DONE)).combine_chunks()
    actions, names = receipts["action"].to_pylist(), names_of(receipts["did"]).to_pylist()
    done = list(zip(actions, names, strict=True))
    pinned = {name for action, name in done if action == Action.PIN}
    if lost := pinned - held:
        raise ServiceError(
            f"the purge took {len(lost)} of {len(pinned)} pinned files, {min(lost)} among them"
        )
    counts = {"held_files": len(held), "pinned_files": len(pinned), "pinned_files_lost": len(lost)}
    return counts | {"evicted_files": sum(action == Action.EVICT for action, _ in done)}


def run(out: Path, *, seed: int, conf: Path | None, tables: str | None, screen: Screen) -> dict[str, Any]:
    """Run the loop in folder `out`; the plan is made for today (UTC), from the 30 days before it.

    `conf`: settings that the demo's own override; `tables`: root of the tables, by default below `out`.
    """
    now = int(time.time())
    demo = Demo(fresh(out, base=conf, tables=tables), as_of_s=now - now % DAY_S, screen=screen)
    reads = _records(demo, seed)
    begin = demo.as_of_s - (HISTORY_DAYS - WARM_DAYS) * DAY_S
    # At every hour at which plans are made: a model that knows only some hours expects their reads at all.
    as_ofs = range(begin, demo.as_of_s + 1, demo.settings.features.cycle)
    with demo.step("features"):
        done = features.run(demo.settings, as_ofs=as_ofs)
    demo.show_result(f"{done.rows:,} rows at {done.as_ofs} decision times, in one pass")
    models = _train(demo)
    replays = _replay(demo)
    with running(demo.site) as cache:
        answers = plan_and_push(demo, cache, reads)
    caches, page = demo.site.out / "side-by-side", demo.site.out / "report.html"
    with demo.step("side by side") as advance:
        both = pair.run(caches, seed=seed, base=conf, on_progress=advance)
    with demo.step("report"):
        answer, *_ = answers_of(both)
        first = section(both, caches)
        build.run(demo.settings, out=page, answers=[answer], first=[first], note=f"The plan was {UNPROVEN}")
    _show(demo, replays, answers, page)
    demo.screen.table(first.rows, first.title)
    for line in answers_of(both):
        demo.screen.line(line)
    return {
        "replays": replays,
        "models": models,
        **answers,
        "seconds": demo.seconds,
        "report": str(page),
        "side by side": both,
    }


def _records(demo: Demo, seed: int) -> Reads:
    raw, today = demo.site.out / "raw", day_label(demo.as_of_s)
    with demo.step("access records") as advance:
        advance(0, 3, "generating raw records")
        first_s = demo.as_of_s - HISTORY_DAYS * DAY_S
        config = workload.load("demo", start_s=first_s, seed=seed, days=HISTORY_DAYS + 1)
        generated.mark(demo.tables, workload.label(config))
        month = workload.write(config, out=raw, raw=True)
        # The plan must not know the reads after it: they stay out of the folder that is pulled.
        future = raw / f"future.{today}.jsonl"
        (raw / "traces" / f"traces.{today}.jsonl").rename(future)
        advance(1, 3, "pulling Rucio traces")
        reads = pull.run(demo.settings, source="rucio_traces", path=month.traces, day_s=demo.as_of_s)
        advance(2, 3, "pulling the files catalogue")
        files = pull.run(demo.settings, source="rucio_files", path=month.catalogue, day_s=demo.as_of_s)
    n_rejected = sum(reads.n_rejected.values()) + sum(files.n_rejected.values())
    demo.show_result(
        f"{reads.n_new:,} reads of {HISTORY_DAYS} days, {files.n_new:,} files, {n_rejected} rows refused"
    )
    yesterday = raw / "traces" / f"traces.{day_label(demo.as_of_s - DAY_S)}.jsonl"
    return Reads.around(yesterday, future, midnight_s=demo.as_of_s)


def _train(demo: Demo) -> Any:
    with demo.step("training") as advance:
        report = training.run(demo.settings, until_s=demo.held_out_s, on_progress=advance)
    demo.screen.table([select(as_row(row), text.MODEL_COLUMNS) for row in report.models])
    cycles = range(demo.held_out_s, demo.as_of_s + 1, demo.settings.features.cycle)
    with demo.step("predictions"):
        scored = predict.run(demo.settings, as_ofs=cycles)
    demo.show_result(f"{scored.rows:,} predictions at {scored.as_ofs} decision times")
    return report.models


def _replay(demo: Demo) -> list[dict[str, object]]:
    with demo.step("replay") as advance:
        caches = Caches(
            policies=POLICIES,
            capacities=(),
            fractions=FRACTIONS,
            watermarks=demo.settings.replay.watermarks,
            purge_interval_s=demo.settings.replay.purge_interval,
        )
        answer = site_replay.run(
            demo.settings, caches, Accesses(None, demo.held_out_s, demo.as_of_s - DAY_S), on_progress=advance
        )
        days = {"from": day_label(demo.held_out_s), "to": day_label(demo.as_of_s - DAY_S)}
        replay_trace.record_run(
            demo.settings.mlflow,
            answer,
            what=f"{days['from']} to {days['to']}, the demo",
            params={"trace": "the demo's", **days, **caches.params, **site_replay.planned_by(demo.settings)},
        )
        return answer.rows


def _show(demo: Demo, replays: Sequence[Row], answers_by_step: Mapping[str, Any], page: Path) -> None:
    screen = demo.screen
    screen.table([select(row, text.REPLAY_COLUMNS) for row in replays], "Replay of the held-out week")
    for name, answer in answers_by_step.items():
        facts = ", ".join(
            f"{key.replace('_', ' ')} {text.text(key, value)}"
            for key, value in as_row(answer).items()
            if key not in ("cache", "as_of")
        )
        screen.line(f"{name}: {facts}")
    screen.table([{"step": name, "seconds": s} for name, s in demo.seconds.items()], "Time")
    screen.line(f"The plan was {UNPROVEN}.")
    for line in savings(replays, "capacity_bytes", (PLAN,)):
        screen.line(line)
    screen.line(f"Page:  {page}")
    mlflow = demo.settings.mlflow
    _, experiment_id = connect(mlflow.uri, mlflow.artifacts, mlflow.experiment)
    screen.line(f"Runs:  .venv/bin/mlflow ui --backend-store-uri {mlflow.uri}   then")
    screen.line(
        f"       http://127.0.0.1:5000/#/experiments/{experiment_id}/runs?workflowType=machine_learning"
    )
