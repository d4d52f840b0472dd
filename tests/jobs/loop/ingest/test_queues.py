"""What brokers answer, read as a queue: fields as public code names them, values of our own."""

import contextlib
import dataclasses
import datetime as dt
import importlib.util
import json
import re
import time
import tracemalloc
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import classad2
import duckdb
import pyarrow as pa
import pytest
from cases import cases
from hypothesis import given
from hypothesis import strategies as st
from table_rows import put_files

from features.common.errors import InputError
from features.common.names import literal
from features.schema import QUEUE, REJECTS, arrow_schema
from jobs.ground.settings.tree import Settings
from jobs.ground.store.tables import Tables
from jobs.loop.ingest import queue
from jobs.loop.ingest.queue_entries import FURTHEST_S, MOST_JOBS, Checked, check_entries
from jobs.loop.ingest.queues import arc, classads, rucio
from jobs.loop.ingest.queues.answers import Kind, entries_of, kind_of, read_answer
from jobs.loop.ingest.queues.place import Place, folded
from jobs.loop.ingest.sources import sql

ROOT = Path(__file__).parents[4]
GOLDEN = ROOT / "tests/golden/queue"
AS_OF = 1_772_323_200  # 2026-03-01T00:00:00Z
DAY_S = 86400
PLACE = Place(AS_OF, {"EDGE": ("EDGE", "T2_DE_EDGE", "EDGE-LCG2*")}, rses=("EDGE_CACHE",))
CASES = sorted(path for path in GOLDEN.iterdir() if not path.name.endswith(".expect.json"))
JOB = {"ClusterId": 1, "ProcId": 0, "GlobalJobId": "ce#1.0#2", "JobStatus": 1, "Args": "/store/mc/f.root"}
AD = 'ClusterId = 1\nProcId = 0\nJobStatus = 1\nArgs = "/store/mc/f.root"\n'


def accepted(raw: list[object], place: Place = PLACE, kind: Kind = "auto") -> Checked:
    return check_entries(entries_of(raw, kind, place), as_of_s=place.as_of_s, stale_s=DAY_S, site=place.site)


def accepted_of(path: Path) -> Checked:
    return accepted(read_answer(str(path), token="", timeout_s=1))


def inputs(queued: Checked) -> list[list[Any]]:
    fields = ("job_id", "input", "is_dataset", "n_jobs", "site", "certainty")
    return sorted([row[name] for name in fields] for row in queued.rows.values())


def write(tables: Tables, name: str, raw: list[object], *, as_of_s: int = AS_OF) -> queue.QueueSummary:
    return queue.write(tables, accepted(raw), queue=name, source=name, as_of_s=as_of_s)


def known(tables: Tables, *, as_of_s: int = AS_OF) -> list[tuple[int, float]]:
    files = queue.known_work(tables, as_of_s=as_of_s, cache="xc1", site="EDGE").files.to_pylist()
    return [(row["n_jobs"], row["certainty"]) for row in files]


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    """Tables that know one file of a dataset."""
    tables = Tables(str(tmp_path / "tables"))
    put_files(tables, [{"name": "/store/mc/f.root", "dataset": "cms:/A/B-v1/AOD"}])
    return tables


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.name)
def test_an_answer_is_read_and_what_is_not_is_counted(path: Path) -> None:
    expect = json.loads((GOLDEN / f"{path.stem}.expect.json").read_text())
    queued = accepted_of(path)
    assert inputs(queued) == sorted(expect["rows"])
    assert dict(queued.refused) == expect["rejected"]
    assert set(queued.samples) == set(expect["rejected"])


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.name)
def test_an_answer_doubled_says_the_same_and_one_of_other_sites_nothing_of_ours(path: Path) -> None:
    raw = read_answer(str(path), token="", timeout_s=1)
    assert inputs(accepted([*raw, *raw])) == inputs(accepted(raw))
    elsewhere = accepted(raw, Place(AS_OF, {"T9_XX_FAR": ("T9_XX_FAR",)}))
    assert {row["site"] for row in elsewhere.rows.values()} <= {None}


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.name)
def test_an_answer_that_was_cut_invents_no_name(path: Path, tmp_path: Path) -> None:
    whole, named = path.read_text(), {str(row[1]) for row in inputs(accepted_of(path))}
    cut = tmp_path / f"cut{path.suffix}"
    for end in range(0, len(whole), max(1, len(whole) // 150)):
        cut.write_text(whole[:end])
        with contextlib.suppress(InputError):
            for row in accepted_of(cut).rows.values():
                # Or one that what was cut off withdraws.
                name = re.escape(str(row["input"]).rpartition(":")[2])
                assert row["input"] in named or re.search(name + r"(?![\w./-])", whole), (end, row["input"])


def test_without_the_library_ads_as_json_are_read_and_others_say_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(classads, "library", lambda: None)
    with pytest.raises(InputError, match=r"install cachecast\[htcondor\]"):
        accepted_of(GOLDEN / "condor_old.long")
    queued = accepted([JOB | {"Args": "/Expr(strcat(A))/"}, JOB])
    assert len(queued.rows) == 1
    assert dict(queued.refused) == {"names its input by an expression; install cachecast[htcondor]": 1}


def test_a_queue_that_was_cut_is_refused_whole_and_lists_of_schedds_are_one(tmp_path: Path) -> None:
    whole = (GOLDEN / "condor_crab.json").read_text()
    path = tmp_path / "q.json"
    path.write_text(whole[: len(whole) // 2])
    with pytest.raises(InputError, match="is not JSON"):
        accepted_of(path)
    path.write_text(f"[\n]\n{whole}\n{whole}")
    assert inputs(accepted_of(path)) == inputs(accepted_of(GOLDEN / "condor_crab.json"))
    for none in ("All queues are empty\n", "[\n]\n", "[\n]\n[\n]\n"):
        path.write_text(none)
        assert accepted_of(path).n_entries == 0


def test_a_job_is_late_from_its_submission_on_however_often_it_is_named(tables: Tables) -> None:
    """Not from the answer that names it: a clock that is ahead makes it no later."""
    for at_s in (AS_OF, AS_OF + DAY_S):
        for submitted_s, late_s in ((AS_OF - 5 * DAY_S, at_s - AS_OF + 5 * DAY_S), (at_s + 60, 0)):
            ads = accepted([JOB | {"QDate": submitted_s}], dataclasses.replace(PLACE, as_of_s=at_s))
            queue.write(tables, ads, queue="condor", source="condor", as_of_s=at_s)
            files = queue.known_work(tables, as_of_s=at_s, cache="xc1", site="EDGE").files
            assert files["late_s"].to_pylist() == [late_s]


def test_what_several_queues_say_of_the_same_work_counts_once(tables: Tables) -> None:
    stated = {"work": "cms:wf", "dataset": "/A/B-v1/AOD"}
    write(tables, "agent", [stated | {"job_id": "1", "n_jobs": 5, "certainty": 0.25}])
    other = stated | {"job_id": "3", "work": "cms:other", "n_jobs": 2, "certainty": 0.5}
    write(tables, "reqmgr", [stated | {"job_id": "2", "n_jobs": 40, "certainty": 0.5}, other])
    ((n_jobs, certainty),) = known(tables)
    assert (n_jobs, round(certainty, 6)) == (42, 0.75)
    for name in ("schedd", "schedd-again"):  # a queue that is read twice under two names
        write(tables, name, [JOB])
    assert known(tables)[0][0] == 43


def test_work_that_is_withdrawn_is_gone_though_its_broker_still_names_it(tables: Tables) -> None:
    write(tables, "condor", [JOB])
    write(tables, "condor", [JOB | {"JobStatus": 5}], as_of_s=AS_OF + 60)
    assert (len(known(tables)), known(tables, as_of_s=AS_OF + 60)) == (1, [])
    write(tables, "condor", [JOB], as_of_s=AS_OF + 120)
    with pytest.raises(InputError, match="no entry of condor can be used"):
        write(tables, "condor", [{"JobStatus": 1}, JOB | {"JobStatus": "?"}], as_of_s=AS_OF + 180)
    assert len(known(tables, as_of_s=AS_OF + 180)) == 1


def test_a_queue_that_grows_without_end_is_named(tables: Tables) -> None:
    def work(n: int) -> list[object]:
        return [{"job_id": str(number), "file": f"/store/{number}"} for number in range(n)]

    for n_inputs in (2, 10_000, 10_001):
        assert write(tables, "steady", work(n_inputs), as_of_s=AS_OF + n_inputs).alarms == ()
    write(tables, "grown", work(2))
    (alarm,) = write(tables, "grown", work(10_001), as_of_s=AS_OF + 1).alarms
    assert alarm.startswith("queue grown names 10001 inputs, 2 before")
    # One that stays below ten times each hour is compared with the days before.
    named = [write(tables, "slow", work(int(20 * 9.9**n)), as_of_s=AS_OF + n * 3600).alarms for n in range(4)]
    assert [bool(alarms) for alarms in named] == [False, False, False, True]
    assert write(tables, "slow", work(19_000), as_of_s=AS_OF + 9 * 86400).alarms == ()


def test_a_job_that_names_very_many_files_or_sites_costs_itself_alone() -> None:
    many = JOB | {"ClusterId": 2, "GlobalJobId": "ce#2.0#2"}
    for field, value in (
        ("Args", " ".join(f"/store/{number}" for number in range(10_001))),
        ("DESIRED_Sites", ",".join(f"T2_DE_{number}" for number in range(1001))),
    ):
        queued = accepted([many | {field: value}, JOB])
        assert [row["job_id"] for row in queued.rows.values()] == ["ce#1"]
        (reason,) = queued.refused
        assert reason.startswith("names more than ")


def test_no_owner_environment_or_argument_is_in_the_sample_of_a_reject(
    tables: Tables, tmp_path: Path
) -> None:
    private = {"Owner": "eve", "Environment": "T=s3cret", "ProdUserName": "CN=eve", "Args": "-t s3cret"}
    refused: list[object] = [
        private | JOB | {"JobStatus": 5, "GlobalJobId": "eve@ce#1.0#2"},
        private | {"pandaid": 1, "jobstatus": "done"},
        private | {"RequestName": "wf", "RequestStatus": "new"},
        f"Owner = eve; {AD}",
    ]
    kinds = ("htcondor", "panda", "reqmgr", "htcondor")
    for kind, record, n_samples in zip(kinds, refused, (1, 2, 3, 3), strict=True):
        with contextlib.suppress(InputError):
            queue.write(tables, accepted([record], kind=kind), queue=kind, source="q", as_of_s=AS_OF)  # type: ignore[arg-type]
        samples = tables.read_arrow(REJECTS)["sample"].to_pylist()
        assert len(samples) == n_samples and "eve" not in str(samples) and "s3cret" not in str(samples)
    unread = ['ClusterId = 1\nEnvironment = "s3cret"\nArgs = (((', '{"Owner": "eve",', json.dumps(private)]
    for text in unread:  # so damaged that nothing says what it is
        (tmp_path / "answer").write_text(text)
        with contextlib.suppress(InputError):
            raw = read_answer(str(tmp_path / "answer"), token="", timeout_s=1)
            queue.write(tables, accepted(raw), queue="q", source="q", as_of_s=AS_OF)
        samples = tables.read_arrow(REJECTS)["sample"].to_pylist()
        assert len(samples) == 4 and "eve" not in str(samples) and "s3cret" not in str(samples)


def test_no_token_of_what_a_job_names_is_kept(tables: Tables) -> None:
    token = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhZGEifQ.c2VjcmV0"
    asked = [f"root://o//store/mc/f.root?authz=Bearer%20{token}", f"/store/mc/g.root%3Fauthz={token}"]
    asked.append(f"srm://se.example.org:8443/srm/v2?SFN=/store/mc/h.root?authz={token}")
    write(tables, "condor", [JOB | {"Args": " ".join(asked)}])
    stated = {"job_id": "1", "files": asked}
    unknown = {"job_id": "3", "dataset": f"pelican://o.example.org/f.gwf?authz={token}"}
    refused = [stated | {"n_jobs": 0}, {"job_id": "2", "file": f"?authz={token}"}]
    write(tables, "entries", [stated, unknown, *refused])
    rows = tables.read_arrow(QUEUE).to_pylist()
    srm = "srm://se.example.org:8443/srm/v2?SFN=/store/mc/h.root"
    plain = {"root://o//store/mc/f.root", "/store/mc/g.root", srm, "pelican://o.example.org/f.gwf"}
    assert {row["input"] for row in rows} == plain
    rejects = tables.read_arrow(REJECTS).to_pylist()
    assert len(rows) == 7 and len(rejects) == 2
    assert "eyJ" not in str(rejects) and "c2Vj" not in str(rejects)
    assert known(tables) == [(2, 1.0)]


ABSURD: tuple[object, ...] = (
    *(None, True, -1, 0, 2**63, 10**400, 1e308, -1e308, "", "x" * 100_000, "/a\x00b", [], {}, [[]], [{}]),
    *("undefined", "/Expr(1/0)/", "/Expr(error)/", f"/Expr({'(' * 9_000})/", f"/Expr({'-' * 9_000}1)/"),
    *(
        '/Expr(regexp("(a+)+$", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!"))/',
        '/Expr(/* " */ ((( /* " */ 1)/',
    ),
    *(
        "Fri, 31 Dec 9999 23:59:59 UTC",
        "Fri, 31 Dec 9999 23:59:59 -1200",
        "0001-01-01T00:00:00Z",
        "1e400",
        4 * 10**12,
        ["a" * 10] * 3,
    ),
)


def damaged(record: dict[str, Any]) -> Iterable[dict[str, Any]]:
    """`record` with each of its fields, and of objects in it, absurd or absent."""
    for name, value in record.items():
        yield {other: value for other, value in record.items() if other != name}
        yield from (record | {name: absurd} for absurd in ABSURD)
        if isinstance(value, list) and value and isinstance(value[0], dict):
            yield from (record | {name: [part]} for part in damaged(value[0]))
        if isinstance(value, dict):
            yield from (record | {name: part} for part in damaged(value))


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.name)
def test_absurd_fields_are_read_as_they_can_be_or_counted(path: Path) -> None:
    whole = [record for record in read_answer(str(path), token="", timeout_s=1) if isinstance(record, dict)]
    kind = kind_of(whole)
    for record in (absurd for good in whole for absurd in damaged(good)):
        queued = accepted([record], kind=kind)  # type: ignore[arg-type]
        assert queued.n_entries and (queued.rows or queued.refused)
        assert all(len(sample) <= 200 for sample in queued.samples.values())
        rows = pa.Table.from_pylist(list(queued.rows.values()), arrow_schema(QUEUE)).to_pylist()
        for row in rows:
            assert 1 <= row["n_jobs"] <= MOST_JOBS and 0 < (row["certainty"] or 1) <= 1
            assert AS_OF < row["expires_at"].timestamp() <= AS_OF + FURTHEST_S + DAY_S
            assert len(row["input"]) <= 1024 and row["input"].isprintable()


DEEP = 10**6
WITHIN = {
    "brackets": f"A = {'(' * DEEP}",
    "lists": f"A = {'{' * DEEP}{'}' * DEEP}",
    "ads": f"A = {'[ A = ' * DEEP}",
    "signs": f"A = {'-' * DEEP}1",
    "sums": f"A = 1{'+1' * DEEP}",
    "conditions": f"A = {'1?1:' * DEEP}1",
    "an open quote": f'A = "{"(" * DEEP}',
    "comments with quotes": f'A = /* " */ {"(" * DEEP} /* " */ 1',
    "a quoted name": f"""A = '"' + {"(" * DEEP} + '"'""",
    "a line of nothing": "=" * DEEP,
}


@pytest.mark.parametrize("text", WITHIN.values(), ids=WITHIN)
def test_an_ad_that_would_end_the_library_s_stack_costs_itself_alone(tmp_path: Path, text: str) -> None:
    (tmp_path / "q").write_text(f"{AD}\n{text}\n\n{AD.replace('= 1', '= 2', 1)}")
    queued = accepted_of(tmp_path / "q")
    assert ([row["job_id"] for row in queued.rows.values()], queued.refused.total()) == (["1", "2"], 1)
    (tmp_path / "q").write_text(f"[ {AD.strip().replace(chr(10), ';')} ]\n[ {text} ]")
    with contextlib.suppress(InputError):
        assert len(accepted_of(tmp_path / "q").rows) <= 1


MANY = 50_000


@pytest.mark.parametrize(
    "value",
    [
        f"root://h//{':a=' * MANY}/x",
        '/Expr("' + '\\"' * MANY + ")/",
        f"/Expr({'a' * MANY})/",
        "/Expr(" + '"' + '\\"' * 4_000 + f"{'a' * 4_000})/",
    ],
    ids=["options", "quotes", "a word", "short ones"],
)
def test_what_a_job_may_write_takes_no_time(value: str) -> None:
    began = time.monotonic()
    ads = [JOB | {"GlobalJobId": f"ce#{n}.0#2", "Args": value} for n in range(9)]
    assert accepted([*ads]).n_entries == 9
    HOOK.read_ads(f"A = {' ' * MANY}{value}\nB = 1")
    HOOK.read_ads(f'A = "{" " * MANY}x"')
    assert time.monotonic() - began < 2


def test_a_long_text_takes_a_few_times_its_bytes_in_memory(request: pytest.FixtureRequest) -> None:
    text = "x" * 20 * MANY
    tracemalloc.start()
    request.addfinalizer(tracemalloc.stop)
    assert arc.is_description(f"(*{text}*) &(a=b)")
    assert [*classads.ads(f'[ Args = "{text}"; ]', "q")] == [{"Args": text}]
    peak_bytes = tracemalloc.get_traced_memory()[1]
    assert peak_bytes < 20 * len(text)


@pytest.mark.parametrize("text", ["[" * DEEP, '{"JobStatus":' * DEEP, '[{"Args":' + "[" * DEEP])
def test_json_without_end_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "q.json").write_text(text)
    with pytest.raises(InputError, match="is not JSON"):
        accepted_of(tmp_path / "q.json")


CHARACTERS = st.sampled_from("ab/_.: -\\(){}[]'é=;,#\t\"")
TEXTS = st.text(CHARACTERS, max_size=12).filter(lambda text: '\\"' not in text and not text.endswith("\\"))
NUMBERS = st.integers(-(2**53), 2**53) | st.floats(-1e9, 1e9).map(lambda number: round(number, 3))
LITERALS = TEXTS | NUMBERS | st.booleans() | st.sampled_from(["{ 1, undefined }"]).map(classad2.ExprTree)
NAMED = ("A", "B", "Cpus", "Missing", "TARGET.Cpus", "MY.A")
EXPRESSIONS = st.recursive(
    st.sampled_from((*NAMED, "undefined", "error", "1", "2.5", "true", '"x"')),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(("+", "*", "/", "==", "=?=", "<", "&&", "||")), inner).map(
            lambda parts: f"({' '.join(parts)})"
        ),
        inner.map(lambda value: f'strcat({value}, "/", {value})'),
        inner.map(lambda value: f"isUndefined({value})"),
        st.tuples(inner, inner, inner).map(lambda parts: f"ifThenElse({', '.join(parts)})"),
        st.tuples(inner, inner, inner).map(lambda parts: f"({parts[0]} ? {parts[1]} : {parts[2]})"),
    ),
    max_leaves=6,
)
ADS = st.fixed_dictionaries(
    {"A": LITERALS, "B": LITERALS, "Cpus": NUMBERS, "Args": TEXTS, "X": EXPRESSIONS.map(classad2.ExprTree)}
)


def plain(value: Any) -> Any:
    """A value of the library's as JSON would have it; undefined and error are unknown."""
    if isinstance(value, classad2.Value) or value != value:  # noqa: PLR0124  no number is none
        return None
    return [plain(element) for element in value] if isinstance(value, list) else value


def hook() -> Any:
    """What the hooks of conf/deploy/htcondor share."""
    spec = importlib.util.spec_from_file_location("hook", ROOT / "conf/deploy/htcondor/cachecast_hook.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


HOOK = hook()


@cases(50, thorough=500)
@given(fields=ADS)
def test_ads_say_what_the_library_says_in_each_of_its_forms(fields: dict[str, Any]) -> None:
    ad = classad2.ClassAd(fields)
    values = {name: plain(ad.eval(name)) for name in fields}
    forms = {
        "JSON": [json.loads(ad.printJson())],
        "old": list(classads.ads(ad.printOld(), "q")),
        "new": list(classads.ads(str(ad), "q")),
    }
    for form, (record,) in forms.items():
        names = folded(record)
        assert names is not None, (form, record)
        assert {name: plain(classads.value_of(name.lower(), names)) for name in fields} == values, form
    (by_hook,) = HOOK.read_ads(ad.printOld())
    assert HOOK._text(by_hook["Args"]) == values["Args"]


def test_a_task_of_crab_is_stored_as_job_records_have_it_and_not_by_its_users_name() -> None:
    crab, salt = "260301_000000:alice_crab_mine", "salt"
    place, own = dataclasses.replace(PLACE, salt=salt), {"GlobalJobId": "alice@ce#1.0#2"}
    of_two = accepted([JOB | own, JOB | {"GlobalJobId": "bob@ce#1.0#2"}], place)
    assert len({row["job_id"] for row in of_two.rows.values()}) == 2
    assert "alice" not in str(of_two.rows)
    queued = accepted([JOB | {"CRAB_ReqName": crab} | own], place)
    ((hashed,),) = duckdb.sql(f"SELECT {sql.hashed_user(literal(crab), salt)}").fetchall()
    assert [row["work"] for row in queued.rows.values()] == [f"crab:{hashed}"]
    assert "alice" not in str(queued.rows)
    unsalted = Place.of(Settings.load(env={}), AS_OF, None)
    assert unsalted.hashed(crab) != Place(AS_OF).hashed(crab)


@pytest.mark.parametrize("name", ["job_id", "PandaID", "JEDITaskID", "rse_expression", "RequestName"])
def test_an_attribute_that_a_user_adds_makes_no_other_queue_of_a_pool(name: str) -> None:
    """Else the job at the head of the queue would withdraw all that others wait for."""
    mine = JOB | {name: "x", "file": "/store/mc/mine.root"}
    others = [JOB | {"GlobalJobId": f"ce#{n}.0#2", "Args": f"/store/mc/{n}.root"} for n in range(2, 5)]
    queued = accepted([mine, *others])
    assert {f"/store/mc/{n}.root" for n in range(2, 5)} <= {row[1] for row in inputs(queued)}


MESSAGES = [json.loads(line) for line in (GOLDEN / "rucio_messages.jsonl").read_text().splitlines()]


def test_what_is_staged_from_tape_is_due_when_the_server_says_else_hours_later() -> None:
    starts = pa.Table.from_pylist(list(accepted(MESSAGES).rows.values()), arrow_schema(QUEUE)).to_pylist()
    due = {row["input"]: row["starts_at"].hour for row in starts if row["starts_at"] is not None}
    assert due == {"mc23:f3.root": 4, "cms:/store/mc/f11.root": 9}
    staged = MESSAGES[5] | {"event_type": "stagein-done", "created_at": "2026-02-28 23:00:00"}
    (row,) = [row for row in accepted([*MESSAGES, staged]).rows.values() if row["input"] == "mc23:f3.root"]
    assert row["starts_at"] is None
    task = {"jeditaskid": 1, "site": "EDGE", "datasets": [{"type": "input", "datasetname": "s:n"}]}
    for status, start in (("staging", dt.datetime(2026, 3, 1, 6, tzinfo=dt.UTC)), ("running", None)):
        (row,) = accepted([task | {"status": status}]).rows.values()
        assert row["starts_at"] == start
    rule = {"id": "r", "scope": "s", "name": "n", "rse_expression": "EDGE_DISK", "state": "REPLICATING"}
    rule |= {"created_at": "2026-02-28T22:00:00", "source_replica_expression": "CERN-PROD_DATATAPE"}
    for state, start in (("REPLICATING", dt.datetime(2026, 3, 1, 4, tzinfo=dt.UTC)), ("OK", None)):
        (row,) = accepted([rule | {"state": state}]).rows.values()
        assert row["starts_at"] == start


@cases(20, thorough=200)
@given(order=st.permutations(MESSAGES), again=st.lists(st.sampled_from(MESSAGES)))
def test_messages_in_any_order_and_again_say_the_same(order: list[object], again: list[object]) -> None:
    """A broker sends again what was not acknowledged, and several Hermes send in no order."""
    assert inputs(accepted([*order, *again])) == inputs(accepted(MESSAGES))


def test_a_subscription_of_a_pattern_that_never_ends_takes_no_time() -> None:
    new = {"event_type": "create_dts", "payload": {"scope": "mc", "name": "a" * 250 + "!"}}
    rules = [{"rse_expression": "EDGE_DISK"}]
    bad = {"name": "s", "state": "ACTIVE", "filter": {"pattern": "(a+)+$"}, "replication_rules": rules}
    queued = accepted([new, bad, bad | {"filter": {"pattern": 7}}, bad | {"filter": {"pattern": "a" * 5000}}])
    assert not queued.rows
    assert queued.refused["not a subscription: pattern is no text"] == 2


def test_of_new_datasets_times_rules_no_more_are_made_than_a_queue_may_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rucio, "MOST_INPUTS", 10)
    to = {"rse_expression": "EDGE_DISK"}
    active = {"state": "ACTIVE", "filter": {"scope": ["mc"]}}
    subscriptions = [
        active | {"name": name, "replication_rules": [to] * n} for name, n in (("a", 3), ("b", 2))
    ]
    new = [{"event_type": "create_dts", "payload": {"scope": "mc", "name": f"n{n}"}} for n in range(4)]
    queued = accepted([*new, *subscriptions])
    assert {row[0] for row in inputs(queued)} == {"subscription:None:b"} and len(queued.rows) == 4
    assert dict(queued.refused) == {"too many: more than 10 of all": 1}

    container = {"scope": "s", "name": "c"}
    rules = [container | to | {"id": f"r{n}", "state": "REPLICATING"} for n in range(4)]
    children = [container | {"childscope": "s", "childname": f"d{n}"} for n in range(4)]
    added = [{"event_type": "register_cnt", "payload": child} for child in children]
    queued = accepted([*rules, *added])
    assert {row[1] for row in inputs(queued)} == {"s:c", "s:d0", "s:d1"} and len(queued.rows) == 12
    assert dict(queued.refused) == {"too many: more than 10 of all": 2}


def test_a_rule_that_cannot_be_placed_hides_no_file_that_it_moves() -> None:
    rule = {
        "id": "aa",
        "scope": "cms",
        "name": "/A/Run3-v1/AOD",
        "state": "REPLICATING",
        "rse_expression": "tier=2",
    }
    assert inputs(accepted([rule, *MESSAGES[:3]])) == inputs(accepted(MESSAGES[:3])) != []
