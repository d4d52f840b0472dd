"""Where a cache has, or would have, a file; and which cache of a site that is: by hash, or who holds it."""

from collections.abc import Iterator
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from rucio.common.config import clean_cached_config
from rucio.rse.translation import RSEDeterministicTranslation

from features.common.arrays import BoolArray
from features.common.errors import ConfigError
from features.schema import CONTENTS
from jobs.ground.caches.inventory import is_here, redirector_of
from jobs.ground.caches.paths import Paths
from jobs.ground.settings.tree import CacheSettings, Settings
from jobs.ground.store.commits import MomentKey
from jobs.ground.store.tables import Tables
from jobs.loop.ingest.known_names import dids_of
from jobs.loop.plan.items import contents
from prefetch.lfn import Did, fault_of, place_of
from prefetch.target import Held

WORDS = st.from_regex(r"[a-zA-Z0-9]([.]?[a-zA-Z0-9_-]){0,19}", fullmatch=True)
SCOPES = st.one_of(WORDS, *(WORDS.map(f"{kind}.{{}}".format) for kind in ("user", "group")))
AOD, LFN = "mc26_14TeV:AOD.40000017._000023.pool.root.1", "cms:/store/mc/Run4/A/AOD/v1-v1/0/f.root"

AOD_PLACE = place_of(Did("mc26_14TeV", "AOD.40000017._000023.pool.root.1"))


@pytest.fixture(scope="module")
def translation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RSEDeterministicTranslation]:
    """Rucio's own making of paths."""
    config = tmp_path_factory.mktemp("rucio") / "rucio.cfg"
    config.write_text("[policy]\npermission = generic\nschema = generic\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RUCIO_CONFIG", str(config))
        clean_cached_config()
        yield RSEDeterministicTranslation("R", rse_attributes={"lfn2pfn_algorithm": "hash"})
    # It is read once for the whole process, and tests of the client need none.
    clean_cached_config()


def at(path: str) -> Held:
    return Held(path, 1, 1, True, 1, False)


@given(
    st.lists(st.tuples(SCOPES, WORDS), min_size=1), st.sampled_from(["", "/rucio", "/pnfs/x.org/user/disk"])
)
def test_a_path_that_rucio_makes_tells_its_did_and_back(
    translation: RSEDeterministicTranslation, dids: list[tuple[str, str]], prefix: str
) -> None:
    paths = [prefix + "/" + translation.path(*did).lstrip("/") for did in dids]
    assert [prefix + place_of(Did(*did)) for did in dids] == paths
    by_path = dids_of(Tables("/nowhere"), [at(path) for path in dict.fromkeys(paths)], {})
    assert by_path == {path: f"{scope}:{name}" for path, (scope, name) in zip(paths, dids, strict=True)}


def paths(*held: str, prefix: str | None = None) -> Paths:
    cache = CacheSettings(name="xc", kind="xcache", url="root://xc:1", capacity=10**9, prefix=prefix)
    return Paths(cache, dids_of(Tables("/nowhere"), [at(path) for path in held], {}))


def of(known: Paths, *dids: str) -> list[str]:
    places: list[str] = known.of(pa.array(dids, pa.string())).to_pylist()
    return places


def test_a_held_file_is_where_it_lies_and_another_where_most_lie() -> None:
    def lying(scope: str, name: str, prefix: str) -> str:
        return prefix + place_of(Did(scope, name))

    held = [lying("mc26_14TeV", f"EVNT.1._{n}.root", "/atlas/rucio") for n in range(3)]
    known = paths(*held, lying("user.ada", "u", "/old/rucio"), f"/eos/cms{LFN[4:]}")
    assert of(known, "user.ada:u", LFN) == [lying("user.ada", "u", "/old/rucio"), f"/eos/cms{LFN[4:]}"]
    assert of(known, AOD, "acada:/ctao/f") == [f"/atlas/rucio{AOD_PLACE}", "/ctao/f"]
    assert of(paths(*held, prefix="/set"), AOD) == [f"/set{AOD_PLACE}"]
    assert of(paths(prefix=""), AOD, LFN) == [AOD_PLACE, LFN[4:]]


def test_no_prefix_is_learned_that_names_somebody_elses_server() -> None:
    """Anybody may read through a forward proxy, and so decide where most of its files lie."""
    evil = [
        f"{server}{LFN[4:]}{n}" for server in ("/root:/evil.org:1094", "/eos:/x", "/a b") for n in range(9)
    ]
    assert of(paths(*evil), LFN) == [LFN[4:]]
    by_hash = [f"/root:/evil.org:1094/atlas{place_of(Did('mc26_14TeV', str(n)))}" for n in range(9)]
    assert paths(*by_hash).known(pa.array([AOD])).to_pylist() == [None]
    assert of(paths(*by_hash, f"/rucio{place_of(Did('mc26_14TeV', 'x'))}"), AOD) == [f"/rucio{AOD_PLACE}"]


BESIDE = ("/atlas2", "/atlas/mc26_14TeV", "/eos/user/e/eve")
NEVER = ("/root:/evil.org:1094/atlas", "{}?authz=x", "{}%3Fx", "{}#x", "{}&authz=x")


@pytest.mark.parametrize(
    ("prefix", "other"),
    [*(("/atlas", other) for other in BESIDE + NEVER), *((None, other) for other in NEVER)],
)
def test_a_file_is_where_the_cache_should_have_it_however_large_a_copy_is(
    tmp_path: Path, other: str, prefix: str | None
) -> None:
    right = f"/atlas{AOD_PLACE}"
    wrong = other.format(right) if "{" in other else other + AOD_PLACE
    held = [Held(wrong, 9, 9, True, 1, False), Held(right, 5, 5, True, 1, False)]
    by_path = dids_of(Tables(str(tmp_path)), held, {}, prefix)
    assert by_path == {right: AOD, wrong: f"mc26_14TeV:{wrong}"}


def test_one_path_is_of_one_file() -> None:
    """A catalogue may list any name in any scope."""
    right = f"/atlas{AOD_PLACE}"
    known = paths(right, "/ctao/f", prefix="/atlas")
    dids = pa.array([f"user.eve:{right}", AOD, "unknown:/ctao/f", "eve:/ctao/f", "eve:/x", "adam:/x", LFN])
    assert known.is_anothers(dids, known.of(dids)).tolist() == [True, False, False, True, False, True, False]


def test_where_no_path_is_known_that_is_said_in_a_line() -> None:
    assert of(paths(), LFN) == [LFN[4:]]
    with pytest.raises(
        ConfigError, match=r"caches.xc.prefix.*no path is known for 'mc26.*for example /atlas/rucio"
    ):
        of(paths(), LFN, AOD)
    assert paths().known(pa.array([LFN, AOD])).to_pylist() == [LFN[4:], None]


@pytest.mark.parametrize(
    "did", ["mc:../../etc/passwd", "../..:f", "mc:a\nb", "mc:", "a/b:x?y", "user..:x", "s:/a/../b"]
)
def test_no_name_of_rucio_leads_out_of_the_cache(did: str) -> None:
    (path,) = of(paths(prefix="/atlas/rucio"), did)
    assert fault_of(path) is not None or (path.startswith("/atlas/rucio/") and ".." not in path)


@pytest.mark.parametrize("prefix", ["atlas", "/a/", "/a/../b", "/a b", "/a?x"])
def test_a_prefix_is_checked(prefix: str) -> None:
    with pytest.raises(ValueError, match="prefix"):
        paths(prefix=prefix)


AS_OF = 1_772_323_200
NAMES = [f"/store/f{i}.root" for i in range(400)]
DIDS = pa.array([f"cms:{name}" for name in NAMES])
NODES = ("a", "b", "c")


def site(
    root: Path,
    names: tuple[str, ...] = NODES,
    *,
    redirector: str | None = "root://r:1094",
    drained: frozenset[str] = frozenset(),
) -> Settings:
    caches = {
        name: CacheSettings(
            name=name, kind="xcache", url=f"root://{name}:1094", site="EDGE", capacity=10**12,
            redirector=redirector, drain=name in drained,
        )
        for name in names
    }  # fmt: skip
    return Settings.load(tables=str(root), env={}).model_copy(update={"caches": caches})


def owners(
    settings: Settings, serving: set[str] | None = None, held: dict[str, list[str]] | None = None
) -> list[str]:
    held = held or {}
    for name, files in held.items():
        dids = pa.array([f"cms:{file}" for file in files], pa.string())
        rows = contents([Held(file, 1, 1, True, 1, False) for file in files], dids, taken_s=AS_OF)
        Tables(settings.tables.root).replace_partition(CONTENTS, rows, MomentKey.at(AS_OF, name))
    mine: dict[str, BoolArray] = {}
    for name, cache in settings.caches.items():
        dids = [f"cms:{file}" for file in held.get(name, [])]
        here = is_here(settings, cache, DIDS, held=dids, serving=serving, at_s=AS_OF)
        assert here is not None
        mine[name] = here
    assert (np.sum(list(mine.values()), axis=0) == 1).all()
    return [next(name for name in mine if mine[name][i]) for i in range(len(NAMES))]


@pytest.mark.parametrize("redirector", [None, "root://r:1094"])
def test_a_drained_or_lost_node_moves_its_share_alone(tmp_path: Path, redirector: str | None) -> None:
    before = owners(site(tmp_path, redirector=redirector))
    assert set(before) == set(NODES)
    drained = owners(site(tmp_path, redirector=redirector, drained=frozenset({"c"})))
    lost = owners(site(tmp_path, redirector=redirector), serving={"a", "b"})
    assert drained == lost
    assert {new for old, new in zip(before, lost, strict=True) if old == "c"} == {"a", "b"}
    assert all(new == old for old, new in zip(before, lost, strict=True) if old != "c")


def test_a_node_that_joins_gets_no_file_that_another_one_holds(tmp_path: Path) -> None:
    before = owners(site(tmp_path))
    held = {
        node: [name for name, of in zip(NAMES[:200], before, strict=False) if of == node] for node in NODES
    }
    joined = site(tmp_path, (*NODES, "d"))
    after = owners(joined, held=held)
    assert after[:200] == before[:200]
    moved = [(old, new) for old, new in zip(before[200:], after[200:], strict=True) if old != new]
    assert moved
    assert sum(new != "d" for _, new in moved) <= 0.1 * 200


def test_of_several_copies_the_one_counts_that_the_hash_names(tmp_path: Path) -> None:
    by_hash = owners(site(tmp_path / "0"))
    assert owners(site(tmp_path / "1"), held=dict.fromkeys(NODES, NAMES)) == by_hash
    others = owners(site(tmp_path / "2"), held={"b": NAMES, "c": NAMES})
    assert others == ["b" if of == "a" else of for of in by_hash]
    assert owners(site(tmp_path / "3"), held={"c": NAMES}) == ["c"] * len(NAMES)
    # What a node held two days ago, or holds that is lost, does not count.
    owners(site(tmp_path / "5"), held={"c": NAMES})
    settings = site(tmp_path / "5")
    late = is_here(settings, settings.caches["a"], DIDS, serving=NODES, at_s=AS_OF + 2 * 86400)
    assert late is not None
    assert late.tolist() == [of == "a" for of in by_hash]
    assert "c" not in owners(site(tmp_path / "4"), serving={"a", "b"}, held={"c": NAMES})


@pytest.mark.parametrize("url", ["root://c:port", "root://c:99999", "root://[::1"])
def test_a_node_whose_url_has_no_port_is_a_wrong_setting(tmp_path: Path, url: str) -> None:
    settings = site(tmp_path)
    settings.caches["c"] = settings.caches["c"].model_copy(update={"url": url})
    with pytest.raises(ConfigError, match=r"caches\.c\.url"):
        redirector_of(settings, settings.caches["a"])
