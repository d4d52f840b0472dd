"""The study's labels: tiers, categories and regions, from whatever names a file or an origin."""

import numpy as np
import pyarrow as pa
import pytest
from name_oracle import parse_name

from features.common.names import tiers_of
from replay.study.benefit import Region
from replay.study.categories import categories
from replay.study.use import regions_of
from replay.trace import Trace

REGIONS = (Region("near", ("*.es", "PIC*"), 9.0), Region("far", ("*.gov",), 150.0))
NAMES = (
    "cms:/store/mc/RunIISummer20UL18/TTTo2L2Nu/MINIAODSIM/106X_upgrade2018-v1/230000/0A1B.root",
    "/eos/cms/store/data/Run2018A/SingleMuon/AOD/PromptReco-v1/000/315/257/00000/A.root",
    "/store/user/somebody/x.root",
    "mc23_13p6TeV:HITS.34000020._000069.pool.root.1",
    "mc16_13TeV:mc16_13TeV.410470.PhPy8EG.deriv.DAOD_TOPQ1.e6337_s3126_r9364_p4174",
    "panda:panda.um.user.x.123._0001.root",
    "/LHCb/Collision18/Beam6500GeV-VeloClosed-MagDown/Real Data/90000000/BHADRON.DST",
    "user.jdoe:my.file",
    "nothing at all",
    "with\nline/store/x",
    "",
)


def test_tiers_of_whole_columns_are_those_of_single_names() -> None:
    bare = [name.split(":", 1)[1] if ":" in name.split("/")[0] else name for name in NAMES]
    assert tiers_of(pa.array(NAMES)).to_pylist() == [parse_name(name).tier for name in bare]
    assert len({tier for tier in tiers_of(pa.array(NAMES)).to_pylist() if tier}) == 5


def test_a_category_is_the_best_that_is_known_of_a_file() -> None:
    names = pa.array(["a:x", "a:y", "mc23_13p6TeV:EVNT.1._01.root", "a:z"])
    trace = Trace(np.arange(6), np.array([0, 1, 2, 3, 0, 1]), np.full(4, 10), names=names)
    details = pa.table(
        {
            "category": pa.array([None, None, None, None, "lib.tgz", None]),
            "tier": pa.array(["AOD", "TXT", None, None, "AOD", "RAW"]).dictionary_encode(),
        }
    )
    labels = categories(trace, details)
    assert [labels.names[code] for code in labels.code] == ["lib.tgz", "TXT", "EVNT", "other"]
    unknown = categories(
        Trace(np.arange(2), np.arange(2, dtype=np.int32), np.full(2, 10)), pa.table({"site": ["x", "x"]})
    )
    assert [unknown.names[code] for code in unknown.code] == ["all", "all"]


def test_many_categories_become_twenty_and_the_rest() -> None:
    n = 30
    trace = Trace(np.arange(n), np.arange(n, dtype=np.int32), np.arange(1, n + 1))
    labels = categories(trace, pa.table({"category": [f"c{k}" for k in range(n)]}))
    names = [labels.names[code] for code in labels.code]
    assert names == ["the rest"] * 10 + [f"c{k}" for k in range(10, n)]


@pytest.mark.parametrize("origin", ["a.b.es", "A.B.ES:1094", "roots://u@a.b.es:1094//x", "https://a.b.es/x"])
def test_hosts_are_found_in_whatever_names_an_origin(origin: str) -> None:
    code, names = regions_of(pa.chunked_array([[origin, None], ["x.org"]]), REGIONS)
    assert [names[k] for k in code] == ["near", "unknown", "unknown"]
