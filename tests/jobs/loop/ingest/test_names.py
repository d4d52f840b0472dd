"""One file has one name, whatever named it: servers, caches, doors and Rucio."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from cinfo_writer import put
from pulls import pulled_text
from raw_records import AT_S, aaa, gstream, hashed, osdf_accesses, osdf_log, tracer, traces

from features.schema import ACCESSES, CONTENTS, REJECTS
from jobs.ground.store.tables import Tables
from jobs.loop.ingest import scan
from prefetch.xcache.cinfo import AccessRecord, CInfo

BLOCK = 131072
LFN = "/store/data/Run2026A/JetMET0/NANOAOD/PromptReco-v1/000/391/q.root"
LHCB = "/lhcb/LHCb/Collision26/BHADRON.DST/00391234/0001/00391234_00017_1.bhadron.dst"
SPELLINGS = {
    LFN: (
        LFN,
        "/eos/cms" + LFN,
        "/eos/uscms" + LFN,
        "/" + LFN,
        LFN.replace("/Run", "//Run"),
        LFN[1:],
        "file:" + LFN,
        "file://" + LFN,
        "/store/test/xrootd/T1_XX_Lab" + LFN,
        "/eos/cms/store/test/xrootd/T1_XX_Lab" + LFN,
        "root://door.example.org:1094/" + LFN,
        "davs://door.example.org:2880/pnfs/example.org/cms" + LFN + "?authz=Bearer%20s3cr3t",
        "root://xc.example.org:1094//root://se.example.org//" + LFN + "&authz=s3cr3t",
        "srm://se.example.org:8443/srm/managerv2?SFN=/dpm/example.org/home/cms" + LFN,
        LFN + "%3Fauthz=s3cr3t",
        LFN + "%26authz%3Ds3cr3t",
        "https://se.example.org" + LFN + "%253Fauthz%253Ds3cr3t",
        LFN + "#s3cr3t",
    ),
    LHCB: (LHCB, "/eos/lhcb/grid/prod" + LHCB, "/pnfs/example.org/lhcb/LHCb-Disk" + LHCB, "/" + LHCB),
    "/store/user/ada/tree.root": ("/eos/cms/store/user/ada/tree.root", "store/user/ada/tree.root"),
    "/icecube/2026/i3.zst": ("osdf:///icecube/2026/i3.zst", "pelican://osg-htc.org/icecube/2026/./i3.zst"),
    # Copies in somebody's area are files of their own.
    "/eos/user/a/ada" + LFN: ("/eos/user/a/ada" + LFN,),
    "/store/user/ada" + LFN: ("/store/user/ada" + LFN,),
}


WRITERS: dict[str, Callable[[Sequence[str]], str]] = {
    "cms_aaa": aaa,
    "cmssw_pop": aaa,
    "cms_tracer": tracer,
    "osdf_log": osdf_log,
    "osdf_accesses": osdf_accesses,
    "xcache_gstream": gstream,
    "rucio_traces": traces,
}


@pytest.mark.parametrize("source", WRITERS)
def test_every_source_gives_a_file_one_name(tables: Tables, tmp_path: Path, source: str) -> None:
    written = [
        spelling
        for spellings in SPELLINGS.values()
        for spelling in spellings
        if not (source == "rucio_traces" and spelling.startswith("store"))
    ]
    assert pulled_text(tables, tmp_path, source, WRITERS[source](written)).n_rejected == {}
    names = tables.read_arrow(ACCESSES)
    assert set(names["name"].to_pylist()) == set(SPELLINGS)
    assert len(set(names["did"].to_pylist())) == len(SPELLINGS)
    assert "s3cr3t" not in str(names.to_pylist())


OF_ATLAS = {
    "mc26_14TeV": "AOD.40000017._000023.pool.root.1",
    "data26_14TeV": "data26_14TeV.00500123.x.daq.RAW._lb0001._SFO-1._0001.data",
    "user.ada": "user.ada.4711._000003.tree.root",
    "group.phys-higgs": "group.phys-higgs.1._000001.root",
}


def test_a_path_by_rucios_hash_naming_is_its_did_wherever_it_begins(tables: Tables, tmp_path: Path) -> None:
    prefixes = ("/atlas/rucio", "/pnfs/example.org/atlasdatadisk/rucio", "/eos/user/x", "")
    paths = [hashed(*did, prefix) for did in OF_ATLAS.items() for prefix in prefixes]
    pulled_text(tables, tmp_path, "xcache_gstream", gstream(paths))
    for scope, name in OF_ATLAS.items():
        pulled_text(tables, tmp_path, "rucio_traces", traces([name], scope))
    rows = tables.read_arrow(ACCESSES).to_pylist()
    by_did = {row["did"]: (row["scope"], row["name"]) for row in rows}
    assert by_did == {f"{scope}:{name}": (scope, name) for scope, name in OF_ATLAS.items()}
    by_source = {
        source: {
            (row["did"], row["tier"], row["campaign"], row["experiment"])
            for row in rows
            if row["source"] == source
        }
        for source in ("xcache_gstream", "rucio_traces")
    }
    assert by_source["xcache_gstream"] == by_source["rucio_traces"], "they say the same of a file"
    assert ("AOD", "mc26_14TeV") in {(row["tier"], row["campaign"]) for row in rows}


def test_a_path_whose_hash_does_not_fit_stays_a_path(tables: Tables, tmp_path: Path) -> None:
    path = hashed("mc26_14TeV", "AOD.1._2.root", "/atlas/rucio")
    wrong = path.replace("AOD.1", "AOD.9")
    pulled_text(tables, tmp_path, "xcache_gstream", gstream([path, wrong]))
    assert set(tables.read_arrow(ACCESSES)["name"].to_pylist()) == {"AOD.1._2.root", wrong}


def test_a_scope_that_no_rucio_has_is_none(tables: Tables, tmp_path: Path) -> None:
    dids = [("mc26:eve", "f"), ("mc26 ", "f"), ("..", "f"), ("mc26", ".."), ("mc'26", "f")]
    paths = [hashed(*did, "/atlas") for did in dids]
    pulled_text(tables, tmp_path, "xcache_gstream", gstream(paths))
    assert sorted(tables.read_arrow(ACCESSES)["did"].to_pylist()) == sorted(f"unknown:{p}" for p in paths)


def test_no_token_is_in_the_sample_of_a_reject(tables: Tables, tmp_path: Path) -> None:
    token = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhZGEifQ.c2VjcmV0"
    lfns = [f"/store/a.root?authz=Bearer {token}&scitag.flow=1", f"/store/b.root%3Fauthz={token}"]
    for source in ("cms_aaa", "osdf_log", "osdf_accesses"):
        text = WRITERS[source](lfns).replace('"file_size": 9', '"file_size": "?"').replace("Read:9", "Read:x")
        assert pulled_text(tables, tmp_path, source, text.replace(",9,1,", ",x,1,")).n_new == 0
    assert pulled_text(tables, tmp_path, "osdf_log", osdf_log(["?authz=" + token])).n_rejected == {
        "missing field: name": 1
    }
    samples = tables.read_arrow(REJECTS)["sample"].to_pylist()
    assert len(samples) == 4
    assert not [sample for sample in samples if "eyJ" in sample or "c2Vj" in sample or "Bearer" in sample]


def test_an_inventory_has_the_same_names(tables: Tables, tmp_path: Path) -> None:
    at = hashed("mc26_14TeV", "AOD.1._2.root", "/atlas/rucio")
    held = {at: 5, "/eos/cms" + LFN: 5, "/store/test/xrootd/T1" + LFN: 3, "/ctao/raw": 1}
    cache = tmp_path / "cache"
    for name, size in held.items():
        read = AccessRecord(AT_S, AT_S + 1, 1, 1, 0, 0, 1, 1, 0)
        put(cache, name, CInfo(BLOCK, 5 * BLOCK, AT_S, 0, 1, 0, bytes([2**size - 1]), (read,)))
    scan.scan(tables, namespace=cache, cache="xc", as_of_s=AT_S, scopes={"/ctao": "acada"})
    rows = tables.read_arrow(CONTENTS).to_pylist()
    assert {row["did"]: row["name"] for row in rows} == {
        "mc26_14TeV:AOD.1._2.root": at,
        f"cms:{LFN}": "/eos/cms" + LFN,
        # A second copy: of no use, and evicted by its own path.
        "cms:/store/test/xrootd/T1" + LFN: "/store/test/xrootd/T1" + LFN,
        "acada:/ctao/raw": "/ctao/raw",
    }
