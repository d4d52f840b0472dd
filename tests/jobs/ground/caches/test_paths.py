"""Where a cache has, or would have, the file of a DID."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given
from rucio.common.config import clean_cached_config
from rucio.rse.translation import RSEDeterministicTranslation

from features.common.errors import ConfigError
from jobs.ground.caches.paths import Paths
from jobs.ground.settings.tree import CacheSettings
from jobs.ground.store.tables import Tables
from jobs.loop.ingest.known_names import dids_of
from prefetch.lfn import fault_of
from prefetch.rucio.dids import Did, place_of
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
    found = dids_of(Tables("/nowhere"), [at(path) for path in dict.fromkeys(paths)], {})
    assert found == {path: f"{scope}:{name}" for path, (scope, name) in zip(paths, dids, strict=True)}


def paths(*held: str, prefix: str | None = None) -> Paths:
    cache = CacheSettings(name="xc", kind="xcache", url="root://xc:1", capacity=10**9, prefix=prefix)
    return Paths(cache, dids_of(Tables("/nowhere"), [at(path) for path in held], {}))


def of(known: Paths, *dids: str) -> list[str]:
    found: list[str] = known.of(pa.array(dids, pa.string())).to_pylist()
    return found


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


@pytest.mark.parametrize(
    "other",
    [
        "/atlas2",
        "/atlas/mc26_14TeV",
        "/eos/user/e/eve",
        "/root:/evil.org:1094/atlas",
        "{}?authz=x",
        "{}%3Fx",
        "{}#x",
        "{}&authz=x",
    ],
)
@pytest.mark.parametrize("prefix", ["/atlas", None])
def test_a_file_is_where_the_cache_should_have_it_however_large_a_copy_is(
    tmp_path: Path, other: str, prefix: str | None
) -> None:
    right = f"/atlas{AOD_PLACE}"
    wrong = other.format(right) if "{" in other else other + AOD_PLACE
    held = [Held(wrong, 9, 9, True, 1, False), Held(right, 5, 5, True, 1, False)]
    found = dids_of(Tables(str(tmp_path)), held, {}, prefix)
    if prefix is not None or not other.startswith(("/eos", "/atlas")):  # else nothing tells
        assert found == {right: AOD, wrong: f"mc26_14TeV:{wrong}"}


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
