"""What is written: the same arguments give the same bytes, and the real readers read all of it."""

import datetime as dt
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from cachecast_main import cachecast
from pulls import pulled

from features.common.errors import ConfigError, InputError
from features.common.times import parse_day
from features.common.units import parse_bytes
from features.schema import ACCESSES, FILES
from jobs.ground.store.tables import Tables
from jobs.studies.simulate import workload
from replay.read import read_trace

START = parse_day("2026-03-01")


def test_raw_files_are_pulled_back_whole(tmp_path: Path) -> None:
    config = workload.load("demo", start_s=START, seed=3, days=2)
    raw = workload.write(config, out=tmp_path / "raw", raw=True)
    tables, day = Tables(str(tmp_path / "tables")), dt.date(2026, 3, 3)
    reads = pulled(tables, "rucio_traces", raw.traces, day=day, salt="s")
    files = pulled(tables, "rucio_files", raw.catalogue, day=day)
    assert (reads.n_new, dict(reads.n_rejected)) == (raw.accesses, {})
    assert reads.days == ("2026-03-01", "2026-03-02")
    assert (files.n_new, dict(files.n_rejected)) == (raw.files, {})
    accesses = tables.read_arrow(ACCESSES).to_pandas()
    assert (accesses["known_at"] > accesses["closed_at"]).all()
    assert accesses["user"].str.fullmatch("[0-9a-f]{16}").all()
    assert set(accesses["did"]) <= set(tables.read_arrow(FILES, columns=["did"])["did"].to_pylist())
    assert set(accesses["activity"]) == {"analysis", "production"}


def test_a_trace_is_two_parquet_files(tmp_path: Path) -> None:
    written = workload.write(workload.load("mwt2", seed=1, scale=0.01), out=tmp_path / "t")
    assert {path.name for path in (tmp_path / "t").iterdir()} == {"accesses.parquet", "files.parquet"}
    accesses, files = pq.read_table(written.traces), pq.read_table(written.catalogue)
    assert (accesses.num_rows, files.num_rows) == (written.accesses, written.files)
    assert written.size_bytes == pc.sum(files["size_bytes"]).as_py()
    assert accesses.column_names == [
        *("accessed_at", "closed_at", "did", "dataset", "category", "tier", "size_bytes", "read_bytes"),
        *("origin", "site", "user", "task", "activity"),
    ]
    known = {"did", "scope", "name", "dataset", "tier", "category", "size_bytes", "created_at", "origin"}
    assert known <= set(files.column_names)
    assert accesses.schema.field("accessed_at").type == pa.timestamp("us", tz="UTC")
    for name in ("did", "dataset", "category", "tier", "origin", "site", "user", "task", "activity"):
        assert pa.types.is_dictionary(accesses.schema.field(name).type), name
    assert pc.any(pc.invert(pc.is_in(files["did"], pc.unique(accesses["did"].cast(pa.string()))))).as_py()
    trace = read_trace(tmp_path / "t").trace
    assert (trace.n_accesses, trace.n_items) == (written.accesses, written.files)


def test_generated_data_says_so_everywhere_and_never_joins_real_records(tmp_path: Path) -> None:
    workload.write(workload.load("mwt2", seed=7, scale=0.001), out=tmp_path / "t")
    (note,) = read_trace(tmp_path / "t").notes
    assert note.startswith("Generated data, not a site's: reads of MWT2") and note.endswith("seed 7")

    words = ("workload", "--out", tmp_path / "raw", "--days", "1", "--tables", tmp_path / "own")
    assert cachecast(*words).returncode == 0
    arrived = cachecast("arrivals", "--as-of", "2026-03-01", "--tables", tmp_path / "own")
    assert "note: Generated data, not a site's: reads of" in arrived.stderr
    assert "note: Generated" in cachecast(*words).stderr
    (tmp_path / "raw" / "traces" / "traces.2020-01-01.jsonl").touch()
    assert "is of another day, and would be pulled too" in cachecast(*words).stderr
    (tmp_path / "raw" / "traces" / "traces.2020-01-01.jsonl").unlink()
    (tmp_path / "own" / "GENERATED.txt").unlink()
    assert "accesses that were not generated" in cachecast(*words).stderr


def test_accesses_choose_the_scale() -> None:
    config = workload.load("prague", seed=1, accesses=100_000_000)
    assert config.scale == pytest.approx(100 / 1.4)
    assert workload.load("prague", seed=1, days=62, accesses=2_800_000).scale == pytest.approx(1)
    with pytest.raises(ConfigError, match="leave --scale out"):
        workload.load("prague", seed=1, accesses=5, scale=2.0)
    for accesses in (0, 10**400):
        with pytest.raises(ConfigError, match="--accesses: must be from 1 to"):
            workload.load("prague", seed=1, accesses=accesses)


def test_a_scenario_of_ones_own_is_a_file_and_a_bad_one_is_told(tmp_path: Path) -> None:
    own = tmp_path / "mine.toml"
    own.write_text("days = 3\n")
    with pytest.raises(ConfigError, match=r"period_days, .* are missing"):
        workload.load(str(own), start_s=START, seed=1)
    with pytest.raises(ConfigError, match="there is no"):
        workload.load("../base", start_s=START, seed=1)
    with pytest.raises(InputError, match="cannot write"):
        workload.write(workload.load("demo", seed=1, days=1), out=own)


def test_the_capacities_of_worth_it_fit_its_trace(tmp_path: Path) -> None:
    page = (Path(__file__).parents[4] / "docs" / "worth-it.md").read_text()
    command = re.search(r"workload --scenario (\w+) --accesses (\d+)", page)
    assert command is not None
    workload.write(workload.load(command[1], seed=1, accesses=int(command[2])), out=tmp_path)
    footprint = read_trace(tmp_path).trace.footprint_bytes
    texts = re.findall(r"--trace T --capacity (\w[\w,]*)", page)
    capacities = [parse_bytes(size) for text in texts for size in text.split(",")]
    assert len(capacities) >= 5
    # A cache of a tenth is large already; one of everything answers nothing.
    assert max(capacities) < footprint / 10
    assert f"of {footprint / 1e12:.0f} TB of files" in page
