import csv
import gzip
from collections.abc import Callable
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from name_oracle import parse_name

from features.common.names import NameParts, name_parts, names_of, part

ATLAS = "mc16_13TeV.364253.Sherpa_222_NNPDF30NNLO_lllv.deriv.DAOD_EXOT7.e5916_s3126_r9364_p4252"
GOLDEN = {
    "/store/mc/RunIISummer20UL18/TTTo2L2Nu/MINIAODSIM/106X_v16-v1/120000/0A.root": NameParts(
        "cms", "/TTTo2L2Nu/RunIISummer20UL18-106X_v16-v1/MINIAODSIM", "MINIAODSIM", "RunIISummer20UL18"
    ),
    "/eos/cms/store/data/Run2018D/SingleMuon/RAW-RECO/22Jan2019-v2/110000/000/286/471/f.root": NameParts(
        "cms", "/SingleMuon/Run2018D-22Jan2019-v2/RAW-RECO", "RAW-RECO", "Run2018D"
    ),
    "/store/results/higgs/Run2012A/DoubleMu/USER/StoreResults-v1/0/f.root": NameParts(
        "cms", "/DoubleMu/Run2012A-StoreResults-v1/USER", "USER", "Run2012A"
    ),
    "/store/user/jdoe/ntuples/f.root": NameParts("cms"),
    "/store/data/f.root": NameParts("cms"),
    "/DYJets_Tune/Summer12_DR53X-PU_S10_START53_V7A-v1/AODSIM": NameParts(
        "cms", "/DYJets_Tune/Summer12_DR53X-PU_S10_START53_V7A-v1/AODSIM", "AODSIM", "Summer12_DR53X"
    ),
    "/A/Run1-P-v1/AOD#1234-abcd": NameParts("cms", "/A/Run1-P-v1/AOD", "AOD", "Run1"),
    f"mc16_13TeV:{ATLAS}_tid20212345_00": NameParts(
        "atlas", f"{ATLAS}_tid20212345_00", "DAOD_EXOT7", "mc16_13TeV"
    ),
    f"{ATLAS}/": NameParts("atlas", ATLAS, "DAOD_EXOT7", "mc16_13TeV"),
    "data17_13TeV.00338183.physics_Main.merge.AOD.f877_m1885": NameParts(
        "atlas", "data17_13TeV.00338183.physics_Main.merge.AOD.f877_m1885", "AOD", "data17_13TeV"
    ),
    "DAOD_EXOT7.19348091._000018.pool.root.1": NameParts("atlas", None, "DAOD_EXOT7", None),
    "mc16_13TeV:HITS.1._000018.pool.root.1": NameParts("atlas", None, "HITS", "mc16_13TeV"),
    "/dpm/x/atlas/rucio/mc16_13TeV/0a/ff/AOD.123._000018.pool.root.1": NameParts(
        "atlas", None, "AOD", "mc16_13TeV"
    ),
    "panda.um.user.jdoe.log.tgz": NameParts("atlas"),
    "/LHCb/Collision10/Beam3500GeV-VeloClosed-MagDown/RealData/Reco08/Stripping14//BHADRON.DST": NameParts(
        "lhcb",
        "/LHCb/Collision10/Beam3500GeV-VeloClosed-MagDown/RealData/Reco08/Stripping14//BHADRON.DST",
        "DST",
        "Collision10",
    ),
    "/MC/MC10/Beam3500GeV/Sim01/Reco08/30000000/ALLSTREAMS.DST": NameParts(
        "lhcb", "/MC/MC10/Beam3500GeV/Sim01/Reco08/30000000/ALLSTREAMS.DST", "DST", "MC10"
    ),
    "/LHCb/Collision12/RAW": NameParts("lhcb", "/LHCb/Collision12/RAW", "RAW", "Collision12"),
    "/lhcb/LHCb/Collision10/BHADRON.DST/00008380/0000/00008380_00000001_1.bhadron.dst": NameParts(
        "lhcb", "/lhcb/LHCb/Collision10/BHADRON.DST/00008380", "DST", "Collision10"
    ),
    "/eos/lhcb/grid/prod/lhcb/MC/2012/ALLSTREAMS.DST/00021386/0000/00021386_00000001_1.all.dst": NameParts(
        "lhcb", "/lhcb/MC/2012/ALLSTREAMS.DST/00021386", "DST", "2012"
    ),
    "/lhcb/data/2018/RAW/FULL/LHCb/COLLISION18/209291/209291_0000000745.raw": NameParts(
        "lhcb", "/lhcb/data/2018/RAW/FULL/LHCb/COLLISION18/209291", "RAW", "COLLISION18"
    ),
    "/lhcb/user/j/jdoe/2018_10/1/ntuple.root": NameParts("lhcb"),
    "/store/backfill/1/data/Tier0_REPLAY_2026/Cosmics/RAW/v425/000/359/1/f.root": NameParts(
        "cms", "/Cosmics/Tier0_REPLAY_2026-v425/RAW", "RAW", "Tier0_REPLAY_2026"
    ),
    "/store/unmerged/Run2026A/MuonEG/NANOAOD/PromptReco-v1/40000/f.root": NameParts(
        "cms", "/MuonEG/Run2026A-PromptReco-v1/NANOAOD", "NANOAOD", "Run2026A"
    ),
    "data18_13TeV:data18_13TeV.00348885.physics_Main.daq.RAW._lb0100._SFO-1._0001.data": NameParts(
        "atlas", "data18_13TeV.00348885.physics_Main.daq.RAW", "RAW", "data18_13TeV"
    ),
    "data18_13TeV.00348885.physics_Main.daq.RAW": NameParts(
        "atlas", "data18_13TeV.00348885.physics_Main.daq.RAW", "RAW", "data18_13TeV"
    ),
    "data17_13TeV.periodK.physics_Main.PhysCont.DAOD_EXOT7.grp17_v01_p3372/": NameParts(
        *("atlas", "data17_13TeV.periodK.physics_Main.PhysCont.DAOD_EXOT7.grp17_v01_p3372"),
        *("DAOD_EXOT7", "data17_13TeV"),
    ),
    "/ncar/rda/d336000/ddplus/SURFACE.txt": NameParts("osdf", "/ncar/rda/d336000/ddplus", campaign="d336000"),
    "/ncar/campaign/x/y.nc": NameParts("osdf", "/ncar/campaign/x"),
    "/igwn/ligo/frames/O4/hoft_C00/H1/H-H1_HOFT_C00-13875/H-H1_HOFT_C00-1387511808-4096.gwf": NameParts(
        "osdf", "/igwn/ligo/frames/O4/hoft_C00/H1/H-H1_HOFT_C00-13875", campaign="O4"
    ),
    "/ospool/ap20/data/jdoe/in.tar.gz": NameParts("osdf", "/ospool/ap20/data/jdoe"),
}
ODD = [
    "",
    "/",
    "//",
    "/store/",
    "/store",
    "/ncar/",
    "/ncar/x",
    "/a/b/c",
    "/a/b-c/lower",
    "/a/b-c/AOD\n",
    "/store/mc/E/P/AOD/x-v1/f\r.root",
    "/ncar/été/\u2028x",
    "/ncar/été/😀.nc",
    "/LHCb//RAW",
    "/igwn/ligo/frames/O4/f.gwf",
    "/ncar/rda/d33600/x",
    "/eos/lhcb/grid/prod/x",
    "data18_13TeV.1.a.daq.RAW",
    "$1",
    "/store/mc/$2/P/AOD/\\1-v1/f.root",
    "mc16_13TeV:",
    "mc16_13TeV.1.a.b.AOD.e1_tid1_00.extra",
    "/a/b-c/AOD#",
    "/ncar/" + "x" * 5000,
    "mc16_13TeV.1.a.b.AOD.e1" + "_r1" * 21,
    "\x00",
]


@pytest.mark.parametrize("name", GOLDEN, ids=lambda name: name[:40])
def test_name_gives_its_parts(name: str) -> None:
    assert parse_name(name) == GOLDEN[name]


def named_in(path: Path, column: str) -> dict[str, NameParts]:
    with gzip.open(path, "rt") as stream:
        return {row[column]: parse_name(row[column]) for row in csv.DictReader(stream)}


@pytest.mark.parametrize("experiment", ["lhcb", "cms"])
def test_every_real_dataset_is_understood(shared: Callable[[str], Path], experiment: str) -> None:
    file = {"lhcb": "lhcb_weekly_1_78.csv.gz", "cms": "cms_daily_60d.csv.gz"}[experiment]
    parts = named_in(shared(f"data/{file}"), "dataset")
    assert {p.experiment for p in parts.values()} == {experiment}
    assert all(p.dataset and p.tier and p.campaign for p in parts.values())


def test_every_real_file_of_osdf_is_understood(data: Path) -> None:
    parts = named_in(data / "osdf_fstream_decoded.csv.gz", "lfn")
    assert {p.experiment for p in parts.values()} == {"osdf", "cms"}  # an OSDF cache serves CMS files too
    assert all(p.dataset for name, p in parts.items() if "/store/temp/" not in name and "/SAM/" not in name)


def test_duckdb_agrees() -> None:
    names = [*GOLDEN, *ODD]
    with duckdb.connect() as database:
        database.register("given", pa.table({"name": [*names, None]}))
        text = f"SELECT name, {name_parts('name')} AS parts FROM given"
        fields = ", ".join(part("parts", field) for field in NameParts._fields)
        rows = database.sql(f"SELECT name, {fields} FROM ({text})").fetchall()
    parts = {row[0]: NameParts(*row[1:]) for row in rows}
    assert parts.pop(None) == NameParts()
    assert parts == {name: parse_name(name) for name in names}


def test_a_did_has_its_name_whatever_letters_are_in_it() -> None:
    assert names_of(pa.array(["s:a:b", "s:a\nb\n", "s:", "none"])).to_pylist() == ["a:b", "a\nb\n", "", None]
