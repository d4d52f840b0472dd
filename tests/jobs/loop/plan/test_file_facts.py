"""The part of a file that jobs read, and the origin chosen of those that have it, against a plain choice."""

import datetime as dt
import math
from typing import Any

import pyarrow as pa
import pytest
from access_rows import accesses
from hypothesis import given
from hypothesis import strategies as st

from features.schema import ACCESSES
from jobs.ground.settings.sections import OriginSettings
from jobs.ground.store.tables import Tables
from jobs.loop.plan.file_facts import OriginRules, nearest, read_shares
from prefetch.plan.scores import Barred

AS_OF, HOUR = dt.datetime(2026, 3, 2, tzinfo=dt.UTC), dt.timedelta(hours=1)


def test_a_read_known_from_its_open_counts_once_its_bytes_are_told(tables: Tables) -> None:
    ends = ((AS_OF - HOUR, 20), (AS_OF + HOUR, 100))
    rows = [{"closed_at": closed_at, "read_bytes": n_bytes} for closed_at, n_bytes in ends]
    tables.replace_arrow(
        ACCESSES, accesses(rows, accessed_at=AS_OF - 5 * HOUR, dataset="s:d", size_bytes=100)
    )
    assert read_shares(tables, as_of_s=int(AS_OF.timestamp())) == {"s:d": 0.2}
    assert read_shares(tables, as_of_s=int(AS_OF.timestamp()) + 7200) == {"s:d": 0.6}


def test_a_record_that_got_a_size_wrong_changes_no_share(tables: Tables) -> None:
    rows = [{"size_bytes": size} for size in (100, 100, 0, None, 7)]
    tables.replace_arrow(ACCESSES, accesses(rows, accessed_at=AS_OF - 5 * HOUR, dataset="s:d", read_bytes=20))
    assert read_shares(tables, as_of_s=int(AS_OF.timestamp())) == {"s:d": 0.2}


def test_absurd_reads_make_no_absurd_share(tables: Tables) -> None:
    absurd: list[dict[str, int]] = [{"read_bytes": -(2**62)}, {"read_bytes": 0, "n_reads": 0}]
    at: dict[str, Any] = {"accessed_at": AS_OF - 5 * HOUR, "dataset": "s:d", "size_bytes": 100}
    for n_many, expected in ((0, 1 / 3), (3, 0.0)):
        many = [{"read_bytes": 0, "n_reads": 2**62}] * n_many
        tables.replace_arrow(ACCESSES, accesses([{"read_bytes": 100}, *absurd, *many], **at))
        assert read_shares(tables, as_of_s=int(AS_OF.timestamp())) == {"s:d": pytest.approx(expected)}


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


def best(origins: list[str | None] | None) -> str | None:
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
    facts = nearest(pa.chunked_array([pa.array(origins, pa.list_(pa.string()))]), RULES)
    assert facts["origin"].to_pylist() == [best(names) for names in origins]
    for name, code, why in zip(
        *(facts[column].to_pylist() for column in ("origin", "barred", "why")), strict=True
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
