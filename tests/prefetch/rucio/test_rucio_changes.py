"""Which files are told to Rucio, and under which name."""

from __future__ import annotations

from collections.abc import Iterator

import hypothesis.strategies as st
import pytest
from hypothesis import given
from rucio.common.config import clean_cached_config
from rucio.rse.translation import RSEDeterministicTranslation

from prefetch.rucio.names import Did, did_of_path
from prefetch.rucio.sync import ReportedReplicas, State, changes

WORDS = st.text("abcXYZ019_-.", min_size=1, max_size=20).filter(lambda s: s.strip("."))
SCOPES = st.one_of(WORDS, *(WORDS.map(f"{kind}.{{}}".format) for kind in ("user", "group", "users")))
DIDS = st.builds(Did, st.just("s"), st.sampled_from("abcdefgh"))
STATES = st.sampled_from(["adding", "there", "removing", "unknown"])


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


@given(SCOPES, WORDS, st.sampled_from(["", "/atlas", "/pnfs/x.org/disk"]))
def test_a_path_that_rucio_makes_tells_its_did(
    translation: RSEDeterministicTranslation, scope: str, name: str, prefix: str
) -> None:
    path = translation.path(scope, name)
    assert did_of_path(f"{prefix}/rucio/{path.lstrip('/')}") == Did(scope, name)


@pytest.mark.parametrize(
    ("path", "did"),
    [
        ("/store/mc/RunIII/TT/AODSIM/P-v1/0/f.root", "cms:/store/mc/RunIII/TT/AODSIM/P-v1/0/f.root"),
        ("/atlas/rucio/mc23_13p6TeV/00/00/AOD.1._1.root", None),
        ("/ospool/ap20/data/x", None),
        ("/other.root", None),
    ],
)
def test_a_path_that_tells_no_did_is_none(path: str, did: str | None) -> None:
    found = did_of_path(path)
    assert (found and f"{found.scope}:{found.name}") == did


@given(st.sets(DIDS), st.dictionaries(DIDS, STATES), st.sets(DIDS))
def test_after_telling_rucio_has_what_is_held(
    held: set[Did], told: dict[Did, str], unknown: set[Did]
) -> None:
    """A plain model of Rucio: it has what is `there`, perhaps what is open, and takes only what it knows."""
    told = {did: "unknown" if did in unknown else "there" if s == "unknown" else s for did, s in told.items()}
    rucio = {did for did, state in told.items() if state in ("there", "removing") and did not in unknown}
    what = changes(held, told)
    rucio = (rucio - set(what.remove)) | {did for did in what.add if did not in unknown}
    assert rucio == held - unknown
    assert not set(what.remove) & held
    assert [sorted(part) for part in what] == list(what)
    # What is confirmed and still held is not told again.
    assert not set(what.add) & {did for did, state in told.items() if state == "there"}


def test_the_memory_holds_the_last_state_of_each_rse(tmp_path: object) -> None:
    told = ReportedReplicas(f"{tmp_path}/journal.db")
    many = [Did("s", str(number)) for number in range(10_001)]
    states: tuple[State, ...] = ("adding", "there")
    for state in states:
        told.note("A", many, state, now_s=1.0)
    told.note("B", many[:1], "removing", now_s=1.0)
    told.forget("A", many[1:])
    told.close()
    again = ReportedReplicas(f"{tmp_path}/journal.db")
    assert again.states("A") == {many[0]: "there"}
    assert again.states("B") == {many[0]: "removing"}
    again.close()
