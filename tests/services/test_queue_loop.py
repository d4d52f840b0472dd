"""A schedd's queue beside a real XCache: what it names is fetched, its jobs read, and it gets the credit."""

import itertools
import json
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from cachecast_main import asked
from waiting import eventually

from features.common.times import DAY_S, as_of_label, day_label
from features.schema import PLANS, PREDICTIONS
from jobs.ground.settings.tree import Settings
from jobs.ground.store.tables import Tables
from jobs.local_site.local.xrootd import Loopback
from jobs.loop.ingest import queue
from jobs.operator.operate import status
from prefetch.xcache.client import XCacheTarget

pytestmark = [pytest.mark.service, pytest.mark.xrootd, pytest.mark.usefixtures("xrootd")]
SIZE, CYCLE_S, RTT_MS = 300_000, 10, 150.0
SITE = """\
[features]
cycle = "10s"
horizons = ["1h"]
[plan]
horizon = "1h"
control_share = 0.0
prefetch_share = 1.0
[push]
journal = "{folder}/journal.db"
[steward]
state = "{folder}/steward"
[sources]
demand = {{ "*" = "xcache_gstream" }}
[regions.far]
hosts = ["FAR_*"]
rtt_ms = {rtt}
[caches.cache]
name = "cache"
kind = "xcache"
url = "{url}"
namespace = "{namespace}"
capacity = "1GB"
"""


def name(of: str, n: int) -> str:
    return f"/store/mc/Run3/{of}/AOD/v1-v1/0/f{n}.root"


NAMES = {of: [name(of, n) for n in range(3)] for of in ("CRAB", "User", "Nobody")}


def queue_of_schedd() -> list[dict[str, Any]]:
    """`condor_q -json`: a job of CRAB that reads a dataset, a user's job with two files, and one that runs no
    more."""
    schedd = {"JobUniverse": 5, "JobStatus": 1, "QDate": int(time.time()) - 60}
    crab = {"CRAB_ReqName": "260301_100000:ada_crab_test", "CRAB_InputData": "/CRAB/Run3-v1/AOD"}
    arguments = f"cmsRun pset.py inputFiles={NAMES['User'][0]},{NAMES['User'][1]}"
    return [
        schedd | crab | {"ClusterId": 1, "ProcId": 0, "GlobalJobId": "schedd#1.0#1"},
        schedd | {"ClusterId": 2, "ProcId": 0, "GlobalJobId": "schedd#2.0#1", "Args": arguments},
        schedd
        | {"ClusterId": 3, "ProcId": 0, "GlobalJobId": "schedd#3.0#1", "JobStatus": 4}
        | {"Args": NAMES["Nobody"][0]},
    ]


def listed(of: str, lfn: str) -> str:
    row = {"parent_scope": "cms", "parent_name": f"/{of}/Run3-v1/AOD", "scope": "cms", "name": lfn}
    return json.dumps(row | {"bytes": SIZE, "created_at": "2026-01-01", "rses": ["FAR_DISK"]}) + "\n"


def n_closes(capture: Path) -> int:
    return capture.read_text(errors="replace").count('"file_close"')


def test_what_a_schedd_announces_is_there_when_its_jobs_read_it(
    running: tuple[Loopback, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, capture = running
    for lfn in itertools.chain(*NAMES.values()):
        site.add_file(lfn, b"x" * SIZE)
    conf, tables = tmp_path / "site.toml", Tables(str(tmp_path / "tables"))
    conf.write_text(SITE.format(folder=tmp_path, rtt=RTT_MS, url=site.cache_url, namespace=site.namespace))
    options = ["--conf", str(conf), "--tables", tables.root]
    (tmp_path / "files.jsonl").write_text("".join(listed(of, lfn) for of in NAMES for lfn in NAMES[of]))
    today = day_label(int(time.time()))
    asked("pull", "--source", "rucio_files", "--input", tmp_path / "files.jsonl", "--day", today, *options)

    (tmp_path / "queue.json").write_text(json.dumps(queue_of_schedd()))
    said = asked("queue", "--name", "condor", "--input", tmp_path / "queue.json", *options)
    assert (said["inputs"], said["rejected"]) == (3, {"not waiting: completed": 1})
    time.sleep(CYCLE_S - time.time() % CYCLE_S)
    as_of_s = int(time.time()) // CYCLE_S * CYCLE_S
    unlikely = {"did": f"cms:{NAMES['Nobody'][0]}", "dataset": "cms:/Nobody/Run3-v1/AOD", "horizon_s": 3600}
    unlikely |= {"probability": 0.01, "expected_accesses": 0.01, "size_bytes": SIZE, "model_version": "m/1"}
    tables.replace_rows(PREDICTIONS, [unlikely], (day_label(as_of_s), as_of_label(as_of_s), "default"))
    as_of = ["--cache", "cache", "--as-of", as_of_label(as_of_s)]
    planned = asked("plan", *as_of, *options)
    assert (planned["queued_files"], planned["queued_prefetch"], planned["prefetch"]) == (5, 5, 5), planned
    assert {row["queues"] for row in tables.read_arrow(PLANS).to_pylist()} == {"condor"}
    pushed = asked("push", "run", *as_of, *options)  # no model was promoted: a queue needs none
    assert (pushed["pushed"], pushed["failed"]) == (5, 0), pushed
    held = {file.name for file in XCacheTarget("cache", site.cache_url, site.namespace).inventory()}
    announced = [*NAMES["CRAB"], *NAMES["User"][:2]]
    assert held == set(announced)

    assert eventually(lambda: n_closes(capture) >= len(announced)), "our own uses have ended"
    time.sleep(2)  # the cache reports whole seconds
    read = announced[:-1]
    for lfn in read:
        subprocess.run(["xrdcp", "-s", "-f", f"{site.cache_url}/{lfn}", "/dev/null"], check=True, timeout=180)
    assert eventually(lambda: n_closes(capture) >= len(announced) + len(read))
    asked("pull", "--source", "xcache_gstream", "--input", capture, "--day", today, *options)
    earned = asked("outcomes", *as_of, *options)
    (of_condor,) = earned["queues"]
    # A job needs its CPU time divided by its efficiency, which PIC measured from afar and beside a cache.
    waiting = len(read) * SIZE / 2.4e6 / 3600 * (1 / 0.65 - 1 / 0.98)
    assert of_condor == {
        "queue": "condor",
        "files": len(announced),
        "files_read": len(read),
        "bytes_saved": len(read) * SIZE,
        "waiting_hours": pytest.approx(waiting, rel=0.05),
    }

    # Three days later the entries have run out: what it announced is held against the reads.
    later_s = as_of_s + 3 * DAY_S + 6 * 3600
    (tmp_path / "queue.json").write_text("[]")
    settings = Settings.load(conf, env={}, tables=tables.root)
    with monkeypatch.context() as by_then:
        by_then.setattr(time, "time", lambda: float(later_s))
        queue.run(settings, name="condor", source=str(tmp_path / "queue.json"), as_of_s=later_s)
    (report,) = status.run(settings, now_s=later_s).queues
    assert (report.queue, report.files, report.read_files) == ("condor", len(announced), len(read))
    assert 0.9 < report.believed < 1
    assert report.read_after_s is not None and 0 <= report.read_after_s < 900
