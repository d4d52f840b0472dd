from __future__ import annotations

import datetime as dt
import json
from pathlib import Path

import pyarrow as pa
import pytest
from local_engines import LOCAL

from features.accesses import demand
from features.common.errors import StaleInputError
from features.spec import FeatureSpec
from jobs.ground.store.tables import Tables
from jobs.loop.ingest import pull_input
from jobs.loop.ingest.local_engine import LocalEngine
from jobs.loop.train import features
from jobs.loop.train.engines import RegionData

ROWS = [
    (cache, site, source) for cache in ("xc", None) for site in ("S", "T", None) for source in ("traces", "g")
]


@pytest.mark.parametrize(
    "sources",
    [{}, {"*": "traces"}, {"xc": "g"}, {"S": "g", "*": "traces"}, {"xc": "g", "S": "traces", "*": "none"}],
    ids=str,
)
def test_rows_of_the_demand_source_count(sources: dict[str, str]) -> None:
    def counts(row: tuple[str | None, str | None, str]) -> bool:
        cache, site, source = row
        wanted = sources.get(cache or "", sources.get(site or "", sources.get("*")))
        return wanted in (None, source)

    columns = dict(zip(("cache", "site", "source"), map(list, zip(*ROWS, strict=True)), strict=True))
    rows = demand(pa.table(columns), sources).to_pylist()
    assert [tuple(row.values()) for row in rows] == [row for row in ROWS if counts(row)]


def test_a_read_told_by_trace_and_g_stream_counts_once(tmp_path: Path) -> None:
    """Both sources into the same tables: features as of the traces alone, rows of both kept."""
    start = 1772323200
    path = "/store/data/Run2025C/Muon0/MINIAOD/PromptReco-v1/000/1/a.root"
    trace = {
        **{"eventType": "get_sm", "scope": "cms", "filename": path, "uuid": "u", "localSite": "S"},
        **{"transferStart": start + 10, "transferEnd": start + 20, "filesize": 100},
    }
    (tmp_path / "traces").write_text(json.dumps(trace))
    record = {
        **{"data.file_lfn": path, "data.unique_id": "u", "data.file_size": 100, "data.site_name": "S"},
        **{"data.start_time": (start + 10) * 1000, "data.end_time": (start + 20) * 1000},
    }
    (tmp_path / "pop").write_text(json.dumps(record))
    spec = FeatureSpec(cycle_s=3600, horizons_s=(3600,), candidate_s=86400, active_dataset_s=86400)
    tables, day = Tables(str(tmp_path / "tables")), dt.date(2026, 3, 1)

    def counted(**sources: str) -> float:
        features.compute(RegionData(LOCAL, tables, spec, "r", sources), [start + 3600])
        (row,) = tables.read_arrow(spec.features_table, columns=["did", "n_reads"]).to_pylist()
        assert row["did"] == f"cms:{path}"
        return float(row["n_reads"])

    pull_input.pull(LocalEngine(), tables, source="rucio_traces", path=str(tmp_path / "traces"), day=day)
    pull_input.pull(LocalEngine(), tables, source="cmssw_pop", path=str(tmp_path / "pop"), day=day)
    assert counted() == 2
    assert counted(**{"*": "rucio_traces"}) == 1
    with pytest.raises(StaleInputError, match="accesses of cmssw_pop, rucio_traces"):
        counted(S="xcache_gstream")
