"""Tables on a real HDFS, from several processes, from Spark, and by the command line.

What tables promise on any store is in tests/jobs/ground/store/test_tables.py, which runs on this HDFS too.
"""

from __future__ import annotations

import datetime as dt
import functools
import json
import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
from cachecast_main import asked
from commands import COMMAND
from hdfs_native.fsspec import HdfsFileSystem

from features.common.errors import ConflictError, InputError, ServiceError
from features.schema import ACCESSES, REJECTS
from jobs.ground.settings.tree import Settings
from jobs.ground.store.filesystems import store_at
from jobs.ground.store.tables import Tables
from jobs.loop.ingest import pull_input
from jobs.loop.ingest.spark_engine import SparkEngine
from jobs.operator.operate import doctor

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.service
DAY = "2026-03-01"
LOCK = ".pull.lock"

_HOLD = """
import sys, time
from jobs.ground.store.tables import Tables

with Tables(sys.argv[1]).exclusive():
    print("held", flush=True)
    time.sleep(120)
"""


def python(code: str, *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", code, *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended_holding(root: str, number: signal.Signals) -> subprocess.Popen[str]:
    """A process that held the lock of pulls when the signal ended it."""
    with python(_HOLD, root) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        process.send_signal(number)
        process.wait(120)
    return process


@pytest.fixture
def tables(hdfs: str) -> Tables:
    return Tables(f"{hdfs}/{uuid.uuid4().hex}/tables")


def test_traces_on_hdfs_are_pulled_into_tables_on_hdfs(
    spark: SparkSession, tables: Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    traces = f"{tables.root.removesuffix('/tables')}/traces.{DAY}.jsonl"
    url = urlsplit(traces)
    HdfsFileSystem(url.hostname, url.port).pipe_file(url.path, "".join(map(trace, range(20))).encode())
    monkeypatch.chdir(tmp_path)
    words = ["pull", "--source", "rucio_traces", "--input", traces, "--day", DAY, "--tables", tables.root]
    assert asked(*words)["n_new"] == 20
    assert tables.names() == ["accesses"]
    assert tables.read_arrow(ACCESSES, since=DAY)["size_bytes"].to_pylist() == [1000] * 20
    assert not list(tmp_path.iterdir())

    head = tables.snapshot(ACCESSES)
    again = pull_input.pull(
        SparkEngine(spark), tables, source="rucio_traces", path=traces, day=dt.date.fromisoformat(DAY)
    )
    assert (again.n_new, again.n_duplicates) == (0, 20)
    assert tables.snapshot(ACCESSES) == head
    assert LOCK not in store_at(tables.root).names()


def test_names_that_are_globs_too_are_read_as_they_are(spark: SparkSession, tables: Tables) -> None:
    folder = f"{tables.root.removesuffix('/tables')}/traces"
    url, names = urlsplit(folder), ["a1.jsonl", "a[1].jsonl", "{a,b}.jsonl"]
    for number, name in enumerate(names):
        HdfsFileSystem(url.hostname, url.port).pipe_file(f"{url.path}/{name}", trace(number).encode())
    pull = functools.partial(
        pull_input.pull,
        SparkEngine(spark),
        tables,
        source="rucio_traces",
        day=dt.date.fromisoformat(DAY),
        new_only=True,
    )
    for path, n_new in ((folder, 3), *((f"{folder}/{name}", 0) for name in names)):
        summary = pull(path=path)
        assert (summary.n_new, summary.n_unchanged) == (n_new, 0 if n_new else 1)
    assert pull(path=f"{folder}/{{none*,a1.jsonl}}").n_unchanged == 1
    with pytest.raises(InputError, match=r"/a2\.jsonl: PATH_NOT_FOUND"):
        pull(path=f"{folder}/{{a1,a2}}.jsonl")


def trace(number: int) -> str:
    start = 1772323200 + number
    fields = {
        "eventType": "get_sm", "clientState": "DONE", "scope": "mc23_13p6TeV", "filename": f"AOD.{number}",
        "filesize": 1000, "transferStart": start, "transferEnd": start + 5, "uuid": f"{number:032x}",
        "traceTimeentryUnix": start + 9,
    }  # fmt: skip
    return json.dumps(fields) + "\n"


def test_a_lock_is_refused_and_names_its_holder(tables: Tables) -> None:
    with tables.exclusive():
        holder = json.loads(store_at(tables.root).read(LOCK))
        message = f"process {os.getpid()}, since {holder['since']}.* cachecast unlock --tables {tables.root}"
        with pytest.raises(ConflictError, match=message), tables.exclusive():
            pass
        assert json.loads(store_at(tables.root).read(LOCK)) == holder
    with tables.exclusive():
        assert json.loads(store_at(tables.root).read(LOCK))["token"] != holder["token"]
    assert store_at(tables.root).names() == []


def test_a_terminated_holder_gives_its_lock_back_and_a_killed_one_keeps_it_until_it_is_broken(
    tables: Tables, tmp_path: Path
) -> None:
    assert ended_holding(tables.root, signal.SIGTERM).returncode == 128 + signal.SIGTERM
    process = ended_holding(tables.root, signal.SIGKILL)
    with pytest.raises(ConflictError, match=f"process {process.pid}"), tables.exclusive():
        pass
    words = ["unlock", "--tables", tables.root, "--json"]
    answers = [subprocess.check_output([*COMMAND, *words], cwd=tmp_path) for _ in range(2)]
    assert f"process {process.pid}" in json.loads(answers[0])["held_by"]
    assert json.loads(answers[1])["held_by"] is None
    with tables.exclusive():
        pass


def test_who_lost_a_broken_lock_leaves_the_next_holders_alone(tables: Tables) -> None:
    with tables.exclusive():
        tables.unlock()
        next_holder = tables.exclusive()
        next_holder.__enter__()
    assert LOCK in store_at(tables.root).names()
    next_holder.__exit__(None, None, None)
    assert store_at(tables.root).names() == []


def test_a_folders_lock_is_not_broken(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="ends with the process"):
        Tables(str(tmp_path)).unlock()


def test_a_namenode_that_is_away_is_one_line_and_soon(tables: Tables) -> None:
    with pytest.raises(ServiceError, match=r"hdfs://localhost:1/x/rejects: Connection refused.*is it up"):
        Tables("hdfs://localhost:1/x").head(REJECTS)
    refusal = {"source": "s", "input": "i", "reason": "r", "n_rows": 1, "sample": None}
    tables.replace_rows(REJECTS, [refusal], (DAY,))
    for root, state, words in (
        (tables.root, "ok", "1 tables"),
        (f"{tables.root}x", "ok", "first pull"),
        ("hdfs://localhost:1/x", "bad", "Connection refused"),
    ):
        check = next(doctor.run(Settings.load(tables=root, env={})))
        assert check.part == "tables"
        assert check.state == state
        assert words in check.detail
