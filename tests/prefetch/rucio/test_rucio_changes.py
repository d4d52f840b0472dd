"""Which files are told to Rucio."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given

from prefetch.rucio.dids import Did
from prefetch.rucio.sync import ReportedReplicas, State, changes

DIDS = st.builds(Did, st.just("s"), st.sampled_from("abcdefgh"))
STATES = st.sampled_from(["adding", "there", "removing", "unknown"])


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
