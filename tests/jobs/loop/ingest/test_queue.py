"""Queues of jobs and prefills, from a file or a URL to the plan and the cache."""

import datetime as dt
import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import http_answers
import pytest
from access_rows import accesses
from cachecast_main import asked as call
from folder_site import folder_site, write_files
from table_rows import put_files

from features.common import deadline
from features.common.errors import InputError, ServiceError
from features.common.times import as_of_label, day_label, parse_as_of
from features.results import ANNOUNCED
from features.schema import ACCESSES, PLANS, PREDICTIONS, QUEUE, RECEIPTS, REJECTS
from jobs.ground.settings.tree import CacheSettings, Settings
from jobs.ground.store.commits import MomentKey
from jobs.ground.store.tables import Tables
from jobs.loop.ingest import queue, queue_entries
from jobs.loop.ingest.announced import reports
from jobs.loop.plan import plan
from jobs.loop.plan.cache_state import CacheAtMoment
from jobs.loop.push import prefill
from jobs.loop.steward.running import QueueReader
from prefetch.plan.rules import is_control

pytestmark = pytest.mark.usefixtures("names_once")
AS_OF = 1_772_323_200  # 2026-03-01T00:00:00Z
HOUR_S, DAY_S, MB = 3600, 86400, 10**6
DATASET = "cms:/A/Run3-v1/AOD"
CACHE = CacheSettings(name="xc1", kind="xcache", url="root://xc1:1094", site="EDGE", capacity=100 * MB)
SETTINGS = Settings.load(env={})


def lfn(i: int) -> str:
    return f"/store/mc/Run3/A/AOD/v1/000/f{i}.root"


PLANNED = [i for i in range(40) if not is_control([f"cms:{lfn(i)}"], SETTINGS.plan.control_share)[0]]


def at(moment_s: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(moment_s, dt.UTC)


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    tables = Tables(str(tmp_path / "tables"))
    known = {i: at(AS_OF - DAY_S if i != 19 else AS_OF + DAY_S) for i in range(40)}
    datasets = [DATASET] * 20 + ["cms:/B/Run3-v1/AOD"] * 20
    files = [{"name": lfn(i), "dataset": datasets[i], "known_at": known[i]} for i in range(40)]
    put_files(tables, files, size_bytes=MB)
    predicted = [
        {"did": f"cms:{lfn(i)}", "horizon_s": h, "probability": 0.01, "expected_accesses": 0.01}
        | {"size_bytes": MB, "last_read_s": 3600, "model_version": "m/1"}
        for i in range(30, 40)
        for h in SETTINGS.features.horizons
    ]
    tables.replace_rows(PREDICTIONS, predicted, MomentKey.at(AS_OF, "default"))
    return tables


def settings_of(tables: Tables, **more: str) -> Settings:
    return Settings.load(env={f"CACHECAST_{key}": value for key, value in more.items()}, tables=tables.root)


def ask(tables: Tables, stated: object, folder: Path, *, name: str = "q", as_of_s: int = AS_OF) -> Any:
    path = folder / f"{name}.json"
    path.write_text(json.dumps(stated))
    return queue.run(settings_of(tables), name=name, source=str(path), as_of_s=as_of_s)


def known(tables: Tables, *, as_of_s: int = AS_OF, cache: str = "xc1", site: str = "EDGE") -> Any:
    return queue.known_work(tables, as_of_s=as_of_s, cache=cache, site=site)


def test_a_queue_says_the_same_in_json_lines_csv_json_and_with_an_order_mark_and_nulls(
    tables: Tables, tmp_path: Path
) -> None:
    jobs = [
        {"job_id": 1, "dataset": DATASET, "n_jobs": 12, "expected_start": "2026-03-01T06:00:00Z"},
        {"job_id": "2", "file": lfn(30), "known_at": "2026-02-28T23:00:00Z", "priority": 3},
    ]
    (tmp_path / "a.json").write_text(json.dumps({"jobs": jobs}), encoding="utf-8-sig")
    (tmp_path / "b.jsonl").write_text("\n".join(map(json.dumps, jobs)))
    (tmp_path / "c.csv").write_text(
        "job_id,dataset,file,n_jobs,expected_start,known_at\n"
        f"1,{DATASET},,12,2026-03-01T06:00:00Z,\n2,,{lfn(30)},,,2026-02-28T23:00:00Z\n",
    )
    (tmp_path / "d.csv").write_text("\ufeff" + (tmp_path / "c.csv").read_text())  # as Excel writes
    nulls = dict.fromkeys(("dataset", "file", "files", "n_jobs", "certainty", "until", "site"))
    (tmp_path / "e.json").write_text("\ufeff" + json.dumps([nulls | job for job in jobs]))
    answers = []
    for name in ("a.json", "b.jsonl", "c.csv", "d.csv", "e.json"):
        queue.run(settings_of(tables), name="q", source=str(tmp_path / name), as_of_s=AS_OF)
        rows = tables.read_arrow(QUEUE).sort_by("job_id").to_pylist()
        answers.append(rows)
        assert tables.read_arrow(REJECTS).num_rows == 0 if tables.exists(REJECTS) else True
    assert all(rows == answers[0] for rows in answers) and len(answers[0]) == 2
    assert (answers[0][0]["n_jobs"], answers[0][0]["expires_at"]) == (12, at(AS_OF + 6 * HOUR_S + DAY_S))
    files = {row["did"]: row for row in known(tables).files.to_pylist()}
    # File 19 is of the dataset, but was not known yet.
    assert set(files) == {f"cms:{lfn(i)}" for i in (*range(19), 30)}
    assert (files[f"cms:{lfn(0)}"]["n_jobs"], files[f"cms:{lfn(0)}"]["wait_s"]) == (12, 6 * HOUR_S)


def test_what_is_malformed_is_counted_with_its_reason(tables: Tables, tmp_path: Path) -> None:
    stated = [
        {"job_id": "ok", "files": [lfn(0), lfn(0), "/no/such.root"]},
        {"job_id": "ok", "files": [lfn(0)]},
        {"files": [lfn(1)]},
        {"job_id": "none"},
        {"job_id": "late", "dataset": DATASET, "known_at": "2026-03-01T00:00:01Z"},
        {"job_id": "far", "dataset": DATASET, "expected_start": "2027-03-01"},
        {"job_id": "when", "dataset": DATASET, "expected_start": "soon"},
        {"job_id": "few", "dataset": DATASET, "n_jobs": 0},
        {"job_id": "odd", "files": ["/a\nb"]},
        "no object",
    ]
    answer = ask(tables, stated, tmp_path)
    assert (answer.entries, answer.inputs, answer.duplicates) == (10, 2, 2)
    assert answer.entries == 2 + sum(answer.rejected.values()) and len(answer.rejected) == 8
    rejects = tables.read_arrow(REJECTS).to_pylist()
    assert {row["reason"]: row["n_rows"] for row in rejects} == answer.rejected
    assert all(row["source"] == "queued_jobs" and row["sample"] for row in rejects)
    assert known(tables).n_unknown == 1
    later = ask(tables, stated[4:5], tmp_path, name="later")
    assert (later.entries, later.inputs) == (1, 0), "jobs that came since, and none that waited then"
    with pytest.raises(InputError, match="no entry of"):
        ask(tables, stated[2:4], tmp_path)
    assert known(tables).files.num_rows == 1, "an unusable queue does not replace a usable one"


def test_queues_that_are_read_at_once_all_count_what_they_refuse(tables: Tables, tmp_path: Path) -> None:
    stated = [{"job_id": "1", "file": lfn(1)}, {"job_id": "none"}]
    with ThreadPoolExecutor(5) as pool:
        list(pool.map(lambda n: ask(tables, stated, tmp_path, name=f"q{n}"), range(5)))
    assert tables.read_arrow(REJECTS).num_rows == len(tables.snapshot(QUEUE).partitions) == 5


def test_a_decision_time_to_come_deletes_no_message_that_was_collected(
    tables: Tables, tmp_path: Path
) -> None:
    (messages := tmp_path / "bus/rucio").mkdir(parents=True)
    for name, age_s in (("new", 0), ("old", 8 * DAY_S)):
        (messages / f"rucio-{name}.jsonl").write_text("{}\n")
        os.utime(messages / f"rucio-{name}.jsonl", (time.time() - age_s,) * 2)
    as_of_s = int(time.time()) + 30 * DAY_S
    queue.run(settings_of(tables), name="rucio", source=str(messages), as_of_s=as_of_s)
    assert [path.name for path in messages.iterdir()] == ["rucio-new.jsonl"]


def test_who_names_very_much_costs_nobody_else_an_entry_and_is_named(
    tables: Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one owner in many jobs, of one task, and of one job; 20 names of others come before and after."""
    monkeypatch.setattr(queue_entries, "MOST_INPUTS", 100)
    monkeypatch.setattr(queue_entries, "MOST_OF_ONE", 25)
    much = [
        *(
            {"job_id": f"o{n}", "owner": "eve", "work": f"w{n}", "files": [f"/o/{n}", f"/o/x{n}"]}
            for n in range(50)
        ),
        *({"job_id": f"t{n}", "work": "task", "file": f"/t/{n}"} for n in range(50)),
        {"job_id": "j", "files": [f"/j/{n}" for n in range(50)]},
    ]
    others = [{"job_id": f"{n}", "owner": "dan", "file": lfn(n)} for n in range(20)]
    answer = ask(tables, others[:10] + much + others[10:], tmp_path)
    rows = tables.read_arrow(QUEUE).to_pylist()
    assert {lfn(n) for n in range(20)} <= {row["input"] for row in rows}
    assert (answer.inputs, answer.rejected) == (
        20 + 24 + 25,
        {"too many: more than 25 of one owner": 38 + 25 + 1},
    )
    assert answer.alarms == ("queue q: 64 entries were refused, too many: more than 25 of one owner",)
    assert "eve" not in str(tables.read_arrow(REJECTS).to_pylist())
    (report,) = reports(tables, as_of_s=AS_OF)
    assert report.fault == answer.alarms[0]
    ask(tables, others, tmp_path, as_of_s=AS_OF + 60)
    assert reports(tables, as_of_s=AS_OF + 60)[0].fault is None
    ask(tables, [{"job_id": f"{n}", "file": f"/m/{n}"} for n in range(101)], tmp_path, name="all")
    assert tables.read_arrow(REJECTS)["reason"].to_pylist() == ["too many: more than 100 of all"]


def test_accounts_without_end_or_with_users_without_end_leave_room_for_others(
    tables: Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_entries, "MOST_INPUTS", 100)
    monkeypatch.setattr(queue_entries, "MOST_OF_ONE", 25)
    ads = [
        {"GlobalJobId": f"s#{n}.0#1", "ClusterId": n, "ProcId": 0, "JobStatus": 1, "Owner": owner}
        | {"CRAB_UserHN": f"u{n}", "CachecastInputs": file}
        for owner, file, n in [
            *(("eve", f"/store/mc/Run3/e/{n}.root", n) for n in range(300)),
            *(("dan", lfn(n), 300 + n) for n in range(40)),
        ]
    ]
    answer = ask(tables, ads, tmp_path)
    inputs = tables.read_arrow(QUEUE)["input"].to_pylist()
    assert {lfn(n) for n in range(40)} <= set(inputs)
    assert answer.rejected == {"too many: more than 100 of all": 250}
    assert answer.jobs == answer.inputs == len(inputs) == 90
    mixed: list[dict[str, Any]] = [
        {"job_id": f"n{n}", "owner": f"eve{n // 90}", "file": f"/m/{n}"} for n in range(900)
    ]
    mixed[500:500] = [{"job_id": "d", "owner": "dan", "files": [lfn(n) for n in range(50, 55)]}]
    ask(tables, mixed, tmp_path, name="mixed")
    assert {lfn(n) for n in range(50, 55)} <= set(tables.read_arrow(QUEUE)["input"].to_pylist())


def test_a_name_repeated_without_end_takes_the_room_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_entries, "MOST_INPUTS", 100)
    monkeypatch.setattr(queue_entries, "MOST_OF_ONE", 60)
    raw: list[object] = [{"job_id": f"a{n}", "owner": f"ada\n{n % 2}", "file": lfn(n)} for n in range(99)]
    raw += [{"job_id": "e", "owner": "eve", "files": [lfn(1)] * 45}]
    checked = queue_entries.check_entries(raw, as_of_s=AS_OF, stale_s=DAY_S)
    assert (len(checked.rows), checked.n_duplicates, checked.refused) == (100, 44, {})


def test_who_names_the_work_of_others_first_takes_none_of_it_along(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_entries, "MOST_INPUTS", 100)
    raw: list[object] = [{"job_id": f"e{n}", "owner": f"eve\n{n}", "file": f"/e/{n}"} for n in range(90)]
    raw += [{"job_id": "a", "owner": owner, "file": lfn(1)} for owner in ("eve", "eve", "eva", "ada")]
    raw += [{"job_id": f"b{n}", "owner": "ben", "file": f"/b/{n}"} for n in range(30)]
    checked = queue_entries.check_entries(raw, as_of_s=AS_OF, stale_s=DAY_S)
    assert ("a", False, lfn(1), None) in checked.rows
    assert sum(key[0].startswith("b") for key in checked.rows) == 30


def test_what_is_valid_for_long_counts_as_long_and_prefills_run_out_unnoticed(tables: Tables) -> None:
    raw, long_s = [{"job_id": "1", "file": lfn(1)}], 150 * DAY_S
    checked = queue_entries.check_entries(raw, as_of_s=AS_OF, stale_s=long_s)
    queue.write(tables, checked, queue="q", source="q", as_of_s=AS_OF)
    prefill_rows(tables, [lfn(0)], AS_OF, request="prefill-0")
    queue.forget(tables, "other", as_of_s=AS_OF + long_s - 1, stale_s=long_s)
    last = known(tables, as_of_s=AS_OF + long_s - 1)
    assert (last.files["did"].to_pylist(), last.n_stale) == ([f"cms:{lfn(1)}"], 0)
    assert known(tables, as_of_s=AS_OF + long_s).n_stale == 1


def prefill_rows(tables: Tables, names: list[str], at_s: int, *, request: str) -> None:
    """What a prefill of these files leaves in the queue table."""
    raw = [{"job_id": request, "work": request, "file": name} for name in names]
    checked = queue_entries.check_entries(raw, as_of_s=at_s, stale_s=DAY_S)
    for row in checked.rows.values():
        row["cache"] = "xc1"
    queue.write(tables, checked, queue=request, source="prefill", as_of_s=at_s)
    queue.fold_prefills(tables, at_s)


def test_prefills_without_end_cost_what_stands(tables: Tables) -> None:
    """A prefill of one file every forty minutes for two days, each file by turns."""
    began_s = AS_OF - 2 * DAY_S
    for n in range(72):
        prefill_rows(tables, [lfn(n % 18)], began_s + n * 2400, request=f"prefill-{n:012x}")
    last_s = began_s + 71 * 2400
    head = tables.head(QUEUE)
    assert len(head.partitions) <= queue.MOST_PREFILLS + 2
    assert head.n_rows <= 36 + queue.MOST_PREFILLS
    jobs = known(tables, as_of_s=last_s).files.select(["did", "n_jobs"]).to_pylist()
    assert jobs == [{"did": f"cms:{lfn(i)}", "n_jobs": 2} for i in range(18)]
    # One that is repeated counts once, before and after it is folded.
    for again in range(queue.MOST_PREFILLS + 2):
        prefill_rows(tables, [lfn(0)], last_s + again, request="prefill-again")
        assert known(tables, as_of_s=last_s + again).files["n_jobs"][0].as_py() == 3
    assert known(tables, as_of_s=last_s + 2 * DAY_S).files.num_rows == 0
    prefill_rows(tables, [lfn(1)], last_s + 9 * DAY_S, request="prefill-new")
    queue.fold_prefills(tables, last_s + 9 * DAY_S, most=0)
    assert tables.head(QUEUE).n_rows == 1


def test_a_decision_time_to_come_costs_nothing_that_stands(tables: Tables, tmp_path: Path) -> None:
    """Neither a prefill, nor what a queue said long ago of work to come, nor its queue's trust."""
    now_s = int(time.time())
    job = {"job_id": "1", "file": lfn(1), "expected_start": as_of_label(now_s + 10 * DAY_S)}
    for at_s in (now_s - 30 * DAY_S, now_s + 9 * DAY_S):
        ask(tables, [job], tmp_path, as_of_s=at_s)
    for at_s in (now_s, now_s + 300 * DAY_S):
        prefill_rows(tables, [lfn(0)], at_s, request="prefill-0")
    queue.fold_prefills(tables, now_s, most=0)
    queue.forget(tables, "other", as_of_s=now_s, stale_s=DAY_S)
    assert known(tables, as_of_s=now_s).files["did"].to_pylist() == [f"cms:{lfn(i)}" for i in (0, 1)]
    tables.replace_arrow(ACCESSES, accesses([{"accessed_at": at(now_s), "name": lfn(30)}]))
    ask(tables, [{"job_id": "1", "file": lfn(1)}], tmp_path, as_of_s=now_s)
    ask(tables, [], tmp_path, as_of_s=now_s + 4 * DAY_S)
    assert not tables.exists(ANNOUNCED), "today's reads are not known yet"


def test_a_queue_is_not_called_as_prefills_are(tables: Tables, tmp_path: Path) -> None:
    """It would be folded as they are, believed whatever it says, and what it withdraws would stand."""
    with pytest.raises(InputError, match="prefill-"):
        ask(tables, [{"job_id": "1", "file": lfn(1)}], tmp_path, name="prefill-ce")
    assert not tables.exists(QUEUE)


def test_what_starts_late_or_hardly_makes_nothing_else_soon(tables: Tables, tmp_path: Path) -> None:
    """Of another job, in the same queue or another: neither wins or loses by the other's time."""
    late = {"expected_start": as_of_label(AS_OF - 2 * DAY_S)}
    far = {"expected_start": as_of_label(AS_OF + 80 * DAY_S)}
    ask(tables, [{"job_id": "1", "files": [lfn(0), lfn(1)]} | late], tmp_path)
    ask(tables, [{"job_id": "2", "file": lfn(0)} | far], tmp_path, name="far")
    ask(tables, [{"job_id": "3", "file": lfn(1)} | far, {"job_id": "4", "file": lfn(2)}], tmp_path, name="p")
    rows = known(tables).files.select(["wait_s", "late_s"]).to_pylist()
    assert rows == [{"wait_s": 0, "late_s": 2 * DAY_S}] * 2 + [{"wait_s": 0, "late_s": 0}]
    hardly = {"job_id": "5", "certainty": 0.001}
    soon = {"job_id": "6", "expected_start": as_of_label(AS_OF + 5 * DAY_S)}
    forged = {"job_id": "7", "file": lfn(4), "expected_start": "1971-01-01"}
    ask(
        tables, [soon | {"files": [lfn(i) for i in (3, 4, 5)]}, hardly | {"file": lfn(3)}], tmp_path, name="s"
    )
    ask(tables, [hardly | {"file": lfn(0)}, hardly | {"dataset": DATASET}, forged], tmp_path, name="hardly")
    half = {"job_id": "8", "file": lfn(7), "certainty": 0.3}
    ask(tables, [half, {"job_id": "9", "file": lfn(7)} | far], tmp_path, name="half")
    files = {row["did"].removeprefix("cms:"): row for row in known(tables).files.to_pylist()}
    assert [files[lfn(i)]["wait_s"] for i in (3, 4, 5, 7)] == [5 * DAY_S] * 3 + [0]
    assert [files[lfn(i)]["late_s"] for i in (0, 1, 6)] == [2 * DAY_S, 2 * DAY_S, 0]


def test_a_queue_that_is_read_for_months_keeps_what_judges_it(tables: Tables, tmp_path: Path) -> None:
    ask(tables, [{"job_id": "1", "file": lfn(2)}], tmp_path, name="given-up")
    for day in range(60):
        ask(tables, [{"job_id": "1", "file": lfn(1)}], tmp_path, as_of_s=AS_OF + day * DAY_S)
    mine = [key[0] for key in sorted(tables.head(QUEUE).partitions) if key[2] == "q"]
    assert mine == [day_label(AS_OF + day * DAY_S) for day in range(40, 60)]
    assert known(tables, as_of_s=AS_OF + 59 * DAY_S).n_stale == 1, "the newest of each queue stays"
    ask(tables, [{"job_id": "1", "file": lfn(1)}], tmp_path, as_of_s=AS_OF + 120 * DAY_S)
    assert {key[2] for key in tables.head(QUEUE).partitions} == {"q"}


def test_a_rule_that_two_queues_name_is_one_work(tables: Tables, tmp_path: Path) -> None:
    """As a dataset by the server, as the files that it moves by its messages, as sure or surer."""
    rule = {"job_id": "rule:a", "work": "rule:a", "certainty": 0.5}
    ask(tables, [rule | {"dataset": DATASET}], tmp_path, name="server")
    moved = [
        rule | {"file": lfn(0)},
        rule | {"file": lfn(1), "certainty": 0.8},
        rule | {"file": lfn(2), "work": "rule:b"},
    ]
    ask(tables, moved, tmp_path, name="bus")
    files = {row["did"].removeprefix("cms:"): row for row in known(tables).files.to_pylist()}
    assert {lfn(i): round(files[lfn(i)]["certainty"], 6) for i in range(4)} == dict(
        zip(map(lfn, range(4)), (0.5, 0.8, 0.75, 0.5), strict=True)
    )
    assert [files[lfn(i)]["n_jobs"] for i in range(4)] == [1, 1, 2, 1]
    assert [files[lfn(i)]["queues"] for i in (0, 3)] == ["bus, server", "server"]


def test_what_was_not_known_or_is_no_longer_believed_does_not_count(tables: Tables, tmp_path: Path) -> None:
    ask(tables, [{"job_id": "1", "files": [lfn(0)]}], tmp_path)
    assert known(tables, as_of_s=AS_OF - 1).files.num_rows == 0
    assert known(tables, as_of_s=AS_OF + DAY_S - 1).files.num_rows == 1
    stale = known(tables, as_of_s=AS_OF + DAY_S)
    assert (stale.files.num_rows, stale.n_stale) == (0, 1)
    # The next answer replaces the last one of that queue, and of no other.
    ask(tables, [{"job_id": "2", "files": [lfn(1)]}], tmp_path, name="other", as_of_s=AS_OF + 1)
    ask(tables, [], tmp_path, as_of_s=AS_OF + HOUR_S)
    assert known(tables, as_of_s=AS_OF + HOUR_S - 1).files["did"].to_pylist() == [
        f"cms:{lfn(i)}" for i in (0, 1)
    ]
    assert known(tables, as_of_s=AS_OF + HOUR_S).files["did"].to_pylist() == [f"cms:{lfn(1)}"]


def test_a_queue_of_a_site_is_judged_by_what_is_read_there(tables: Tables, tmp_path: Path) -> None:
    """By its cache, and by the name that traces give it."""
    reads = [{"name": lfn(0), "cache": "xc1"}, {"name": lfn(1), "site": "T2_DE_EDGE"}]
    reads += [{"name": lfn(2), "cache": "xc9", "site": "FAR"}]
    rows = [{"accessed_at": at(AS_OF + HOUR_S)} | read for read in reads]
    tables.replace_arrow(ACCESSES, accesses(rows))
    (tmp_path / "site.toml").write_text(
        '[queue.sites]\nEDGE = ["T2_DE_EDGE"]\n[caches.xc1]\nname = "xc1"\nkind = "xcache"\nsite = "EDGE"\n'
        'url = "root://xc1:1094"\ncapacity = "1TB"\n'
    )
    settings = Settings.load(tmp_path / "site.toml", env={}, tables=tables.root)
    path = tmp_path / "q.json"
    for moment_s, jobs in (
        (AS_OF, [{"job_id": "1", "files": [lfn(i) for i in range(3)]}]),
        (AS_OF + 3 * DAY_S, []),
    ):
        path.write_text(json.dumps(jobs))
        queue.run(settings, name="q", source=str(path), as_of_s=moment_s, site="EDGE")
    (row,) = tables.read_arrow(ANNOUNCED).to_pylist()
    assert (row["files"], row["read_files"]) == (3, 2)


def test_a_site_that_is_none_of_ours_is_named_and_one_called_otherwise_is_known(
    tables: Tables, tmp_path: Path
) -> None:
    """Its entries would be taken, used by no cache, and never judged."""
    (tmp_path / "site.toml").write_text('[queue.sites]\nEDGE = ["T2_DE_EDGE"]\n')
    settings = Settings.load(tmp_path / "site.toml", env={}, tables=tables.root)
    sites = ("EDGE", "T2_DE_EDGE", "edge", "ЕDGE", "")
    stated = [{"job_id": str(i), "file": lfn(i), "site": name} for i, name in enumerate(sites)]
    path = tmp_path / "q.json"
    path.write_text(json.dumps(stated))
    answer = queue.run(settings, name="q", source=str(path), as_of_s=AS_OF, site="EDGE")
    assert answer.rejected == {"for other sites": 2}
    assert known(tables).files["did"].to_pylist() == [f"cms:{lfn(i)}" for i in (0, 1, 4)]
    with pytest.raises(InputError, match=r"no site EGDE.* EDGE"):
        queue.run(settings, name="q", source=str(path), as_of_s=AS_OF + 1, site="EGDE")


def test_who_calls_himself_as_another_takes_nothing_of_his(
    tables: Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anybody may write CRAB's attributes into an ad; the owner is the schedd's word."""
    monkeypatch.setattr(queue_entries, "MOST_OF_ONE", 5)
    said = [("eve", f"/store/mc/Run3/e/{n}.root", n) for n in range(9)] + [("crab", lfn(0), 9)]
    ads = [
        {"GlobalJobId": f"s#{n}.0#1", "ClusterId": n, "ProcId": 0, "JobStatus": 1, "Owner": owner}
        | {"CRAB_UserHN": "dan", "CRAB_ReqName": f"260301_000000:dan_{n}", "CachecastInputs": file}
        for owner, file, n in said
    ]
    answer = ask(tables, ads, tmp_path)
    assert answer.rejected == {"too many: more than 5 of one owner": 4}
    assert lfn(0) in tables.read_arrow(QUEUE)["input"].to_pylist()


def planned(tables: Tables) -> list[dict[str, Any]]:
    roomy = SETTINGS.plan.model_copy(update={"prefetch_share": 1.0})
    settings = settings_of(tables).model_copy(update={"plan": roomy})
    answer = plan.make(CacheAtMoment(tables, settings, CACHE, [], set(), AS_OF))
    rows: list[dict[str, Any]] = tables.read_arrow(PLANS, as_of=as_of_label(AS_OF), owner="xc1").to_pylist()
    assert answer.prefetch == len(rows)
    return rows


def test_a_plan_takes_what_is_queued_and_without_a_queue_is_as_it_was(tables: Tables, tmp_path: Path) -> None:
    assert planned(tables) == []
    ask(tables, [{"job_id": "1", "dataset": "/A/Run3-v1/AOD", "n_jobs": 12}], tmp_path)
    rows = planned(tables)
    names = {row["name"] for row in rows}
    assert {lfn(i) for i in PLANNED if i < 10} <= names <= {lfn(i) for i in PLANNED if i < 19}
    assert sum(row["cost_bytes"] for row in rows) <= 10 * MB, "no more than the assumed inflow"
    assert {row["reason"] for row in rows} == {"queued: 12 jobs; not on disk yet"}
    assert not any(row["needs_model"] for row in rows)


def test_a_queue_that_names_everything_takes_a_bounded_share_of_the_fetches(
    tables: Tables, tmp_path: Path
) -> None:
    predicted = tables.read_arrow(PREDICTIONS).to_pylist()
    likely = [row | {"probability": 0.9, "expected_accesses": 1.0} for row in predicted]
    tables.replace_rows(PREDICTIONS, likely, MomentKey.at(AS_OF, "default"))
    jobs = [{"job_id": str(n), "dataset": DATASET, "n_jobs": 10**9} for n in range(1000)]
    ask(tables, jobs, tmp_path, name="liar")
    fetched: dict[bool, int] = {True: 0, False: 0}
    for row in planned(tables):
        fetched[row["reason"].startswith("queued")] += row["cost_bytes"]
    assert 0 < fetched[True] <= SETTINGS.plan.queued_share * 10 * MB
    assert fetched[False] >= MB
    lied = {"files": 900, "read_files": 0, "claimed": 900.0, "kept": 0.0, "judged_at": at(AS_OF)}
    tables.replace_rows(ANNOUNCED, [lied], (day_label(AS_OF - 3 * DAY_S), "liar"))
    assert {row["queues"] for row in planned(tables)} == {None}, "it costs nothing once it was found to lie"


class Batch(http_answers.Answers):
    """Answers a queue to those with the token, and sends others elsewhere."""

    def do_GET(self) -> None:
        if self.path == "/moved":
            self.say(302, location="/queue")
        elif self.headers.get("Authorization") != "Bearer s3cret":
            self.send_error(401)
        else:
            jobs = json.dumps([{"job_id": "7", "files": [lfn(5)]}])
            body = (jobs if self.path.startswith("/queue") else "<html>").encode()
            self.say(200, body)


answering = partial(http_answers.answering, Batch)


def test_a_queue_is_asked_by_url_with_a_token_of_the_environment(
    tables: Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "netrc").write_text("default login ada password of-another-server\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    trusted = settings_of(tables, QUEUE__TOKEN="s3cret")
    with answering() as url:
        asked = f"{url}/queue?key=hidden"
        answer = queue.run(trusted, name="q", source=asked, as_of_s=AS_OF)
        assert answer.inputs == 1 and known(tables).files["did"].to_pylist() == [f"cms:{lfn(5)}"]
        with pytest.raises(ServiceError, match="answers 401; set CACHECAST_QUEUE__TOKEN") as caught:
            queue.run(settings_of(tables), name="q", source=asked, as_of_s=AS_OF)
        assert "hidden" not in str(caught.value)
        with pytest.raises(ServiceError, match="answers 302"):
            queue.run(trusted, name="q", source=f"{url}/moved", as_of_s=AS_OF)
        with pytest.raises(InputError, match="is not JSON"):
            queue.run(trusted, name="q", source=f"{url}/page", as_of_s=AS_OF)
    with pytest.raises(ServiceError, match="does not answer"):
        queue.run(trusted, name="q", source=asked, as_of_s=AS_OF)
    with pytest.raises(InputError, match="not sent over plain http"):
        queue.run(trusted, name="q", source="http://batch.example.org/q", as_of_s=AS_OF)


@pytest.fixture
def site(tables: Tables, tmp_path: Path) -> list[str]:
    """The options of a site with a directory cache whose origin holds every file."""
    write_files(tmp_path / "origin", map(lfn, range(40)), b"x" * MB)
    return ["--conf", str(folder_site(tmp_path, capacity="30MB")), "--tables", tables.root]


def test_a_prefill_fetches_journals_and_is_known_to_the_next_plan(
    tables: Tables, tmp_path: Path, site: list[str]
) -> None:
    (tmp_path / "list.txt").write_text(f"\ufeff# of a task\ncms:{lfn(0)}\n\n{lfn(1)}\n/store/no/such.root\n")
    asked = ["prefill", "--cache", "dir", "--files", str(tmp_path / "list.txt"), "--jobs", "3", *site]
    dry = call(*asked, "--dry-run")
    expected = {lfn(i) for i in (0, 1) if i in PLANNED}
    assert (dry["files"], dry["prefetch"], dry["unknown"], dry["pushed"]) == (2, len(expected), 1, None)
    assert not tables.exists(PLANS) and not tables.exists(QUEUE)
    assert not list((tmp_path / "cache").rglob("*.root"))
    stated = call(*asked)
    assert stated["pushed"]["pushed"] == len(expected)
    on_disk = {
        f"/{p.relative_to(tmp_path / 'cache' / 'files')}" for p in (tmp_path / "cache").rglob("*.root")
    }
    assert on_disk == expected
    done = tables.read_arrow(RECEIPTS).to_pylist()
    assert {row["state"] for row in done} == {"done"} and len(done) == len(expected)
    reasons = {row["reason"] for row in tables.read_arrow(PLANS).to_pylist()}
    assert reasons == {"queued: 3 jobs; not on disk yet"}
    # The next plan holds them, though nothing predicts them.
    later = tables.snapshot(PLANS).select(owner="dir")
    as_of_s = parse_as_of(next(iter(later))[1])
    assert known(tables, as_of_s=as_of_s, cache="dir", site="dir").files.num_rows == 2
    assert known(tables, as_of_s=as_of_s, cache="xc1").files.num_rows == 0


def test_prefills_without_end_fetch_in_a_cycle_what_one_may(tables: Tables, site: list[str]) -> None:
    conf = Path(site[1])
    conf.write_text(conf.read_text() + '[plan]\nwan_per_hour = "8MB"\nassumed_inflow = 0\n')
    for dataset, n in ((DATASET, 8), ("cms:/B/Run3-v1/AOD", 0)):
        answer = call("prefill", "--cache", "dir", "--dataset", dataset, *site)
        assert (answer["prefetch"], answer["bound_by"]) == (n, "WAN bytes per hour, less demand")
    later = as_of_label(parse_as_of(answer["as_of"]) + HOUR_S)
    assert call("prefill", "--cache", "dir", "--dataset", DATASET, "--as-of", later, *site)["prefetch"] == 8


def test_a_prefill_again_pins_what_is_there_and_refuses_a_plans_own_moment(
    tables: Tables, site: list[str]
) -> None:
    asked = ["prefill", "--cache", "dir", "--dataset", DATASET, *site]
    first = call(*asked)
    n_planned = sum(i in PLANNED for i in range(20))
    assert (first["files"], first["prefetch"], first["on_disk"]) == (20, n_planned, 0)
    assert first["left_out"] == {"of the control group, which is never planned": 20 - n_planned}
    later_s = parse_as_of(first["as_of"]) + 60
    again = call(*asked, "--as-of", as_of_label(later_s))
    assert (again["prefetch"], again["on_disk"], again["queue"]) == (0, n_planned, first["queue"])
    run = partial(
        prefill.run,
        Settings.load(Path(site[1]), tables=tables.root),
        cache="dir",
        dry_run=False,
        on_progress=lambda *_: None,
    )
    with pytest.raises(InputError, match=f"has a plan at {as_of_label(later_s)}"):
        run(prefill.PrefillRequest([DATASET], []), as_of_s=later_s)
    with pytest.raises(InputError, match="knows none of the 1 names"):
        run(prefill.PrefillRequest([], ["/no.root"]), as_of_s=later_s + 1)


def test_a_queue_that_never_ends_is_an_error_that_names_it(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deadline, "MOST_BYTES", 20)
    with answering() as url, pytest.raises(ServiceError, match=rf"queue at {url}/queue: .* longer than"):
        queue.run(settings_of(tables, QUEUE__TOKEN="s3cret"), name="q", source=f"{url}/queue", as_of_s=AS_OF)


def test_a_steward_is_told_when_queued_files_are_due(tables: Tables, tmp_path: Path) -> None:
    """A job without a start is due when it was first seen; a queue that cannot be read says nothing."""
    queued = QueueReader(tables, CACHE)
    assert queued.due_s(AS_OF) == {}
    jobs = [
        {"job_id": "1", "files": [lfn(0)], "expected_start": as_of_label(AS_OF + 6 * HOUR_S)},
        {"job_id": "2", "files": [lfn(1)]},
        {"job_id": "3", "files": [lfn(2)], "known_at": as_of_label(AS_OF - 5 * HOUR_S)},
    ]
    due_s = {lfn(0): AS_OF + 6 * HOUR_S, lfn(1): AS_OF, lfn(2): AS_OF - 5 * HOUR_S}
    ask(tables, jobs, tmp_path)
    assert queued.due_s(AS_OF) == due_s
    ask(tables, jobs, tmp_path, as_of_s=AS_OF + HOUR_S)
    assert queued.due_s(AS_OF + HOUR_S) == due_s
    began_anew = QueueReader(tables, CACHE).due_s(AS_OF + HOUR_S)
    assert began_anew == due_s | {lfn(1): AS_OF + HOUR_S}
    assert queued.due_s(AS_OF + 7 * HOUR_S) == due_s
    assert set(queued.due_s(AS_OF + 28 * HOUR_S)) == {lfn(0)}
    for commit in Path(tables.root, "queue").rglob("*.json"):
        commit.write_text("{")
    assert QueueReader(tables, CACHE).due_s(AS_OF + HOUR_S) == {}


def test_a_forged_start_costs_others_no_due_time(tables: Tables, tmp_path: Path) -> None:
    queued = QueueReader(tables, CACHE)
    ask(tables, [{"job_id": "1", "file": lfn(1), "expected_start": "1971-01-01"}], tmp_path)
    assert queued.due_s(AS_OF)[lfn(1)] < 40_000_000
    ask(tables, [{"job_id": "2", "file": lfn(1)}], tmp_path, name="true", as_of_s=AS_OF + HOUR_S)
    assert queued.due_s(AS_OF + HOUR_S) == {lfn(1): AS_OF}
