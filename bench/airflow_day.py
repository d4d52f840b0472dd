"""A day by a real Airflow, on HDFS, MLflow and XCache: what comes late, is short, is killed, or stands still.

Starts `cachecast up --hdfs` in a folder of its own, and lets Airflow's scheduler do the rest, in cycles of
four hours:

1. The schedule's own run. Then a week: days out of order by the DAG `backfill`, and the last hours backwards
   by Airflow's own backfill of `pull_accesses`. The features are compared with those that the steps of the
   command line compute in order on a folder.
2. `train_models`, for a first champion; then a training that does not end while the next cycle runs, from the
   pull to the push into the XCache. In that cycle `cachecast features` is killed once.
3. The same decision time again: nothing is pushed twice. One that was overtaken: nothing is done for it.
4. An evaluation that is killed, and tried again.
5. A pull of nothing, one whose records come late, while it waits, and one with half of its rows damaged.
6. Three decision times at a cache that stops as the first is pushed: only the newest acts when it goes on.
7. `backfill` judges the decision time anew whose records have come since.
8. The chain by `airflow dags test`, its Spark steps by SparkSubmitOperator on a connection.

Exit code 1 if anything is not as it should be. It waits for the next cycle if the present one ends soon.

Needs the environment that `make verify` makes: .venv/bin/python bench/airflow_day.py
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from airflow_pulls import damaged_pull, empty_pull, late_pull, pushed, stopped_cache
from airflow_site import (
    CYCLE_S,
    N_MOMENTS,
    WITHIN_S,
    Site,
    check,
    deployment,
    failures,
    features,
    wait_for_flags,
)
from commands import awaited, held, killed
from unproven import promote

from features.common.times import DAY_S, as_of_label, day_label, parse_as_of, parse_day
from features.results import EVALUATIONS, PROMOTIONS
from features.schema import OUTCOMES, RECEIPTS
from jobs.cli.parsing import moments as moments_of
from jobs.ground.settings.tree import Settings
from jobs.loop.ingest import pull
from jobs.loop.train import features as feature_job
from jobs.loop.trainings import promoted_models
from models.serving.versions import CHAMPION

PIECE_DAYS, N_BACKWARDS = 3, 3
ENDS_SOON_S = 3000
EVALUATED_DAYS = 2
SPARK_STEPS = {"pull_accesses": 2, "build_features": 1, "place_and_push": 1, "verify_outcomes": 0}
"""Steps of the chain's DAGs that are submitted where `[airflow] spark` says so."""


def in_a_process(work: Callable[..., None], *arguments: object) -> None:
    """Do `work` with a session of Spark of its own, which ends with it."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
        process.submit(work, *arguments).result()


def catalogue(roots: list[str], path: Path, day: str) -> None:
    """The files into the tables at each of `roots`."""
    for root in roots:
        settings = Settings.load(tables=root)
        pull.run(settings, source="rucio_files", path=str(path), day_s=parse_day(day))


def in_order(days: list[str], last: list[int], folder: str) -> None:
    """The week by the steps of the command line, in a folder; `last`: the decision times of its last day."""
    settings = Settings.load(tables=folder)
    for source, path in settings.airflow.pull.items():
        pull.run(settings, source=source, path=path, day_s=parse_day(days[0]), new_only=True)
    for day in days[:-1]:
        feature_job.run(settings, as_ofs=moments_of(settings, None, day))
    feature_job.run(settings, as_ofs=last)


def by_schedule(site: Site) -> None:
    """The run of the present cycle, which Airflow starts by itself; before any record, it starts nothing."""
    site.api.until_known("pull_accesses", within_s=600)
    site.succeeded("pull_accesses", site.api.partition("pull_accesses", site.keys[-1], within_s=600))


def week(site: Site, folder: str) -> None:
    """Fill the week in out of order and backwards, and compare with what comes in order."""
    site.api.until_known("backfill", "build_features", within_s=600)
    filled = site.days[:-1]
    for first in random.Random(7).sample(range(0, len(filled), PIECE_DAYS), -(-len(filled) // PIECE_DAYS)):
        piece = filled[first : first + PIECE_DAYS]
        run = site.api.trigger("backfill", conf={"first": piece[0], "last": piece[-1]})
        site.succeeded("backfill", run)
    end_s = parse_day(site.days[-1]) + DAY_S
    last = [end_s - n * CYCLE_S for n in range(N_BACKWARDS, 0, -1)]
    for at_s in last:
        site.flag(at_s)
    span = ["--from-date", as_of_label(last[0]), "--to-date", as_of_label(last[-1])]
    answer = site.airflow("backfill", "create", "--dag-id", "pull_accesses", *span, "--run-backwards")
    check(f"airflow backfill create: exit code {answer.returncode}", answer.returncode == 0)
    if answer.returncode:
        print(answer.stdout[-2000:], answer.stderr[-2000:])
    for at_s in last:
        for dag in ("pull_accesses", "build_features"):
            site.succeeded(dag, site.api.partition(dag, as_of_label(at_s), within_s=WITHIN_S))
    in_a_process(in_order, site.days, last, folder)
    by_airflow, straight = (features(site.settings, root) for root in (site.settings.tables.root, folder))
    what = f"a week filled in out of order on HDFS equals one in order: {straight.num_rows} rows"
    check(what, straight.num_rows > 0 and by_airflow.equals(straight))


def first_champion(site: Site) -> None:
    """A training, whose candidate serves as if it had won: a week is too short to prove it."""
    key = as_of_label(site.moments[0] - site.moments[0] % DAY_S)
    site.api.until_known("train_models", within_s=600)
    site.succeeded("train_models", site.api.trigger("train_models", conf={"as_of": key}))
    promote(site.settings)


def cycle_beside_a_training(site: Site) -> None:
    """A cycle from pull to push, with a step killed, while a training does not end."""
    key, since = site.keys[0], len(site.webhook.messages)
    site.api.until_known("place_and_push", "verify_outcomes", within_s=600)
    training = site.api.trigger("train_models", conf={"as_of": key})
    with held(awaited("cachecast train", within_s=WITHIN_S)):
        killer = threading.Thread(
            target=killed,
            args=(f"cachecast features --as-of {key}",),
            kwargs={"within_s": WITHIN_S, "after_s": 3},
            daemon=True,
        )
        killer.start()
        site.deliver(site.moments[0])
        site.api.trigger("pull_accesses", partition_key=key)
        tasks = site.chain(key)
        state = site.api.state("train_models", training)
        check(f"the cycle went on beside a training: {state}", state == "running")
    site.succeeded("train_models", training)
    killer.join(1)
    built = site.api.tasks("build_features", site.api.partition("build_features", key, within_s=60))
    n_tries = int(str(built["features", -1]["try_number"]))
    check(f"the killed step was tried again: try {n_tries}", n_tries > 1 and not killer.is_alive())
    check(
        "and no alarm was sent",
        not [message for message in site.webhook.messages[since:] if message["state"] == "firing"],
    )
    check(
        "no report goes to Rucio for a cache without an RSE",
        tasks["cache.rucio_sync", 0]["state"] == "skipped",
    )
    check("a queue is not asked for a past cycle", tasks["queue_site", -1]["state"] == "skipped")
    site.succeeded("verify_outcomes", site.api.partition("verify_outcomes", key, within_s=WITHIN_S))
    pushed(site, key)


def repeated(site: Site) -> None:
    """The decision time once more, the one before it, and what the pushed files earned."""
    key = site.keys[0]
    before = {row["item_id"]: row["updated_at"] for row in site.rows(RECEIPTS, key)}
    site.succeeded("place_and_push", site.api.trigger("place_and_push", partition_key=key))
    after = {row["item_id"]: row["updated_at"] for row in site.rows(RECEIPTS, key)}
    same = sum(after.get(item) == at for item, at in before.items())
    check(f"again: {same} of {len(before)} receipts as they were", bool(before) and same == len(before))
    old = as_of_label(parse_as_of(key) - DAY_S)
    tasks = site.succeeded("place_and_push", site.api.trigger("place_and_push", partition_key=old))
    acted(tasks, "a decision time that was overtaken")
    run = site.api.trigger("verify_outcomes", conf={"as_of": key, "days": 0})
    site.succeeded("verify_outcomes", run)
    n_outcomes = len(site.rows(OUTCOMES, key))
    check(f"{n_outcomes} outcomes", n_outcomes > 0)


def acted(tasks: dict[tuple[str, int], dict[str, object]], what: str) -> None:
    """Check that a run of `place_and_push` did nothing."""
    done = [name for (name, _), task in tasks.items() if task["state"] != "skipped"]
    check(f"{what} is skipped: {done} ran", done == ["known_work"])


def killed_evaluation(site: Site) -> None:
    """An evaluation that is killed on the way, of days too few to promote: the champion stays."""
    region = site.settings.region.name
    champion = promoted_models(site.tables, region=region)[CHAMPION]
    site.api.until_known("evaluate_and_promote", within_s=600)
    key = as_of_label(site.moments[0] - site.moments[0] % DAY_S)
    run = site.api.trigger("evaluate_and_promote", conf={"as_of": key, "days": EVALUATED_DAYS})
    killed("cachecast evaluate", within_s=WITHIN_S, after_s=8)
    tasks = site.succeeded("evaluate_and_promote", run)
    n_tries = int(str(tasks["evaluate", -1]["try_number"]))
    check(f"the killed evaluation was tried again: try {n_tries}", n_tries > 1)
    n_rows = site.tables.read_arrow(EVALUATIONS).num_rows
    check(f"{n_rows} rows of evaluations", n_rows > 0)
    decided = site.tables.newest(PROMOTIONS, owner=region)
    (row,) = site.tables.read_arrow(PROMOTIONS, as_of=next(iter(decided.partitions))[1]).to_pylist()
    check(f"two days promote nothing: {row['action']}", row["action"] == "refuse")
    check(
        "the champion stays",
        promoted_models(site.tables, region=region)[CHAMPION].version == champion.version,
    )


def alarms() -> set[tuple[str, str]]:
    """The alarms of `cachecast status`, and what each is about; they make its exit code 1."""
    command = [sys.executable, "-m", "jobs", "status", "--json"]
    printed = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    return {(alarm["name"], alarm["about"]) for alarm in json.loads(printed)["alarms"]}


def completed(site: Site) -> None:
    """The records that were missing are there: a backfill judges their decision time anew."""
    short = site.moments[1]
    check(f"traces of {site.keys[1]} are still incomplete", "0 reads" in site.arrivals(short))
    day = day_label(short)
    site.succeeded("backfill", site.api.trigger("backfill", conf={"first": day, "last": day}))
    check(f"they are not any more: {site.arrivals(short)!r}", "reads in" not in site.arrivals(short))
    failed = [message for message in site.webhook.messages if message["event"] == "task failed"]
    check(f"no task gave up: {[(task['dag'], task['task']) for task in failed]}", not failed)
    silent = site.n_messages("xcache_gstream", "firing")
    check(f"a source that is silent all day has one alarm: {silent}", silent == 1)
    pairs = alarms()
    late = [name for name, _ in pairs if name.endswith("-late") or name.startswith("not-")]
    check(f"status: nothing is late, {sorted(pairs)}", not late and ("incomplete", "xcache_gstream") in pairs)


def by_dags_test(site: Site) -> None:
    """The chain by `airflow dags test`, with spark-submit: the same features."""
    key, before = site.keys[-1], features(site.settings, site.settings.tables.root)
    connection = json.dumps({"conn_type": "spark", "host": "local[2]"})
    submit = {"CACHECAST_AIRFLOW__SPARK": "spark_site", "AIRFLOW_CONN_SPARK_SITE": connection}
    for dag in SPARK_STEPS:  # else the scheduler takes tasks of these runs, too
        site.api.call("PATCH", f"dags/{dag}", is_paused=True)
    for dag, n_spark in SPARK_STEPS.items():
        begun = time.monotonic()
        done = site.airflow("dags", "test", dag, "-c", json.dumps({"as_of": key}), **submit)
        n_submitted = done.stdout.count("Spark-Submit cmd")
        took = f"{time.monotonic() - begun:.0f} s, {n_submitted} submitted"
        check(f"airflow dags test {dag}: {took}", (done.returncode, n_submitted) == (0, n_spark))
        if done.returncode:
            print(done.stdout[-1000:], done.stderr[-1000:])
    same = features(site.settings, site.settings.tables.root).equals(before)
    check("spark-submit gives the same features", same)


def day_of_moments() -> list[int]:
    """The decision times of the day, until the start of the present cycle, which does not end soon."""
    if (left_s := CYCLE_S - time.time() % CYCLE_S) < ENDS_SOON_S:
        print(f"the present cycle ends in {left_s:.0f} s: waiting for the next one", flush=True)
        time.sleep(left_s)
    newest = int(time.time()) // CYCLE_S * CYCLE_S
    return [newest - n * CYCLE_S for n in range(N_MOMENTS - 1, -1, -1)]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.parse_args()
    moments = day_of_moments()
    with tempfile.TemporaryDirectory(prefix="cachecast-day-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o755)  # the XRootD servers are another user
        with deployment(folder, moments) as site:
            by_schedule(site)
            wait_for_flags(site)
            site.write_records()
            roots = [site.settings.tables.root, str(folder / "in-order")]
            in_a_process(catalogue, roots, site.out / "files" / "files.jsonl", site.days[0])
            site.queue_jobs(folder / "queue.json")
            site.warm()
            week(site, roots[1])
            first_champion(site)
            cycle_beside_a_training(site)
            repeated(site)
            killed_evaluation(site)
            empty_pull(site)
            late_pull(site)
            damaged_pull(site)
            stopped_cache(site)
            completed(site)
            by_dags_test(site)
    if time.time() >= moments[-1] + CYCLE_S:
        failures.append("the cycle ended meanwhile, and its next run may have overtaken the last one")
    if failures:
        sys.exit("\n".join([f"{len(failures)} of the promises do not hold", *failures]))


if __name__ == "__main__":
    main()
