"""A whole day by a real Airflow, on HDFS, MLflow and XCache; a week out of order; a killed step.

Starts `cachecast up --hdfs` in a folder of its own, and lets Airflow do the rest:

1. `backfill`, a week in pieces and out of order; the features are compared with those that the steps of the
   command line compute in order on a folder.
2. `train_models`, for the first candidate.
3. `pull_accesses` for this morning, by the REST API: what follows runs by assets, up to the push into the
   XCache. On the way, `cachecast features` is killed with SIGKILL once; the task is tried again.
4. The same moment again: nothing is pushed twice. The day before was overtaken: nothing is done for it.
5. The chain once more by `airflow dags test`, its Spark steps by SparkSubmitOperator on a connection.

Exit code 1 if anything is not as it should be. Needs what `make test` installs.

Needs the environment that `make verify` makes: .venv/bin/python bench/airflow_day.py
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import json
import multiprocessing
import os
import random
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support" / "servers")]

import pyarrow as pa  # noqa: E402
from airflow_rest import Airflow  # noqa: E402

from features.common.times import DAY_S, as_of_label, day_label, parse_as_of, parse_day  # noqa: E402
from features.results import PROMOTIONS  # noqa: E402
from features.schema import OUTCOMES, PLANS, RECEIPTS  # noqa: E402
from jobs.cli.parsing import moments  # noqa: E402
from jobs.ingest import pull  # noqa: E402
from jobs.local.process import seen  # noqa: E402
from jobs.local.site import CACHE  # noqa: E402
from jobs.settings.tree import Settings  # noqa: E402
from jobs.store.tables import Tables  # noqa: E402
from jobs.store.trainings import trained  # noqa: E402
from jobs.train import features as feature_job  # noqa: E402
from jobs.train.registry import registry  # noqa: E402
from models.serving.names import CANDIDATE, CHAMPION  # noqa: E402
from prefetch.xcache.session import RemoteFile  # noqa: E402

DAYS, PIECE_DAYS = 7, 3
SOURCES = {"rucio_traces": "traces", "xcache_gstream": "gstream"}
SPARK_STEPS = {"pull_accesses": len(SOURCES), "build_features": 1, "place_and_push": 1, "verify_outcomes": 0}
"""Steps of the chain's DAGs that are submitted where `[airflow] spark` says so."""
WITHIN_S = 3600.0
N_WARM, N_QUEUED = 150, 20
JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SETTINGS = {
    "PYTHONPATH": str(ROOT),
    "CACHECAST_SPARK__MASTER": "local[2]",
    "CACHECAST_SPARK__SHUFFLE_PARTITIONS": "2",
    # A step is a session of its own: what compiles less starts sooner.
    "CACHECAST_SPARK__CONF": f'{{ "spark.driver.extraJavaOptions" = "{JAVA}" }}',
    "CACHECAST_FEATURES__CYCLE": "1d",
    "CACHECAST_FEATURES__HORIZONS": '["1d"]',
    "CACHECAST_FEATURES__CANDIDATES": "3d",
    "CACHECAST_FEATURES__KEPT_AT": "0",
    "CACHECAST_PLAN__HORIZON": "1d",
    "CACHECAST_TRAINING__LEARNERS": '["logistic"]',
    "CACHECAST_AIRFLOW__RETRY_DELAY": "5s",
}
failures: list[str] = []


def check(what: str, holds: bool) -> None:
    print(f"{'ok  ' if holds else 'FAIL'} {what}", flush=True)
    if not holds:
        failures.append(what)


def cachecast(*words: str, **env: str) -> str:
    command = [sys.executable, "-m", "jobs", *words]
    done = subprocess.run(command, env=os.environ | env, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"cachecast {' '.join(words)} failed: {done.stderr[-3000:]}")
    return done.stdout


@contextlib.contextmanager
def deployment(out: Path) -> Iterator[None]:
    started = time.monotonic()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    try:
        services = json.loads(cachecast("up", "--out", str(out), "--hdfs", "--json"))
        print(f"{len(services)} services up in {time.monotonic() - started:.0f} s", flush=True)
        again = json.loads(cachecast("up", "--out", str(out), "--hdfs", "--json"))
        check("a second up starts nothing", {one["state"] for one in again} == {"running"})
        yield
    finally:
        if (out / "run").exists():
            cachecast("down", "--out", str(out))
            left = json.loads(cachecast("down", "--out", str(out), "--json"))["processes"]
            check("nothing is left after down", left == 0)


def records(out: Path, midnight: dt.datetime, n_days: int) -> list[str]:
    """A week of raw records until midnight, where the deployment pulls from; the days."""
    first = midnight - dt.timedelta(days=n_days)
    cachecast("workload", "--scenario", "demo", "--days", str(n_days), "--accesses", "6000", "--raw",
              "--start", f"{first:%Y-%m-%d}", "--out", str(out / "raw"))  # fmt: skip
    for path in (out / "raw" / "traces").iterdir():
        path.rename(out / "traces" / path.name)
    (out / "raw" / "files.jsonl").rename(out / "files" / "files.jsonl")
    # The catalogue does not change: it is pulled once, not with every run.
    base = out / "conf" / "base.toml"
    base.write_text(re.sub(r"rucio_files = \S+ ", "", base.read_text()))
    return [f"{first + dt.timedelta(days=n):%Y-%m-%d}" for n in range(n_days)]


def catalogue(roots: list[str], path: Path, day: str) -> None:
    """The files into the tables at each of `roots`."""
    for root in roots:
        settings = Settings.load(tables=root)
        pull.run(settings, source="rucio_files", path=str(path), day_s=parse_day(day))


def in_a_process(work: Callable[..., None], *given: object) -> None:
    """Do `work` with a session of Spark of its own, which ends with it."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
        process.submit(work, *given).result()


def queued(out: Path, queue: Path) -> None:
    """Some jobs in a queue, for files of the catalogue."""
    with (out / "files" / "files.jsonl").open() as lines:
        names = [json.loads(next(lines))["name"] for _ in range(N_QUEUED)]
    queue.write_text(json.dumps([{"job_id": f"{n}", "file": name} for n, name in enumerate(names)]))


def warm(out: Path, settings: Settings) -> None:
    """Files at the origin, as small as they may be, and some of them read through the cache."""
    files = [json.loads(line) for line in (out / "files" / "files.jsonl").read_text().splitlines()]
    origin = out / "xrootd" / "origin"
    for file in files:
        path = origin / file["name"].lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as sparse:
            sparse.truncate(file["bytes"])
    traces = sorted((out / "traces").iterdir())[-1].read_text().splitlines()
    names = list(dict.fromkeys(json.loads(line)["filename"] for line in traces))[:N_WARM]
    url = settings.caches[CACHE].url
    for name in names:
        with RemoteFile(f"{url}/{name}", time.monotonic() + 60) as file:
            file.read_all()
    print(f"{len(files)} files at the origin, {len(names)} read through the cache", flush=True)


def kill_once(words: str) -> threading.Thread:
    """Kill the first Python whose command line holds `words`, some seconds after it began."""

    def work() -> None:
        while True:
            for pid in seen():
                with contextlib.suppress(OSError):
                    line = (
                        Path(f"/proc/{pid}/cmdline")
                        .read_bytes()
                        .replace(b"\0", b" ")
                        .decode(errors="replace")
                    )
                    if words in line and "python" in line.split(" ")[0]:
                        time.sleep(4)
                        os.kill(pid, signal.SIGKILL)
                        print(f"killed process {pid}: {words}", flush=True)
                        return
            time.sleep(0.05)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def succeeded(api: Airflow, dag: str, run: str) -> dict[tuple[str, int], dict[str, object]]:
    """The tasks of a run, once it has ended and been checked."""
    state = api.ended(dag, run, within_s=WITHIN_S)
    tasks = api.tasks(dag, run)
    line = ", ".join(
        f"{name} {one['state']} {one['duration'] or 0:.0f} s, try {one['try_number']}"
        for (name, _), one in tasks.items()
    )
    check(f"{dag}: {state} ({line})", state == "success")
    return tasks


def features(settings: Settings, root: str) -> pa.Table:
    """All features in the tables at `root`, in the order of their keys."""
    table = settings.features.spec.features_table
    order = [(name, "ascending") for name in (*table.partition, *table.key)]
    return Tables(root).read_arrow(table).sort_by(order)


def in_order(days: list[str], folder: Path) -> None:
    """The week by the steps of the command line, in a folder: one session of Spark serves all."""
    settings = Settings.load(tables=str(folder))
    for source, path in settings.airflow.pull.items():
        pull.run(settings, source=source, path=path, day_s=parse_day(days[0]), new_only=True)
    for day in days:
        feature_job.run(settings, as_ofs=moments(None, day, settings.features.cycle))


def week(api: Airflow, days: list[str], settings: Settings, folder: Path) -> None:
    """Fill the week in out of order, and compare with what comes in order."""
    for first in random.Random(7).sample(range(0, len(days), PIECE_DAYS), -(-len(days) // PIECE_DAYS)):
        piece = days[first : first + PIECE_DAYS]
        succeeded(api, "backfill", api.trigger("backfill", conf={"first": piece[0], "last": piece[-1]}))
    in_a_process(in_order, days, folder)
    by_airflow, straight = (features(settings, root) for root in (settings.tables.root, str(folder)))
    what = f"a week filled in out of order on HDFS equals one in order: {straight.num_rows} rows"
    check(what, straight.num_rows > 0 and by_airflow.equals(straight))


def promote_unproven(settings: Settings) -> None:
    """Let the candidate serve as if it had won: a week is too short to prove it."""
    at, region, now_s = registry(settings.mlflow), settings.region.name, int(time.time())
    version = str(at.version_at(region, CANDIDATE))
    at.point(CHAMPION, version, tags={})
    row = {"action": "promote", "model_version": version, "champion": version, "comparisons": "[]"}
    known = trained(Tables(settings.tables.root), region=region)
    row |= {"champion_digest": known[version].digest, "reasons": ["a bench"]}
    key = (day_label(now_s), as_of_label(now_s), region)
    Tables(settings.tables.root).replace_rows(PROMOTIONS, [row], key)


def morning(api: Airflow, key: str, settings: Settings) -> None:
    """The day's chain, with a step killed; then once more."""
    killer = kill_once("cachecast features --as-of")
    api.until_known("build_features", "place_and_push", "verify_outcomes", within_s=300)
    first = api.trigger("pull_accesses", partition_key=key)
    api.until_known("pull_accesses", within_s=300)
    succeeded(api, "pull_accesses", first)
    features = succeeded(api, "build_features", api.partition("build_features", key, within_s=300))
    killer.join(1)
    n_tries = int(str(features["features", -1]["try_number"]))
    check(f"the killed step was tried again: try {n_tries}", n_tries > 1 and not killer.is_alive())
    tasks = succeeded(api, "place_and_push", api.partition("place_and_push", key, within_s=300))
    check("the queue was asked", tasks["queue_site", -1]["state"] == "success")
    check(
        "no report goes to Rucio for a cache without an RSE",
        tasks["cache.rucio_sync", 0]["state"] == "skipped",
    )
    succeeded(api, "verify_outcomes", api.partition("verify_outcomes", key, within_s=300))
    tables = Tables(settings.tables.root)
    plan, receipts = (tables.read_arrow(table, as_of=key).to_pylist() for table in (PLANS, RECEIPTS))
    n_queued = sum((row["reason"] or "").startswith("queued") for row in plan)
    check(f"{n_queued} items are there for queued jobs", n_queued > 0)
    states = {row["state"] for row in receipts}
    actions = sorted({row["action"] for row in plan})
    check(
        f"{len(receipts)} of {len(plan)} items pushed, {actions}: {states}", bool(plan) and states == {"done"}
    )
    check("the XCache confirmed them", {row["confirmed_by"] for row in receipts} == {"cinfo"})
    before = {row["item_id"]: row["updated_at"] for row in receipts}
    again = succeeded(api, "place_and_push", api.trigger("place_and_push", partition_key=key))
    after = {row["item_id"]: row["updated_at"] for row in tables.read_arrow(RECEIPTS, as_of=key).to_pylist()}
    same = sum(after.get(item) == at for item, at in before.items())
    old = as_of_label(parse_as_of(key) - DAY_S)
    tasks = succeeded(api, "place_and_push", api.trigger("place_and_push", partition_key=old))
    done = [name for (name, _), one in tasks.items() if one["state"] != "skipped"]
    check(f"a moment that was overtaken is skipped: {done} ran", done == ["known_work"])
    check(f"again: {same} of {len(before)} receipts as they were", same == len(before) and bool(again))
    api.until_known("verify_outcomes", within_s=300)
    succeeded(api, "verify_outcomes", api.trigger("verify_outcomes", conf={"as_of": key, "days": 0}))
    earned = tables.read_arrow(OUTCOMES, as_of=key)
    check(f"{earned.num_rows} outcomes", earned.num_rows > 0)


def by_dags_test(out: Path, key: str, settings: Settings) -> None:
    """The chain by `airflow dags test`, with spark-submit: the same features."""
    before = features(settings, settings.tables.root)
    words = shlex.split((out / "airflow" / "env.sh").read_text())
    environment = dict(word.split("=", 1) for word in words if "=" in word)
    submit = {
        "CACHECAST_AIRFLOW__SPARK": "spark_site",
        "AIRFLOW_CONN_SPARK_SITE": json.dumps({"conn_type": "spark", "host": "local[2]"}),
    }
    for dag, n_spark in SPARK_STEPS.items():
        words = [sys.executable, "-m", "airflow", "dags", "test", dag, "-c", json.dumps({"as_of": key})]
        begun = time.monotonic()
        env = os.environ | environment | submit
        done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
        submitted = done.stdout.count("Spark-Submit cmd")
        took = f"{time.monotonic() - begun:.0f} s, {submitted} submitted"
        check(f"airflow dags test {dag}: {took}", (done.returncode, submitted) == (0, n_spark))
        if done.returncode:
            print(done.stdout[-3000:], done.stderr[-2000:])
    check("spark-submit gives the same features", features(settings, settings.tables.root).equals(before))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--days", type=int, default=DAYS, help="instead of a week")
    n_days = parser.parse_args().days
    os.environ.update(SETTINGS)
    now = dt.datetime.now(dt.UTC)
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    key = f"{midnight:%Y-%m-%dT%H:%M:%SZ}"
    with tempfile.TemporaryDirectory(prefix="cachecast-day-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o755)  # the XRootD servers are another user
        sources = ", ".join(f'{source} = "{folder}/out/{name}/"' for source, name in SOURCES.items())
        os.environ["CACHECAST_AIRFLOW__PULL"] = f"{{ {sources} }}"
        os.environ["CACHECAST_AIRFLOW__QUEUES"] = f'{{ site = {{ input = "{folder}/queue.json" }} }}'
        with deployment(folder / "out"):
            out = folder / "out"
            os.environ["CACHECAST_CONF"] = str(out / "conf")
            days = records(out, midnight, n_days)
            settings = Settings.load()
            roots = [settings.tables.root, str(folder / "in-order")]
            in_a_process(catalogue, roots, out / "files" / "files.jsonl", days[0])
            queued(out, folder / "queue.json")
            warm(out, settings)
            port, password = (
                json.loads((out / "ports.json").read_text())["airflow"],
                out / "secrets" / "airflow-password",
            )
            api = Airflow(f"http://127.0.0.1:{port}", password.read_text())
            api.until_known("backfill", within_s=300)
            week(api, days, settings, folder / "in-order")
            run = api.trigger("train_models", conf={"as_of": key})
            api.until_known("train_models", within_s=300)
            succeeded(api, "train_models", run)
            promote_unproven(settings)
            morning(api, key, settings)
            by_dags_test(out, key, settings)
    if failures:
        sys.exit(f"{len(failures)} of the promises do not hold")


if __name__ == "__main__":
    main()
