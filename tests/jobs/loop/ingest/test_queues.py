"""What brokers answer, read as a queue: fields as public code names them, values of our own."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pytest

from features.common.errors import InputError
from features.schema import FILES
from jobs.ground.store.tables import Tables
from jobs.loop.ingest import queue
from jobs.loop.ingest.queue_entries import Checked, checked, entries
from jobs.loop.ingest.queues import Place, classads, read

GOLDEN = Path(__file__).parents[3] / "golden" / "queue"
AS_OF = 1_772_323_200  # 2026-03-01T00:00:00Z
DAY_S = 86400
PLACE = Place(AS_OF, {"EDGE": ("EDGE", "T2_DE_EDGE", "EDGE-LCG2*")}, rses=("EDGE_CACHE",))
CASES = sorted(path for path in GOLDEN.iterdir() if not path.name.endswith(".expect.json"))


def taken(path: Path, place: Place = PLACE) -> Checked:
    raw = entries(str(path), token="", timeout_s=1)
    return checked(read(raw, "auto", place), as_of_s=place.as_of_s, stale_s=DAY_S, site=place.site)


def shown(found: Checked) -> list[list[Any]]:
    fields = ("job_id", "input", "is_dataset", "n_jobs", "site", "certainty")
    return sorted([row[name] for name in fields] for row in found.rows.values())


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.name)
def test_an_answer_is_read_and_what_is_not_is_counted(path: Path) -> None:
    if path.suffix == ".long":
        pytest.importorskip("classad2")
    expect = json.loads((GOLDEN / f"{path.stem}.expect.json").read_text())
    found = taken(path)
    assert shown(found) == sorted(expect["rows"])
    assert dict(found.refused) == expect["rejected"]
    assert set(found.samples) == set(expect["rejected"])


def test_without_the_library_ads_as_json_are_read_and_others_say_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(classads, "library", lambda: None)
    with pytest.raises(InputError, match=r"install cachecast\[htcondor\]"):
        taken(GOLDEN / "condor_old.long")
    job = {"ClusterId": 1, "ProcId": 0, "JobStatus": 1, "DESIRED_CMSDataset": "/Expr(strcat(A))/"}
    path = tmp_path / "q.json"
    path.write_text(json.dumps([job, job | {"DESIRED_CMSDataset": "/A/B-v1/AOD"}]))
    found = taken(path)
    assert len(found.rows) == 1
    assert dict(found.refused) == {"names its input by an expression; install cachecast[htcondor]": 1}


def test_a_queue_that_was_cut_is_refused_whole_and_lists_of_schedds_are_one(tmp_path: Path) -> None:
    whole = (GOLDEN / "condor_crab.json").read_text()
    path = tmp_path / "q.json"
    path.write_text(whole[: len(whole) // 2])
    with pytest.raises(InputError, match="is not JSON"):
        taken(path)
    path.write_text(f"[\n]\n{whole}\n{whole}")
    assert shown(taken(path)) == shown(taken(GOLDEN / "condor_crab.json"))


def test_what_two_brokers_say_of_the_same_work_counts_once(tmp_path: Path) -> None:
    tables = Tables(str(tmp_path / "tables"))
    at = dt.datetime.fromtimestamp(AS_OF, dt.UTC)
    file = {"did": "cms:/f", "scope": "cms", "name": "/f", "dataset": "cms:/A/B-v1/AOD"}
    tables.replace_rows(FILES, [file | {"size_bytes": 1, "known_at": at}], ())
    entry = {"work": "cms:wf", "dataset": "/A/B-v1/AOD"}
    agent = entry | {"job_id": "1", "n_jobs": 5, "certainty": 0.25}
    workflow = entry | {"job_id": "2", "n_jobs": 40, "certainty": 0.5}
    other = entry | {"job_id": "3", "work": "cms:other", "n_jobs": 2, "certainty": 0.5}
    for name, rows in (("condor", [agent]), ("reqmgr", [workflow, other])):
        queue.write(
            tables, checked(rows, as_of_s=AS_OF, stale_s=DAY_S), queue=name, source=name, as_of_s=AS_OF
        )
    known = queue.known_work(tables, as_of_s=AS_OF, cache="xc1", site="EDGE").files.to_pylist()
    assert [(row["n_jobs"], row["certainty"]) for row in known] == [(42, pytest.approx(0.75))]
