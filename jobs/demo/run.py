"""The demo: the steps of the loop, one after the other, by the same functions as the commands."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from features.times import DAY_S, day_label
from jobs import model_steps, steps, what_if
from jobs.cli import console
from jobs.demo import summary
from jobs.demo.caches import running
from jobs.demo.serve import Reads, serve
from jobs.demo.site import fresh
from jobs.demo.walk import Walk
from jobs.simulate import workload as workload_job

HISTORY_DAYS, WARM_DAYS = 30, 6
TRAIN_EVERY_S = 12 * 3600
FRACTIONS = (0.05, 0.1, 0.2)
POLICIES = ("lru", "lru+plan", "clairvoyant")


def run(out: Path, *, seed: int, conf: Path | None, tables: str | None, as_json: bool) -> None:
    """Run the loop in folder `out`; the plan is made for today (UTC), on the 30 days before it.

    `conf`: settings that the demo's own are laid over; `tables`: root of the tables, else below `out`.
    """
    now = int(time.time())
    walk = Walk(fresh(out, base=conf, tables=tables), as_of_s=now - now % DAY_S, quiet=as_json)
    reads = _records(walk, seed)
    _features(walk)
    models = _train(walk)
    replays = _replay(walk)
    with running(walk.site) as cache:
        told = serve(walk, cache, reads)
    page = walk.site.out / "report.html"
    with walk.step("report"):
        steps.report(walk.settings, out=page)
    if as_json:
        answer = {"replays": replays, "models": models, **told, "seconds": walk.seconds, "report": str(page)}
        console.show(answer, as_json=True)
    else:
        summary.show(walk, replays, told, page)


def _records(walk: Walk, seed: int) -> Reads:
    raw, today = walk.site.raw, day_label(walk.as_of_s)
    with walk.step("access records") as advance:
        advance(0, 3, "generating raw records")
        first_s = walk.as_of_s - HISTORY_DAYS * DAY_S
        config = workload_job.load("demo", start_s=first_s, seed=seed, days=HISTORY_DAYS + 1)
        month = workload_job.run(config, out=raw, raw=True)
        # What happens after the plan is not known to it: it stays out of the folder that is pulled.
        future = raw / f"future.{today}.jsonl"
        (raw / "traces" / f"traces.{today}.jsonl").rename(future)
        advance(1, 3, "pulling Rucio traces")
        reads = steps.pull(walk.settings, source="rucio_traces", path=month.traces, day_s=walk.as_of_s)
        advance(2, 3, "pulling the files catalogue")
        files = steps.pull(walk.settings, source="rucio_files", path=month.catalogue, day_s=walk.as_of_s)
    n_rejected = sum(reads.n_rejected.values()) + sum(files.n_rejected.values())
    walk.tell(
        f"{reads.n_new:,} reads of {HISTORY_DAYS} days, {files.n_new:,} files, {n_rejected} rows refused"
    )
    return Reads.around(raw / "traces" / f"traces.{day_label(walk.as_of_s - DAY_S)}.jsonl", future)


def _features(walk: Walk) -> None:
    begin = walk.as_of_s - (HISTORY_DAYS - WARM_DAYS) * DAY_S
    as_ofs = [*range(begin, walk.held_out_s, TRAIN_EVERY_S), *walk.held_out_cycles]
    with walk.step("features"):
        written = steps.features(walk.settings, as_ofs=as_ofs)
    walk.tell(f"{written.rows:,} rows at {written.as_ofs} moments, in one Spark pass")


def _train(walk: Walk) -> Any:
    with walk.step("training") as advance:
        report = model_steps.train(walk.settings, until_s=walk.held_out_s, on_progress=advance)
    summary.models(walk, report.models)
    with walk.step("predictions"):
        scored = model_steps.predict(walk.settings, as_ofs=walk.held_out_cycles)
    walk.tell(f"{scored.rows:,} predictions at {scored.as_ofs} moments")
    return report.models


def _replay(walk: Walk) -> list[dict[str, object]]:
    with walk.step("replay") as advance:
        return what_if.replay(
            walk.settings,
            None,
            policies=POLICIES,
            capacities=[],
            fractions=FRACTIONS,
            first_day_s=walk.held_out_s,
            last_day_s=walk.as_of_s - DAY_S,
            on_progress=advance,
        ).rows
