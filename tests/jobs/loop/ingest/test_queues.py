"""What brokers answer, read as a queue: fields as public code names them, values of our own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jobs.loop.ingest.queue_entries import Checked, checked, entries
from jobs.loop.ingest.queues import Place, read

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
