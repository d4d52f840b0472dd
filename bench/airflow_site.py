"""The deployment of bench/airflow_day.py: settings, records, and what its Airflow is asked."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support" / "servers")]

import pyarrow as pa  # noqa: E402
from airflow_rest import Airflow  # noqa: E402
from webhook import Webhook  # noqa: E402

from features.common.times import DAY_S, as_of_label, day_label  # noqa: E402
from features.results import ARRIVALS  # noqa: E402
from features.schema import Table  # noqa: E402
from jobs.ground.settings.tree import Settings  # noqa: E402
from jobs.ground.store.filesystems import store_at  # noqa: E402
from jobs.ground.store.tables import Tables  # noqa: E402
from jobs.local_site.local.site import CACHE  # noqa: E402
from prefetch.xcache.session import RemoteFile  # noqa: E402

CYCLE_S, N_MOMENTS = 4 * 3600, 6
"""Plans of the first of six decision times, 20 h before the last, still stand when the last is reached."""
WEEK_DAYS, ACCESSES = 7, 20_000
WITHIN_S = 3600.0
N_WARM, N_QUEUED = 150, 20
TRACES = "rucio_traces"
SOURCES = {TRACES: "traces", "xcache_gstream": "gstream"}
_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SETTINGS = {
    "CACHECAST_SPARK__MASTER": "local[2]",
    "CACHECAST_SPARK__SHUFFLE_PARTITIONS": "2",
    # A step is a session of its own: what compiles less starts sooner.
    "CACHECAST_SPARK__CONF": f'{{ "spark.driver.extraJavaOptions" = "{_JAVA}" }}',
    "CACHECAST_FEATURES__CYCLE": "4h",
    "CACHECAST_FEATURES__HORIZONS": '["1d"]',
    "CACHECAST_FEATURES__CANDIDATES": "3d",
    "CACHECAST_PLAN__HORIZON": "1d",
    "CACHECAST_TRAINING__LEARNERS": '["lightgbm"]',
    "CACHECAST_TRAINING__ORDER": "false",
    "CACHECAST_ARRIVALS__LEAST": "20",
    "CACHECAST_ARRIVALS__USUAL_SHARE": "0.2",  # the days before may be other weekdays
    "CACHECAST_ARRIVALS__REJECTED": "0.02",
    "CACHECAST_PUSH__TIMEOUT": "20s",
    "CACHECAST_AIRFLOW__RETRIES": "10",
    "CACHECAST_AIRFLOW__RETRY_DELAY": "5s",
    "CACHECAST_AIRFLOW__MAX_RETRY_DELAY": "30s",
    "CACHECAST_AIRFLOW__WAIT_FOR": "1m",
}
failures: list[str] = []


def check(what: str, holds: bool) -> None:
    """Print whether a promise holds; one that does not fails the bench at its end."""
    print(f"{'ok  ' if holds else 'FAIL'} {what}", flush=True)
    if not holds:
        failures.append(what)


def cachecast(*words: str) -> str:
    """What a command prints; it must succeed."""
    command = [sys.executable, "-m", "jobs", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"cachecast {' '.join(words)} failed: {done.stderr[-3000:]}")
    return done.stdout


class Site:
    """A deployment that is up: the folder `out`, its settings, Airflow's `api`, what its `webhook` got.

    `moments`: the decision times of the day, until the start of the present cycle; `days`: the week before.
    """

    def __init__(self, out: Path, webhook: Webhook, moments: list[int]) -> None:
        self.out, self.webhook, self.moments = out, webhook, moments
        self.settings = Settings.load()
        first_s = moments[0] - moments[0] % DAY_S
        self.days = [day_label(first_s - n * DAY_S) for n in range(WEEK_DAYS, 0, -1)]
        port = json.loads((out / "ports.json").read_text())["airflow"]
        self.api = Airflow(f"http://127.0.0.1:{port}", (out / "secrets" / "airflow-password").read_text())
        self._kept: dict[int, list[str]] = {}

    @property
    def tables(self) -> Tables:
        """Its tables, opened anew."""
        return Tables(self.settings.tables.root)

    @property
    def keys(self) -> list[str]:
        """The partition keys of the day's decision times."""
        return [as_of_label(at_s) for at_s in self.moments]

    def write_records(self) -> None:
        """The catalogue, and the traces: those of the week by day, those of the day held back by moment."""
        raw, n_days = self.out / "raw", WEEK_DAYS + 2
        cachecast("workload", "--scenario", "demo", "--days", str(n_days), "--accesses", str(ACCESSES),
                  "--raw", "--start", self.days[0], "--out", str(raw))  # fmt: skip
        (raw / "files.jsonl").rename(self.out / "files" / "files.jsonl")
        for path in sorted((raw / "traces").iterdir()):
            if any(day in path.name for day in self.days):
                path.rename(self.out / "traces" / path.name)
                continue
            for line in path.read_text().splitlines():
                at_s = json.loads(line)["traceTimeentryUnix"]
                if (moment := next((at for at in self.moments if at_s < at), None)) is not None:
                    self._kept.setdefault(moment, []).append(line)

        self._write_own_record()

    def _write_own_record(self) -> None:
        """A read in the cache's own records, a week ago: those of now are later than the day's plans."""
        at = int(dt.datetime.fromisoformat(self.days[0]).replace(tzinfo=dt.UTC).timestamp()) + 3600
        source = {"site": CACHE, "host": "h", "port": 1094, "inst": CACHE}
        times = {"type": "C", "tbeg": at, "tend": at}
        head = {"code": "g", "pseq": 1, "stod": at - 600, "sid": 1, "src": source, "gs": times}
        name = next(iter(self._kept[self.moments[0]]))
        read = {
            "event": "file_close", "lfn": json.loads(name)["filename"], "size": 2**20, "blk_size": 2**17,
            "n_blks": 8, "n_blks_done": 8, "access_cnt": 1, "attach_t": at - 100, "detach_t": at - 1,
            "remotes": [], "b_hit": 1000, "b_miss": 0, "b_bypass": 0, "n_cks_errs": 0,
        }  # fmt: skip
        datagram = f"{json.dumps(head)}\n{json.dumps(read)}"
        capture = self.out / "gstream" / "gstream-000000000001-week-ago.capture"
        capture.write_text(f"@@{at} 4000 {len(datagram)}\n{datagram}\n")

    def deliver(self, *moments: int, damaged: bool = False) -> int:
        """The traces of decision times arrive, half of them `damaged` if asked, and the file that says so."""
        lines = [line for moment in moments for line in self._kept.pop(moment)]
        if damaged:
            lines[::2] = [line[: len(line) // 2] for line in lines[::2]]
        name = as_of_label(moments[-1]).replace(":", "")
        (self.out / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
        (self.out / f"{name}.jsonl").rename(self.out / "traces" / f"{name}.jsonl")
        self.flag(moments[-1])
        return len(lines)

    def flag(self, moment: int) -> None:
        """Write the file on HDFS that the pull of a decision time waits for."""
        ended = dt.datetime.fromtimestamp(moment - 1, dt.UTC)
        store_at(f"{self.settings.tables.root}-ready/{ended:%Y-%m-%d}").put_if_absent(f"{ended:%H}", b"")

    def arrivals(self, moment: int) -> str:
        """What the traces of a decision time lack by the table arrivals."""
        rows = self.tables.read_arrow(ARRIVALS, as_of=as_of_label(moment)).to_pylist()
        return "; ".join(row["why"] for row in rows if row["source"] == TRACES)

    def rows(self, table: Table, key: str) -> list[dict[str, object]]:
        """The rows of a table at a decision time."""
        stored: list[dict[str, object]] = self.tables.read_arrow(table, as_of=key).to_pylist()
        return stored

    def n_messages(self, about: str, state: str) -> int:
        """The number of messages to the webhook that `about` is in `state`."""
        messages = self.webhook.messages
        return sum(sent["state"] == state and sent.get("about") == about for sent in messages)

    def succeeded(self, dag: str, run: str) -> dict[tuple[str, int], dict[str, object]]:
        """The tasks of a run, once it has ended and been checked."""
        state = self.api.ended(dag, run, within_s=WITHIN_S)
        tasks = self.api.tasks(dag, run)
        line = ", ".join(
            f"{name} {task['state']} {task['duration'] or 0:.0f} s, try {task['try_number']}"
            for (name, _), task in tasks.items()
        )
        check(f"{dag}: {state} ({line})", state == "success")
        for (name, _), task in tasks.items():
            if task["state"] == "failed":
                print(self.log(name, run)[-3000:])
        return tasks

    def chain(self, key: str) -> dict[tuple[str, int], dict[str, object]]:
        """The tasks of `place_and_push`, once all before it have succeeded for a decision time."""
        for dag in ("pull_accesses", "build_features", "place_and_push"):
            tasks = self.succeeded(dag, self.api.partition(dag, key, within_s=WITHIN_S))
        return tasks

    def pulled(self, key: str) -> dict[tuple[str, int], dict[str, object]]:
        """The tasks of the pull of a decision time."""
        run = self.api.partition("pull_accesses", key, within_s=WITHIN_S)
        return dict(self.api.tasks("pull_accesses", run))

    def airflow(self, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
        """An `airflow` command as typed beside the deployment."""
        exports = shlex.split((self.out / "airflow" / "env.sh").read_text())
        typed = dict(word.split("=", 1) for word in exports if "=" in word)
        command = [str(Path(sys.executable).parent / "airflow"), *words]
        return subprocess.run(
            command, env=os.environ | typed | env, capture_output=True, text=True, check=False, cwd=self.out
        )

    def log(self, task: str, run: str) -> str:
        """What a task of a run has written."""
        logs = (path for path in self.out.rglob("*.log") if f"run_id={run}/task_id={task}/" in str(path))
        return "\n".join(path.read_text(errors="replace") for path in sorted(logs))

    def warm(self) -> None:
        """Files at the origin, as small as they may be, and some of them read through the cache."""
        files = [json.loads(line) for line in (self.out / "files" / "files.jsonl").read_text().splitlines()]
        origin = self.out / "xrootd" / "origin"
        for file in files:
            path = origin / file["name"].lstrip("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as sparse:
                sparse.truncate(file["bytes"])
        last = [json.loads(line)["filename"] for line in self._kept[self.moments[0]]]
        url = self.settings.caches[CACHE].url
        names = list(dict.fromkeys(last))[:N_WARM]
        for name in names:
            with RemoteFile(f"{url}/{name}", time.monotonic() + 60) as file:
                file.read_all()
        print(f"{len(files)} files at the origin, {len(names)} read through the cache", flush=True)

    def queue_jobs(self, queue: Path) -> None:
        """Some jobs in a queue, for files of the catalogue."""
        with (self.out / "files" / "files.jsonl").open() as lines:
            names = [json.loads(next(lines))["name"] for _ in range(N_QUEUED)]
        queue.write_text(json.dumps([{"job_id": f"{n}", "file": name} for n, name in enumerate(names)]))


def features(settings: Settings, root: str) -> pa.Table:
    """All features in the tables at `root`, in the order of their keys."""
    table = settings.features.spec.features_table
    order = [(name, "ascending") for name in (*table.partition, *table.key)]
    return Tables(root).read_arrow(table).sort_by(order)


@contextlib.contextmanager
def deployment(folder: Path, moments: list[int]) -> Iterator[Site]:
    """`cachecast up --hdfs` in `folder`; it is down afterwards, whatever happens meanwhile."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    out, begun = folder / "out", time.monotonic()
    sources = ", ".join(f'{source} = "{out}/{name}/"' for source, name in SOURCES.items())
    os.environ |= SETTINGS | {
        "CACHECAST_AIRFLOW__PULL": f"{{ {sources} }}",
        "CACHECAST_AIRFLOW__QUEUES": f'{{ site = {{ input = "{folder}/queue.json" }} }}',
    }
    Settings.load()  # a setting that is no longer one fails here, before anything starts
    with Webhook() as webhook:
        os.environ["CACHECAST_AIRFLOW__WEBHOOK"] = webhook.url
        try:
            services = json.loads(cachecast("up", "--out", str(out), "--hdfs", "--json"))
            print(f"{len(services)} services up in {time.monotonic() - begun:.0f} s", flush=True)
            again = json.loads(cachecast("up", "--out", str(out), "--hdfs", "--json"))
            check("a second up starts nothing", {service["state"] for service in again} == {"running"})
            os.environ["CACHECAST_CONF"] = str(out / "conf")
            yield Site(out, webhook, moments)
        finally:
            if (out / "run").exists():
                cachecast("down", "--out", str(out))
                left = json.loads(cachecast("down", "--out", str(out), "--json"))["processes"]
                check("nothing is left after down", left == 0)


def wait_for_flags(site: Site) -> None:
    """Let pulls of traces wait for a file per cycle on HDFS, and pull the catalogue no more."""
    base = site.out / "conf" / "base.toml"
    wait = f'wait = {{ {TRACES} = "{site.settings.tables.root}-ready/{{day}}/{{hour}}" }}'
    text = re.sub(r"rucio_files = \S+ ", "", base.read_text())
    base.write_text(text.replace("[airflow]\n", f"[airflow]\n{wait}\n"))
    task, deadline = f"wait_{TRACES}", time.monotonic() + 600
    while task not in {row["task_id"] for row in site.api.call("GET", "dags/pull_accesses/tasks")["tasks"]}:
        assert time.monotonic() < deadline, "the DAG processor does not read the changed settings"
        time.sleep(1)
