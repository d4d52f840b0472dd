"""`cachecast cycle` from raw records to predictions: with a training first, then with what was trained."""

from pathlib import Path
from typing import Any

import pytest
from cachecast_main import asked, cachecast
from planted_region import MLFLOW_WARNINGS

from features.common.times import as_of_label
from features.schema import ACCESSES, FILES, PREDICTIONS
from jobs.ground.settings.tree import Settings
from jobs.ground.store.tables import Tables

pytestmark = MLFLOW_WARNINGS
START_S, DAY_S = 1_772_323_200, 86400
FIRST_S = START_S + 6 * DAY_S
SECOND_S = FIRST_S + DAY_S
SITE = """\
[tables]
root = "{folder}/tables"
[features]
cycle = "12h"
horizons = ["1d"]
candidates = "3d"
[training]
every = "12h"
span = "5d"
trees = 20
spool = "{folder}/trainings"
[mlflow]
uri = "sqlite:///{folder}/mlflow.db"
artifacts = "{folder}/artifacts"
serve = ["champion", "candidate"]
[plan]
horizon = "1d"
[users]
salt = "s"
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Settings, and the raw records of a small week: the last day's file is there when the day is over."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "base.toml").write_text(SITE.format(folder=folder))
    asked("workload", "--scenario", "demo", "--days", "7", "--accesses", "12000", "--start", "2026-03-01",
              "--out", str(folder / "raw"), "--raw")  # fmt: skip
    (folder / "raw/traces/traces.2026-03-07.jsonl").rename(folder / "later.jsonl")
    return folder


def n_lines(path: Path) -> int:
    return path.read_bytes().count(b"\n")


def cycle(site: Path, as_of_s: int, *more: str) -> Any:
    raw = site / "raw"
    inputs = [f"rucio_traces={raw}/traces/traces.*.jsonl", f"rucio_files={raw}/files.jsonl"]
    return asked("cycle", "--conf", str(site), "--as-of", as_of_label(as_of_s), *more,
                     *(word for path in inputs for word in ("--pull", path)))  # fmt: skip


def test_a_cycle_trains_and_the_next_one_serves_what_was_trained(site: Path) -> None:
    tables, spec = Tables(str(site / "tables")), Settings.load(site).features.spec
    n_records = sum(n_lines(path) for path in (site / "raw").rglob("*.jsonl"))
    first = cycle(site, FIRST_S, "--train")
    assert (first["pulled"], first["rejected"]) == (n_records, 0)
    assert sum(tables.snapshot(table).n_rows for table in (ACCESSES, FILES)) == first["pulled"]
    assert first["trained_at"] == 10  # every 12 h of 5 days
    assert first["model_version"] == "cachecast-default/1"
    assert list(first["seconds"]) == ["pull", "features", "training features", "training", "predictions"]

    (site / "later.jsonl").rename(site / "raw/traces/traces.2026-03-07.jsonl")
    second = cycle(site, SECOND_S)
    n_new = n_lines(site / "raw/traces/traces.2026-03-07.jsonl")
    assert (second["pulled"], second["rejected"], second["trained_at"]) == (n_new, 0, 0)
    assert second["model_version"] == first["model_version"]
    assert list(second["seconds"]) == ["pull", "features", "predictions"]

    for answer, as_of_s in ((first, FIRST_S), (second, SECOND_S)):
        as_of = as_of_label(as_of_s)
        candidates = tables.read_arrow(spec.features_table, as_of=as_of, columns=["did"])["did"].to_pylist()
        rows = tables.read_arrow(PREDICTIONS, as_of=as_of).to_pylist()
        assert answer["as_of"] == as_of
        assert answer["features"] == len(candidates) > 100
        assert answer["predictions"] == len(rows)
        assert {row["did"] for row in rows} == set(candidates)
        assert {row["model_version"] for row in rows} == {first["model_version"]}
        assert len({row["probability"] for row in rows}) > 10


def test_a_server_is_asked_by_a_cycle_as_by_a_pull_of_its_own(site: Path) -> None:
    """Not for new files alone, which a server refuses; here none is configured."""
    as_of = as_of_label(FIRST_S)
    done = cachecast("cycle", "--conf", site, "--as-of", as_of, "--pull", "rucio_server=in-use")
    assert done.returncode == 1 and "no Rucio server is configured" in done.stderr
