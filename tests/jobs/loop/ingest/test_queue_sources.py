"""Where queues are read: schedds, folders, control folders of ARC; and descriptions of one job."""

import errno
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, ClassVar, cast

import pytest

from features.common.errors import InputError, ServiceError
from features.schema import QUEUE
from jobs.ground.settings.tree import Settings
from jobs.ground.store.tables import Tables
from jobs.loop.ingest import queue
from jobs.loop.ingest.queue_entries import check_entries
from jobs.loop.ingest.queues import answers, arc, rucio_server, schedd
from jobs.loop.ingest.queues.answers import Kind, entries_of, read_answer
from jobs.loop.ingest.queues.place import Place, Refused
from jobs.loop.push.prefill import PrefillRequest, with_described
from prefetch.rucio.session import Session
from prefetch.xcache.messages import CaptureRecord, read

GOLDEN = Path(__file__).parents[3] / "golden/queue"
AS_OF = 1_772_323_200  # 2026-03-01T00:00:00Z
JOB = '{"GlobalJobId": "s#1.0#2", "ClusterId": 1, "ProcId": 0, "JobStatus": 1, "Args": "/store/mc/f.root"}'
BINDINGS = """
import json, os, sys, time
class DaemonType: Schedd = "schedd"
class Ad(dict):
    def printJson(self): return json.dumps(self, indent=1)
class Collector:
    def __init__(self, pool=None): self.pool = pool
    def locate(self, kind, name): return Ad(Name=name) if name == "schedd.edge.example.org" else None
    def locateAll(self, kind): return [Ad(Name=f"{n}@{self.pool}") for n in range(2)]
class Schedd:
    def __init__(self, location=None): self.name = location["Name"] if location else "local"
    def query(self, constraint="True", projection=[], limit=-1):
        assert "JobStatus" in constraint and "TransferInput" in projection and limit > 0
        FAULT
        ad = {"GlobalJobId": f"{self.name}#1.0#2", "JobStatus": 1, "Args": "/store/mc/f.root"}
        return [Ad(ad | {"Rank": "line\\nend"})]
"""


def answer(source: object, **more: int) -> list[object]:
    return read_answer(str(source), token="", timeout_s=more.pop("timeout_s", 30), **more)


def stated(raw: list[object], kind: Kind = "auto") -> list[dict[str, Any]]:
    """The entries of a queue's answer, but for what is refused."""
    return [entry for entry in entries_of(raw, kind, Place(AS_OF)) if isinstance(entry, dict)]


def bindings(folder: Path, monkeypatch: pytest.MonkeyPatch, fault: str = "pass") -> None:
    """Bindings of the names and parameters of HTCondor's `htcondor2`, for processes started here."""
    folder.mkdir(exist_ok=True)
    (folder / "htcondor2.py").write_text(BINDINGS.replace("FAULT", fault))
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
    )


@pytest.mark.parametrize(
    ("address", "jobs"),
    [
        ("condor://", ["local#1.0#2"]),
        ("condor:///schedd.edge.example.org", ["schedd.edge.example.org#1.0#2"]),
        ("condor://pool.example.org:9618/schedd.edge.example.org", ["schedd.edge.example.org#1.0#2"]),
        ("condor://pool.example.org", ["0@pool.example.org#1.0#2", "1@pool.example.org#1.0#2"]),
    ],
)
def test_a_schedd_is_asked_as_a_file_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str, jobs: list[str]
) -> None:
    bindings(tmp_path / "b", monkeypatch)
    ads = answer(address)
    assert [ad["GlobalJobId"] for ad in ads if isinstance(ad, dict)] == jobs
    assert [entry["files"] for entry in stated(ads)] == [["/store/mc/f.root"]] * len(jobs)


FAULTS = {
    "denied": (
        "raise RuntimeError('Failed to authenticate\\nwith any method')",
        "RuntimeError: Failed to auth",
    ),
    "hung": ("time.sleep(60)", "does not answer within 2 s"),
    "crashed": ("os.abort()", "the bindings ended with -6"),
    "endless": ("return [Ad(Args='x' * 2**20)] * 999", "larger than 256 MiB"),
    "too many": ("return [Ad()] * limit", "more than 300000 jobs wait"),
    "nothing": ("return [None]", "AttributeError"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_schedd_that_fails_is_one_line_and_the_old_queue_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    root = {"CACHECAST_TABLES__ROOT": str(tmp_path / "t")}
    settings = Settings.load(env=root)
    bindings(tmp_path / "b", monkeypatch)
    queue.run(settings, name="condor", source="condor://", as_of_s=AS_OF)
    before = Tables.of(settings).read_arrow(QUEUE)
    code, said = FAULTS[fault]
    bindings(tmp_path / "b", monkeypatch, code)
    if fault == "hung":
        settings = Settings.load(env=root | {"CACHECAST_QUEUE__TIMEOUT": "2s"})
    with pytest.raises(ServiceError) as refused:
        queue.run(settings, name="condor", source="condor://", as_of_s=AS_OF + 60)
    assert said in str(refused.value) and len(str(refused.value).splitlines()) == 1
    assert Tables.of(settings).read_arrow(QUEUE) == before


def test_a_schedd_where_no_job_waits_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bindings(tmp_path / "b", monkeypatch, "return []")
    assert answer("condor://") == []


@pytest.mark.parametrize(
    "name", ['condor://p/x" || true', "condor://p/a/b", "condor://u@p/x", "condor://p:x/"]
)
def test_an_address_that_is_none_reaches_no_pool(name: str) -> None:
    with pytest.raises(InputError, match="not an address of a schedd"):
        answer(name)


def test_what_lies_in_the_working_folder_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bindings(tmp_path / "b", monkeypatch)
    for name in ("json", "htcondor2", "features"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'run')!r}, 'w')")
    monkeypatch.chdir(tmp_path)
    assert len(answer("condor://")) == 1
    assert not (tmp_path / "run").exists()


def test_an_unknown_schedd_and_a_machine_without_the_bindings_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bindings(tmp_path / "b", monkeypatch)
    with pytest.raises(ServiceError, match="the pool knows no schedd other"):
        answer("condor://pool.example.org/other.example.org")
    monkeypatch.setattr(schedd, "find_spec", lambda _: None)
    with pytest.raises(InputError, match=r"install cachecast\[htcondor\]"):
        answer("condor://")


@contextmanager
def silent() -> Iterator[int]:
    """A port that takes connections, and says nothing."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        taken: list[socket.socket] = []
        thread = threading.Thread(target=lambda: taken.append(server.accept()[0]), daemon=True)
        thread.start()
        yield server.getsockname()[1]
        for connection in taken:
            connection.close()


def test_the_real_bindings_say_in_a_line_that_no_pool_answers() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        port = server.getsockname()[1]
    with pytest.raises(ServiceError, match="does not answer") as refused:
        answer(f"condor://127.0.0.1:{port}/schedd")
    assert len(str(refused.value)) < 500
    with silent() as port, pytest.raises(ServiceError, match="does not answer within 3 s"):
        answer(f"condor://127.0.0.1:{port}/schedd", timeout_s=3)


def test_a_folder_is_its_finished_files_that_are_new_enough(tmp_path: Path) -> None:
    (tmp_path / "b.jsonl").write_text(f"{JOB}\n{JOB}\n")
    (tmp_path / "a.json").write_text(f"[{JOB}]")
    (tmp_path / "c.jsonl.part").write_text("{")
    (tmp_path / ".d").write_text("{")
    (tmp_path / "old.jsonl").write_text("{")
    os.utime(tmp_path / "old.jsonl", (1, 1))
    assert answer(tmp_path, since_s=2) == [json.loads(JOB)] * 3


def test_a_file_of_a_folder_that_cannot_be_read_costs_itself_alone(tmp_path: Path) -> None:
    (tmp_path / "b.jsonl").write_text(f"{JOB}\n")
    (tmp_path / "bytes.jsonl").write_bytes(b"\xff")
    (tmp_path / "cut.jsonl").write_text(JOB[:-9])
    (tmp_path / "first.jsonl").write_text(f"x\n{JOB}\n")
    (tmp_path / "jobs.json").write_text('{"jobs": 1}')
    (tmp_path / "link.jsonl").symlink_to("b.jsonl")
    checked = check_entries(entries_of(answer(tmp_path), "auto", Place(AS_OF)), as_of_s=AS_OF, stale_s=1)
    assert len(checked.rows) == 1
    assert dict(checked.refused) == {
        "a file is not JSON; give a list of objects, or an object a line": 2,
        "a file holds no list of jobs; give a list of objects, or it as `jobs`": 1,
        "cannot read a file: not UTF-8: invalid start byte": 1,
        "not a plain file: a link": 1,
    }


def test_of_a_folder_with_a_file_that_the_disk_does_not_give_nothing_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its jobs may wait still: the answer of before stays."""
    (tmp_path / "b.jsonl").write_text(f"{JOB}\n")

    def lost(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(answers, "plain", lost)
    with pytest.raises(InputError, match=r"b\.jsonl: Input/output error"):
        answer(tmp_path)


def test_a_day_of_very_much_costs_itself_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight jobs a day for three days; on the second, a thousand more in two files beside."""
    line = f"{JOB}\n"
    monkeypatch.setattr(answers, "MOST_BYTES", 100 * len(line))
    for day in range(3):
        (tmp_path / f"rucio-{day}.jsonl").write_text(line * 8)
        os.utime(tmp_path / f"rucio-{day}.jsonl", (day * 86400 + 9,) * 2)
    for flood in ("a", "b"):
        (tmp_path / f"{flood}.jsonl").write_text(line.replace("s#", f"{flood}#") * 500)
        os.utime(tmp_path / f"{flood}.jsonl", (86400 + ord(flood),) * 2)
    got = answer(tmp_path)
    jobs = [entry["GlobalJobId"] for entry in got if isinstance(entry, dict)]
    assert (jobs.count("s#1.0#2"), jobs.count("b#1.0#2"), jobs.count("a#1.0#2")) == (16, 84, 0)
    refused = [entry for entry in got if isinstance(entry, Refused)]
    assert [entry.raw for entry in refused] == ["a.jsonl", "b.jsonl", "rucio-1.jsonl"]
    assert len({entry.reason for entry in refused}) == 1
    checked = check_entries(entries_of(got, "auto", Place(AS_OF)), as_of_s=AS_OF, stale_s=1)
    assert checked.refused[refused[0].reason] == 3 and checked.rows
    monkeypatch.setattr(answers, "MOST_ENTRIES", 50)
    assert sum(isinstance(entry, dict) for entry in answer(tmp_path)) == 50


def test_a_file_that_has_no_room_for_a_line_costs_itself_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "MOST_BYTES", len(JOB) + 6)
    for name, at_s in (("older", 1), ("newer", 2)):
        (tmp_path / f"{name}.jsonl").write_text(f"{JOB}\n")
        os.utime(tmp_path / f"{name}.jsonl", (at_s, at_s))
    read_in, refused = answer(tmp_path)
    assert read_in == json.loads(JOB)
    assert isinstance(refused, Refused) and refused.raw == "older.jsonl"


def test_of_rucio_only_what_comes_to_our_sites_is_kept() -> None:
    place = Place(AS_OF, {"EDGE": ("EDGE", "T2_DE_EDGE", "EDGE-LCG2*")})
    for rse, is_kept in (
        *(("EDGE-LCG2_DATADISK", True), ("T2_DE_EDGE", True), ("EDGE_DISK", True)),
        *(("FAR_DISK", False), ("EDGEWAY_DISK", False), ("T2_DE_EDGE_Disk", True)),
    ):
        for kind, name in (("transfer-done", "dst-rse"), ("deletion-done", "rse")):
            payload = {"scope": "s", "name": "n", name: rse, "src-rse": "EDGE_DISK"}
            message = json.dumps({"event_type": kind, "payload": payload}).encode()
            (record,) = read(message, AS_OF, place.concerns)
            assert isinstance(record, CaptureRecord) is is_kept
    new = json.dumps({"event_type": "create_dts", "payload": {"scope": "s", "name": "n"}}).encode()
    assert isinstance(next(read(new, AS_OF, place.concerns)), CaptureRecord)
    assert Place(AS_OF).concerns("FAR_DISK")


def control_folder(folder: Path, *, is_new: bool) -> None:
    """What A-REX keeps of five jobs: waiting, held, running, ended, and without a description."""
    for name in ("accepting", "processing", "finished"):
        (folder / name).mkdir(parents=True)
    jobs = {
        "aaabbb1": ("accepting", "ACCEPTED\n"),
        "aaabbb2": ("processing", "PENDING:PREPARING\n"),
        "aaabbb3": ("processing", "INLRMS"),
        "aaabbb4": ("finished", "FINISHED"),
    }
    for job, (place, state) in jobs.items():
        prefix = "" if is_new else "job."
        (folder / place / f"{prefix}{job}.status").write_text(state)
        path = folder / f"job.{job}.description"
        if is_new:
            path = folder.joinpath("jobs", "aaa", "bbb", job[-1], "description")
            path.parent.mkdir(parents=True)
        path.write_text(f'&(executable="x")(inputFiles=("f" "root://o//store/{job}.root"))')
        local, forged = path.with_name(path.name.replace("description", "local")), "subject=/CN=ada\n"
        local.write_text(f"args=x\\\n{forged}subject=/CN=eve\njobname=x\n{forged}")
    (folder / "processing" / "job.none.status").write_text("SUBMIT")
    (folder / "processing" / "job.ended.status").write_text("FINISHING")


@pytest.mark.parametrize("is_new", [False, True])
def test_a_control_folder_gives_the_jobs_that_have_not_ended(tmp_path: Path, *, is_new: bool) -> None:
    control_folder(tmp_path, is_new=is_new)
    raw = answer(tmp_path)
    jobs = sorted((entry["job_id"], entry["files"], entry["owner"]) for entry in stated(raw))
    assert jobs == [(f"arc:aaabbb{n}", [f"root://o//store/aaabbb{n}.root"], "/CN=eve") for n in (1, 2, 3)]
    assert len(raw) == len(jobs) + 1  # the one without a description


@pytest.mark.parametrize(("owner", "name"), [(Path, "iterdir"), (arc, "is_control")])
def test_a_control_folder_that_may_not_be_read_is_no_empty_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: object, name: str
) -> None:
    def refuse(_: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    control_folder(tmp_path, is_new=False)
    monkeypatch.setattr(owner, name, refuse)
    with pytest.raises(InputError, match=r"cannot read the queue .*: Permission denied"):
        answer(tmp_path)


def test_descriptions_without_end_fill_no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    control_folder(tmp_path, is_new=False)
    monkeypatch.setattr(arc, "MOST_CHARS", 100)
    assert len(stated(answer(tmp_path))) == 1


HOSTILE = {
    "deep": "&(a=" + "(" * 10**6,
    "an open quote": '&(a="' + '""' * 400_000,
    "open comments": "&(a=b)" + "(*" * 500_000,
    "comments before": "(* *)" * 100_000 + "x",
    "long": "&(a=b)" * 400_000,
    "entities": '<!DOCTYPE a [<!ENTITY b "'
    + "b" * 1000
    + '">]><ActivityDescription>&b;</ActivityDescription>',
    "an outer entity": '<!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]><ActivityDescription>&b;'
    "</ActivityDescription>",
    "a deep document": "<ActivityDescription>" + "<a>" * 100_000,
    "cut": "<ActivityDescription><DataStaging><InputFile><Source><URI>root://o//store/f.root</URI>",
    "cut brackets": '&(inputFiles=("f" "root://o//store/f.root")',
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_a_description_made_to_take_long_or_to_fetch_is_refused_at_once(tmp_path: Path, text: str) -> None:
    (tmp_path / "job").write_text(text)
    began = time.monotonic()
    try:
        (entry,) = entries_of(answer(tmp_path / "job"), "arc", Place(AS_OF))
        assert not isinstance(entry, dict)
    except InputError as error:
        assert "is not JSON" in str(error)
    assert time.monotonic() - began < 5


def test_attributes_of_xrsl_may_have_underscores() -> None:
    text = '&(Input_Files=("f" "root://o//store/f.root"))(start_time="2026-03-01 06:00:00")'
    (job,) = stated(arc.jobs(text))
    assert (job["files"], job["expected_start"]) == (["root://o//store/f.root"], "2026-03-01T06:00:00Z")


def test_a_description_without_end_is_no_description() -> None:
    assert arc.jobs("&(a=b)" * 2**18) == ["not a description that can be read"]


@pytest.mark.parametrize(
    ("name", "datasets", "files"),
    [
        ("arc_one.adl", [], ["/store/mc/f4.root", "root://origin.example.org//store/mc/f5.root"]),
        ("condor_new.long", [], ["/store/mc/z.root"]),
    ],
)
def test_a_prefill_takes_what_a_description_names(name: str, datasets: list[str], files: list[str]) -> None:
    asked = with_described(PrefillRequest([], ["mine"]), GOLDEN / name, AS_OF)
    assert (list(asked.datasets), sorted(asked.files)) == (datasets, sorted(["mine", *files]))


def test_a_prefill_of_a_description_that_names_nothing_says_why(tmp_path: Path) -> None:
    (tmp_path / "job").write_text("&(executable=/bin/true)")
    with pytest.raises(InputError, match="describes no job that reads data: names no dataset or file"):
        with_described(PrefillRequest([], []), tmp_path / "job", AS_OF)


def test_of_expressions_without_end_some_are_asked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    class Server:
        asked: ClassVar[list[str]] = []

        def ask(self, what: str, *_: object, **__: object) -> list[dict[str, str]]:
            self.asked.append(what)
            if what == "RSEs":
                return [{"rse": "EDGE_DISK"}]
            rules = [{"id": str(n), "rse_expression": f"tier={n}&x=1", "state": "R"} for n in range(5)]
            return [{"scope": "s", "name": rule["id"]} | rule for rule in rules]

    monkeypatch.setattr(rucio_server, "MOST_EXPRESSIONS", 2)
    raw = rucio_server.asked(cast(Session, Server()), AS_OF)
    assert Server.asked == ["rules", "RSEs", "RSEs"]
    assert [entry["dataset"] for entry in stated(raw, "rucio")] == ["s:0", "s:1"]
    assert len(raw) == 5


def test_what_a_collector_keeps_of_messages_says_what_they_said(tmp_path: Path) -> None:
    """And of people, paths and reasons that messages name, no more than an account that made a dataset."""
    lines = (GOLDEN / "rucio_messages.jsonl").read_text().splitlines()
    messages = [line for line in lines if json.loads(line).get("event_type")]
    records = [record for line in messages for record in read(line.encode(), AS_OF)]
    content = [
        record.content for record in records if isinstance(record, CaptureRecord) and record.kind == "rucio"
    ]
    folder = tmp_path / "bus/rucio"
    folder.mkdir(parents=True)
    for number, half in enumerate((content[:7], content[7:])):
        (folder / f"rucio-{number}-x.jsonl").write_bytes(b"".join(half))
    place = Place(AS_OF, {"EDGE": ("EDGE", "T2_DE_EDGE")}, rses=("EDGE_CACHE",))

    def entries(raw: list[object]) -> list[str]:
        return sorted(str(entry) for entry in entries_of(raw, "rucio", place) if isinstance(entry, dict))

    assert entries(answer(folder)) == entries([json.loads(line) for line in messages]) != []
    assert not any(
        word in b"".join(content) for word in (b"eve@example", b"fts.example", b"globus", b"davs://")
    )
