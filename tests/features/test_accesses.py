"""What an accesses table holds: reads of the demand source, each once; labels, against plain loops."""

import datetime as dt
import json
from pathlib import Path

import pyarrow as pa
import pytest
from cases import cases
from hypothesis import given
from hypothesis import strategies as st
from labels_oracle import expected
from local_engines import LOCAL
from pulls import pulled_text
from worlds import random_worlds, tables_of

from features import labels
from features.accesses import demand, reader_kinds
from features.common.errors import StaleInputError
from features.spec import FeatureSpec
from jobs.ground.store.tables import Tables
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
        from_source = sources.get(cache or "", sources.get(site or "", sources.get("*")))
        return from_source in (None, source)

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
    record = {
        **{"data.file_lfn": path, "data.unique_id": "u", "data.file_size": 100, "data.site_name": "S"},
        **{"data.start_time": (start + 10) * 1000, "data.end_time": (start + 20) * 1000},
    }
    spec = FeatureSpec(cycle_s=3600, horizons_s=(3600,), candidate_s=86400, active_dataset_s=86400)
    tables = Tables(str(tmp_path / "tables"))

    def counted(**sources: str) -> float:
        features.compute(RegionData(LOCAL, tables, spec, "r", sources), [start + 3600])
        (row,) = tables.read_arrow(spec.features_table, columns=["did", "n_reads"]).to_pylist()
        assert row["did"] == f"cms:{path}"
        return float(row["n_reads"])

    for source, line in (("rucio_traces", trace), ("cmssw_pop", record)):
        pulled_text(tables, tmp_path, source, json.dumps(line), day=dt.date(2026, 3, 1))
    assert counted() == 2
    assert counted(**{"*": "rucio_traces"}) == 1
    with pytest.raises(StaleInputError, match="accesses of cmssw_pop, rucio_traces"):
        counted(S="xcache_gstream")


READERS = {
    "popularity": ("alice", None, "cms"),
    "panda": ("alice", "task", "rucio_traces"),
    "fstream": ("hash", None, "xrootd_fstream"),
    "gstream": (None, None, "xcache_gstream"),
}


@pytest.mark.parametrize(
    ("rows", "kinds"),
    [
        (["gstream"], ()),
        (["popularity"], ("user",)),
        (["panda"], ("task",)),
        (["fstream", "gstream"], ("session",)),
        (["panda", "popularity", "fstream"], ("task", "user", "session")),
        (["gstream"] * 10 + ["popularity"], ()),
        ([], ()),
    ],
)
def test_kinds_are_those_of_a_tenth_of_the_accesses(rows: list[str], kinds: tuple[str, ...]) -> None:
    columns = zip(*(READERS[row] for row in rows), strict=True) if rows else ([], [], [])
    table = {
        name: pa.array(list(of), pa.string())
        for name, of in zip(("user", "task", "source"), columns, strict=True)
    }
    assert reader_kinds(pa.table(table), ["xrootd_fstream"]) == kinds


@cases(5, thorough=200)
@given(seed=st.integers(0, 10**6))
def test_labels_equal_plain_loops(seed: int) -> None:
    worlds = random_worlds(seed, n_worlds=10)
    spec = worlds.spec
    accesses, _ = tables_of(worlds)
    until_s = worlds.start + 16 * spec.cycle_s + 1800
    dids = sorted({r.did for r in worlds.reads} | {"w0:unread"})
    reads = labels.Reads(accesses.select(list(labels.COLUMNS)), until_s=until_s)
    for k in (-30, 0, 1, 7, 14, 15, 16, 500):
        as_of_s = worlds.start + k * spec.cycle_s
        table = reads.labels(pa.array(dids), as_of_s, spec)
        assert table.column_names == spec.labels_table.column_names
        assert {row.pop("did"): row for row in table.to_pylist()} == {
            did: expected(worlds, did, as_of_s, until_s) for did in dids
        }


def test_a_horizon_is_at_most_63_days() -> None:
    worlds = random_worlds(1, n_worlds=1, cycle_s=86400)
    accesses, _ = tables_of(worlds)
    reads = labels.Reads(accesses.select(list(labels.COLUMNS)), until_s=worlds.start)
    long = type(worlds.spec)(**{**vars(worlds.spec), "horizons_s": (64 * 86400,), "history_s": 100 * 86400})
    with pytest.raises(ValueError, match="at most 63 days, got 64d"):
        reads.labels(pa.array(["a:b"]), worlds.start, long)
