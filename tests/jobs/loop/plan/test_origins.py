"""The origin that is chosen of those that have a file, against a plain choice file by file."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.ground.settings.study import OriginSettings
from jobs.loop.plan.file_facts import OriginRules, nearest
from prefetch.plan.scores import Barred

REGIONS = {
    "near": OriginSettings(hosts=("*.es", "PIC*"), rtt_ms=9),
    "far": OriginSettings(hosts=("FNAL*",), rtt_ms=150),
    "dark": OriginSettings(hosts=("DARK*",)),
}
RULES = OriginRules(
    REGIONS, storage=("EDGE*",), tape=("*tape*",), failing=frozenset({"x.es", "FNAL_A"}), caches=("XC-PIC",)
)
NAMES = ["x.es", "root://y.ES:1094//", "PIC_DISK", "PIC_TAPE", "FNAL_A", "FNAL_B", "DARK", "?", "EDGE_D",
         "EDGE_TAPE", "", " ", " EDGE_D", "XC-PIC"]  # fmt: skip
RTT_MS = {"x.es": 9, "root://y.ES:1094//": 9, "PIC_DISK": 9, "PIC_TAPE": 9, "FNAL_A": 150, "FNAL_B": 150}


def chosen(origins: list[str | None] | None) -> str | None:
    def key(name: str) -> tuple[bool, bool, bool, float]:
        is_tape = "TAPE" in name
        is_site = name.startswith("EDGE") and not is_tape
        return not is_site, is_tape, name in RULES.failing, RTT_MS.get(name, math.inf)

    stated = (name.strip() for name in origins or [] if name is not None)
    return min((name for name in stated if name not in ("", "XC-PIC")), key=key, default=None)


lists = st.lists(
    st.one_of(st.none(), st.lists(st.one_of(st.none(), st.sampled_from(NAMES)), max_size=5)), max_size=8
)


@given(lists)
def test_the_best_is_chosen(origins: list[list[str | None] | None]) -> None:
    found = nearest(pa.chunked_array([pa.array(origins, pa.list_(pa.string()))]), RULES)
    assert found["origin"].to_pylist() == [chosen(one) for one in origins]
    for name, code, why in zip(
        *(found[column].to_pylist() for column in ("origin", "barred", "why")), strict=True
    ):
        barred = Barred.AT_SITE if name == "EDGE_D" else Barred.NOT
        assert code == (Barred.ON_TAPE if name is not None and "TAPE" in name else barred)
        assert (why is None) == (name is None)


@pytest.mark.parametrize(
    ("origins", "why"),
    [
        (["PIC_DISK"], "PIC_DISK, 9 ms (near)"),
        (["FNAL_B", "PIC_DISK"], "PIC_DISK, 9 ms (near), nearest of several"),
        (["x.es", "FNAL_B"], "FNAL_B, 150 ms (far), nearer ones fail"),
        (["FNAL_A", "DARK"], "DARK, of unknown distance, nearer ones fail"),
        (["?"], "?, of unknown distance"),
    ],
)
def test_the_words_say_why(origins: list[str], why: str) -> None:
    assert nearest(pa.chunked_array([[origins]], pa.list_(pa.string())), RULES)["why"].to_pylist() == [why]
