"""A controller and a cache on two hosts with a link between them: cut, and either host lost and back.

bench/two_hosts.py [--only DRILL ...] [--blind SECONDS] [--day]

Exit code 1 if a promise breaks.

Two network namespaces, with a veth pair between them, which needs root. In one the controller: PostgreSQL
with the journal, a store that speaks S3 with the tables (moto), and for the first drill Airflow, whose
schedule starts two cycles of six minutes, or with --day the cycles of a day: a clock that all processes share
skips the hours without work. In the other a real XCache of 20 files of 1 MiB, its origin, collector
and steward. Neither sees the other's folder or loopback; each command runs in the namespace of its host.
What must hold: nothing is pushed or fetched twice, nothing is lost, no open or pinned file goes; judged by
what is on the cache's disk, what the server reported, and the receipts.

Needs the environment that `make verify` makes: .venv/bin/python bench/two_hosts.py
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support" / "servers")]

import host_pair  # noqa: E402
import xrootd_versions  # noqa: E402
from airflow_rest import Airflow  # noqa: E402
from host_pair import COMMAND, CONTROLLER, CYCLE_S, HOST, Broken, Hosts, check  # noqa: E402
from steward_site import MIB  # noqa: E402
from waiting import eventually  # noqa: E402

from features.common.times import DAY_S, as_of_label, day_label  # noqa: E402

N_DAYS, UNITS_S, WITHIN_S = 4, 60, 1800.0
"""`UNITS_S`: how long before a cycle the units of the cache's host begin."""
CHAIN = ("pull_accesses", "build_features", "place_and_push")
BY_AIRFLOW = {
    "CACHECAST_FEATURES__HORIZONS": '["1d"]',
    "CACHECAST_FEATURES__CANDIDATES": "3d",
    "CACHECAST_FEATURES__ACTIVE_DATASETS": "2d",
    "CACHECAST_FEATURES__HISTORY": "90d",
    "CACHECAST_PLAN__HORIZON": "1d",
    "CACHECAST_PLAN__CYCLE": "auto",
    "CACHECAST_SOURCES__DEMAND": '{ "*" = "rucio_traces" }',
    "CACHECAST_TRAINING__EVERY": "4h",
    "CACHECAST_TRAINING__SPAN": "2d",
    "CACHECAST_TRAINING__TREES": "20",
    "CACHECAST_TRAINING__LEARNERS": '["lightgbm"]',
    "CACHECAST_TRAINING__ORDER": "false",
}
"""Settings of the cycles by Airflow; the other drills have cycles of seconds."""
A_DAY = "/store/mc/Run3/A/AOD/v1-v1/0/"
KEPT, STALE, COMING = (f"{A_DAY}{what}.root" for what in ("kept", "stale", "coming"))


def day(hosts: Hosts) -> str:
    """Reads, pull and scan on the host; plan and push on the controller; the steward; outcomes."""
    hosts.catalogue("s:a", [KEPT, STALE, COMING])
    hosts.read(KEPT, STALE, KEPT)
    check(eventually(lambda: len(hosts.fetched()) == 2), "the reads are not reported")
    time.sleep(5)  # until the collector has finished the file
    today = day_label(int(time.time()))
    pull = ("pull", "--source", "xcache_gstream", "--input", str(hosts.captures), "--day", today)
    hosts.run(HOST, *pull)
    hosts.run(HOST, "scan", "--cache", "cache")
    time.sleep(CYCLE_S - time.time() % CYCLE_S)
    at_s = int(time.time()) // CYCLE_S * CYCLE_S
    at = ("--as-of", as_of_label(at_s))
    hosts.run(CONTROLLER, "features", *at)
    hosts.run(CONTROLLER, str(at_s), KEPT, STALE, COMING, python=PREDICTED)
    planned = hosts.run(CONTROLLER, "plan", "--cache", "cache", *at)
    check([planned[what] for what in ("pin", "evict", "prefetch")] == [1, 1, 1], f"planned {planned}")
    pushed = hosts.run(CONTROLLER, "push", "run", "--cache", "cache", *at, "--unproven", "--force")
    check((pushed["failed"], pushed["left_to_steward"]) == (0, 1), f"pushed {pushed}")
    check(hosts.held() >= {KEPT, STALE, COMING}, f"on disk: {hosts.held()}")
    hosts.read(COMING)  # before the room that others need takes it
    check(eventually(lambda: hosts.figures.first_files == 1), "the steward does not hear of the eviction")
    hosts.fill(14)
    check(eventually(lambda: STALE not in hosts.held()), "the steward does not evict what is planned")
    check(KEPT in hosts.held(), "the pin is gone")
    for _ in range(12):  # the collector reports and finishes files when it comes to it
        time.sleep(5)
        hosts.run(HOST, *pull)
        hosts.run(CONTROLLER, "outcomes", "--cache", "cache", *at)
        (earned,) = [row for row in hosts.rows("OUTCOMES") if row["action"] == "prefetch"]
        if earned["n_hits"]:
            break
    check(earned["n_hits"] == 1, f"earned {earned}")
    return f"1 pinned, 1 prefetched and read, 1 evicted by the steward of {len(hosts.held())} files"


PREDICTED = """
import json, sys
from features.common.times import as_of_label, day_label
from features.schema import PREDICTIONS
from jobs.ground.store.tables import Tables
at_s = int(sys.argv[1])
same = {"horizon_s": 3600, "probability": 0.9, "expected_accesses": 2.0, "size_bytes": 2**20}
same |= {"dataset": "s:a", "model_version": "m/1"}
rows = [{"did": f"cms:{name}", **same} for name in sys.argv[2:]]
Tables("s3a://tables/region").replace_rows(PREDICTIONS, rows, (day_label(at_s), as_of_label(at_s), "default"))
print(json.dumps(len(rows)))
"""


class Clock:
    """The clock of all processes on both hosts, which is set ahead over hours without work with `is_day`."""

    def __init__(self, folder: Path, *, is_day: bool) -> None:
        self.is_day, self.ahead_s = is_day, 0
        self.cycle_s, self.n_cycles = (4 * 3600, 6) if is_day else (360, 2)
        self.env = {"CACHECAST_FEATURES__CYCLE": f"{self.cycle_s}s"}
        if not is_day:
            return
        folder.chmod(0o755)  # for the servers, too, which are other users
        library, self.file = folder / "clock.so", folder / "ahead_s"
        source = ROOT / "tests" / "support" / "servers" / "shifted_clock.c"
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
        self.env |= {"LD_PRELOAD": str(library), "CLOCK_SHIFT_FILE": str(self.file)}
        self.file.write_bytes(struct.pack("ll", 0, int(time.time())))

    @property
    def now_s(self) -> int:
        """The time on the hosts."""
        return int(time.time()) + self.ahead_s

    def until(self, at_s: int) -> None:
        """Let it be `at_s`, if that is still to come."""
        if not self.is_day:
            time.sleep(max(0.0, at_s - time.time()))
            return
        self.ahead_s += max(0, at_s - self.now_s)
        with self.file.open("r+b") as mapped:  # mapped into each process
            mapped.write(struct.pack("l", self.ahead_s))


def by_airflow(hosts: Hosts, clock: Clock) -> str:
    """Cycles that Airflow's schedule starts on the controller, from pull to push, beside the host's units."""
    api, folder = hosts.airflow(), hosts.folder / CONTROLLER / "airflow"
    reads = records(hosts, day_label(clock.now_s - N_DAYS * DAY_S))
    delivered_s = deliver(folder, reads, 0, clock.now_s)
    with host_pair.inside(CONTROLLER):
        api.until_known(*CHAIN, "train_models", "verify_outcomes", within_s=WITHIN_S)
        check(eventually(lambda: bool(api.runs("build_features")), WITHIN_S), "the schedule starts nothing")
        key = str(api.runs("build_features")[0]["partition_key"])
        for dag in CHAIN:  # without a champion the last one does nothing
            ended(hosts, api, dag, api.partition(dag, key, within_s=WITHIN_S))
    hosts.run(CONTROLLER, "cycle", "--as-of", key, "--train", within_s=WITHIN_S)
    with host_pair.inside(CONTROLLER):
        done(hosts, api, "train_models", conf={"as_of": key})
    hosts.run(CONTROLLER, str(hosts.folder / CONTROLLER / "site.toml"), python=PROMOTED)
    pushed: dict[str, list[dict[str, Any]]] = {}
    for _ in range(3 * clock.n_cycles):
        at_s = ((clock.now_s + UNITS_S) // clock.cycle_s + 1) * clock.cycle_s
        clock.until(at_s - UNITS_S)
        if clock.is_day:  # the steward knows that its clock was set, and asks for a start
            hosts.kill("steward")
            hosts.steward()
        units(hosts, clock)
        delivered_s = deliver(folder, reads, delivered_s, at_s)
        clock.until(at_s)
        key = as_of_label(at_s)
        with host_pair.inside(CONTROLLER):
            for dag in CHAIN:
                ended(hosts, api, dag, api.partition(dag, key, within_s=WITHIN_S))
        receipts = carried_out(hosts, key)
        check({row["state"] for row in receipts} <= {"done"}, f"receipts of {key}: {receipts}")
        coming = {str(row["did"]).removeprefix("cms:") for row in receipts if row["action"] == "prefetch"}
        check(coming <= hosts.held(), f"pushed and not on the disk: {coming - hosts.held()}")
        hosts.read(*sorted(coming)[:3])
        if receipts:  # else a busy machine's cycle was overtaken by the next one
            pushed[key] = receipts
        if len(pushed) == clock.n_cycles:
            break
    check(len(pushed) == clock.n_cycles, f"{len(pushed)} cycles were pushed")
    time.sleep(5)
    units(hosts, clock)
    with host_pair.inside(CONTROLLER):
        done(hosts, api, "place_and_push", partition_key=key)
        for planned in pushed:
            done(hosts, api, "verify_outcomes", conf={"as_of": planned, "days": 0})
    check(carried_out(hosts, key) == pushed[key], "pushed twice")
    n_hits = sum(int(row["n_hits"] or 0) for row in hosts.rows("OUTCOMES") if row["as_of"] in pushed)
    check(n_hits > 0, "no outcome has a hit")
    n_items = sum(map(len, pushed.values()))
    return f"{len(pushed)} cycles of {clock.cycle_s // 60} min, {n_items} items pushed once, {n_hits} hits"


def carried_out(hosts: Hosts, key: str) -> list[dict[str, Any]]:
    """The receipts of a decision time; evictions are the steward's."""
    return [row for row in hosts.rows("RECEIPTS") if row["as_of"] == key and row["action"] != "evict"]


def records(hosts: Hosts, first_day: str) -> list[dict[str, Any]]:
    """Traces of a generated region, in order; its files, of 1 MiB, are at the origin and in the catalogue."""
    folder, raw = hosts.folder / CONTROLLER / "airflow", hosts.folder / CONTROLLER / "raw"
    words = ["--scenario", "demo", "--days", str(N_DAYS + 2), "--accesses", "2000", "--start", first_day]
    hosts.run(CONTROLLER, "workload", *words, "--raw", "--out", str(raw))
    with (folder / "files" / "files.jsonl").open("w") as out:
        for line in (raw / "files.jsonl").read_text().splitlines():
            file = json.loads(line) | {"bytes": MIB}
            hosts.add(file["name"])
            out.write(json.dumps(file) + "\n")
    lines = [line for path in (raw / "traces").iterdir() for line in path.read_text().splitlines()]
    traces = [json.loads(line) | {"filesize": MIB} for line in lines]
    return sorted(traces, key=lambda trace: float(trace["traceTimeentryUnix"]))


def deliver(folder: Path, reads: list[dict[str, Any]], since_s: int, until_s: int) -> int:
    """The traces from `since_s` to `until_s` arrive at the controller; until when."""
    traces = [json.dumps(trace) for trace in reads if since_s <= trace["traceTimeentryUnix"] < until_s]
    (folder / f"{until_s}.jsonl").write_text("".join(f"{line}\n" for line in traces))
    (folder / f"{until_s}.jsonl").rename(folder / "traces" / f"{until_s}.jsonl")
    return until_s


def units(hosts: Hosts, clock: Clock) -> None:
    """What units on the cache's host do each cycle: pull the cache's own records, and scan."""
    today = day_label(clock.now_s)
    hosts.run(HOST, "pull", "--source", "xcache_gstream", "--input", str(hosts.captures), "--day", today)
    hosts.run(HOST, "scan", "--cache", "cache")


def done(hosts: Hosts, api: Airflow, dag: str, **body: Any) -> None:
    """Start a run, and wait until it has succeeded."""
    ended(hosts, api, dag, api.trigger(dag, **body))


def ended(hosts: Hosts, api: Airflow, dag: str, run: str) -> None:
    """Wait until a run has succeeded."""
    if api.ended(dag, run, within_s=WITHIN_S) == "success":
        return
    failed = {name for (name, _), task in api.tasks(dag, run).items() if task["state"] == "failed"}
    logs = [path for path in hosts.folder.rglob("attempt=*.log") if f"run_id={run}" in str(path)]
    ends = [
        path.read_text()[-1500:] for path in logs if any(f"task_id={name}/" in str(path) for name in failed)
    ]
    raise Broken(f"{dag} {run}: {sorted(failed)} failed: {ends}")


PROMOTED = """
import json, sys
from pathlib import Path
from unproven import promote
from jobs.ground.settings.tree import Settings
print(json.dumps(promote(Settings.load(Path(sys.argv[1])))))
"""


def link_cut(hosts: Hosts, blind_s: float) -> str:
    """Nothing that the controller's host sends arrives; the steward goes on, and is restarted meanwhile."""
    opened = min(name for name in hosts.held() if "filler" in name)
    with hosts.reading(opened):
        hosts.link("down")
        cut_s = time.monotonic()
        n_before = hosts.figures.evicted_files
        hosts.fill(10)
        check(eventually(lambda: hosts.figures.evicted_files >= n_before + 6), "it does not evict")
        check(eventually(lambda: "steward-lists" in hosts.figures.alarms, 120), "it says nothing")
        process = hosts.running.pop("steward")
        os.killpg(process.pid, signal.SIGTERM)
        check(process.wait(90) == 0, "the steward does not end")
        hosts.steward()
        check(eventually(lambda: "steward-tables" in hosts.figures.alarms, 120), "no alarm of the tables")
        hosts.fill(10)
        check(eventually(lambda: hosts.figures.evicted_files >= 6, 150), "after a restart it does not evict")
        check(len(hosts.held()) <= 20, f"{len(hosts.held())} files")
        check({KEPT, opened} <= hosts.held(), "the pinned or the open file is gone")
        time.sleep(max(0.0, cut_s + blind_s - time.monotonic()))
        hosts.link("up")
        calm = {"steward-lists", "steward-tables"}
        check(eventually(lambda: not calm & hosts.figures.alarms.keys(), 420), f"{hosts.figures.alarms}")
        took_s = time.monotonic() - cut_s
    first = sum(row["evicted_files"] for row in hosts.rows("STEWARD_DAYS"))
    check(first >= 6, f"the tables have {first} evictions of before the restart")
    return f"{took_s:.0f} s; {first} evictions of the first run in the tables; the pin and the open file stay"


def host_lost(hosts: Hosts) -> str:
    """Kill -9 of all that runs on the cache's host; what was to be pushed waits, and is pushed once."""
    os.environ["CACHECAST_PLAN__CYCLE"] = f"{CYCLE_S}s"  # else the day's reads leave no room for pins
    names = hosts.prefill("B", 3)
    hosts.run(HOST, "scan", "--cache", "cache")
    hosts.kill("steward", "collect", "servers")
    hosts.run(CONTROLLER, "prefill", "--cache", "cache", "--dataset", "s:B", fails="does not answer")
    hosts.cache()
    answer = hosts.run(CONTROLLER, "prefill", "--cache", "cache", "--dataset", "s:B")
    check(answer["pushed"]["pushed"] == 3, f"{answer}")
    return once(hosts, names)


def controller_lost(hosts: Hosts) -> str:
    """Kill -9 of a push and of PostgreSQL, mid-way; the push goes on where it was."""
    os.environ["CACHECAST_PLAN__CYCLE"] = f"{CYCLE_S}s"  # else the day's reads leave no room for pins
    names = hosts.prefill("C", 4)
    hosts.run(HOST, "scan", "--cache", "cache")
    conf = ["--conf", str(hosts.folder / CONTROLLER / "site.toml")]
    words = [*COMMAND, "prefill", "--cache", "cache", "--dataset", "s:C", "--jobs", "1", *conf]
    hosts.start(CONTROLLER, "push", *words, ready=lambda: bool(set(names) & hosts.held()))
    hosts.kill("push", "postgres")
    n_before = len(set(names) & hosts.held())
    check(eventually(lambda: "steward-lists" in hosts.figures.alarms, 120), "the steward says nothing")
    hosts.database()
    time.sleep(1)
    eventually(lambda: "steward-lists" not in hosts.figures.alarms, 120)
    answer = hosts.run(CONTROLLER, "push", "resume", "--cache", "cache")
    check(answer["failed"] == 0, f"{answer}")
    return f"killed after {n_before} of 4; {once(hosts, names)}"


def once(hosts: Hosts, names: list[str]) -> str:
    """Check that each of the files was fetched once and has one receipt."""
    check(set(names) <= hosts.held(), f"lost: {set(names) - hosts.held()}")
    dids = sorted(f"cms:{name}" for name in names)
    rows = [row for row in hosts.rows("RECEIPTS") if row["did"] in dids and row["action"] == "prefetch"]
    check(sorted(row["did"] for row in rows) == dids, f"receipts: {rows}")
    check({row["state"] for row in rows} == {"done"}, f"receipts: {rows}")
    check(eventually(lambda: set(names) <= hosts.fetched().keys(), 20), "fetches are not reported")
    n_fetched = {name: hosts.fetched()[name] for name in names}
    check(set(n_fetched.values()) == {1}, f"fetched: {n_fetched}")
    return f"{len(names)} files fetched once each, a receipt each"


def main() -> int:
    """Do one after the other, print the table, and say by the exit code whether all promises held."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--only", nargs="*", help="parts of the names of drills")
    options.add_argument("--blind", type=float, default=300.0, help="seconds without the link")
    options.add_argument("--day", action="store_true", help="a day of Airflow's cycles")
    arguments = options.parse_args()
    folder = tempfile.TemporaryDirectory(prefix="cachecast-clock-")
    clock = Clock(Path(folder.name), is_day=arguments.day)
    scheduled = partial(by_airflow, clock=clock)
    drills: dict[str, Callable[[Hosts], str]] = {
        "cycles by Airflow's schedule": scheduled,
        "a cycle by hand": day,
        "the link cut, the steward restarted meanwhile": partial(link_cut, blind_s=arguments.blind),
        "the cache's host lost and back": host_lost,
        "the controller lost and back": controller_lost,
    }
    named = [name for name in drills if not arguments.only or any(word in name for word in arguments.only)]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    print("| drill | held | what was seen | s |\n|---|---|---|---|")
    with xrootd_versions.in_use(xrootd_versions.tested()[-1]):
        for is_scheduled in (True, False):
            names = [name for name in named if (drills[name] is scheduled) == is_scheduled]
            settings = BY_AIRFLOW | clock.env if is_scheduled else {}
            if names:
                with mock.patch.dict(os.environ, settings), host_pair.running() as hosts:
                    if not all(held(hosts, name, drills[name]) for name in names):
                        return 1
    return 0


def held(hosts: Hosts, name: str, drill: Callable[[Hosts], str]) -> bool:
    """Whether the promises of a drill hold; prints its row."""
    began = time.monotonic()
    try:
        holds, measured = "yes", drill(hosts)
    except Broken as error:
        holds, measured = "**no**", str(error)
    print(f"| {name} | {holds} | {measured} | {time.monotonic() - began:.0f} |", flush=True)
    return holds == "yes"


if __name__ == "__main__":
    sys.exit(main())
