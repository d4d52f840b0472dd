"""What a plan goes by: how far a model is followed, what reads say of a file, and which origin is nearest."""

import datetime as dt
import math
from typing import Any

import pyarrow as pa
import pytest
from access_rows import accesses
from hypothesis import given
from hypothesis import strategies as st

from features.common.times import DAY_S, as_of_label, day_label
from features.results import CHALLENGER_PLAN, EVALUATIONS, LRU
from features.schema import ACCESSES
from jobs.ground.settings.sections import OriginSettings
from jobs.ground.settings.tree import Settings
from jobs.ground.store.tables import Tables
from jobs.loop.plan.file_facts import OriginRules, nearest, read_shares
from jobs.loop.plan.planner import model_weight
from models.evaluation.promotion import UNPROVEN
from prefetch.plan.scores import Barred

OURS = "cachecast-emea/3"


def row(capacity_bytes: int | None, weight: float | None, **changes: Any) -> dict[str, Any]:
    counts = dict.fromkeys(
        ("wan_bytes", "hit_bytes", "requests", "hits", "prefetch_bytes", "wasted_bytes"), 0
    )
    of = {"model_version": OURS, "policy": CHALLENGER_PLAN, "scored_by": OURS, "on_day": "2026-03-01"}
    at = {"capacity_fraction": 0.1, "capacity_bytes": capacity_bytes, "model_weight": weight}
    return {**of, **at, **counts, **changes}


def recorded(tables: Tables, rows: list[dict[str, Any]], *, day: int) -> None:
    at_s = day * DAY_S
    tables.replace_rows(EVALUATIONS, rows, (day_label(at_s), as_of_label(at_s), "emea"))


def weight(tables: Tables, capacity_bytes: int, *, version: str = OURS, **set_: Any) -> float:
    plan = Settings.load(env={}).plan.model_copy(update=set_)
    return model_weight(tables, plan, region="emea", version=version)(capacity_bytes)


def test_models_that_were_never_evaluated_are_unproven(tables: Tables) -> None:
    assert weight(tables, 100) == UNPROVEN
    recorded(tables, [row(100, 0.75), row(100, None, policy=LRU, scored_by=None)], day=20_000)
    assert weight(tables, 100, version="cachecast-emea/4") == UNPROVEN
    recorded(tables, [row(None, None)], day=20_001)
    assert weight(tables, 100) == 0.75


def test_the_newest_evaluation_counts_at_the_nearest_capacity(tables: Tables) -> None:
    recorded(tables, [row(100, 1.0), row(1000, 1.0, capacity_fraction=0.2)], day=20_000)
    recorded(tables, [row(100, 0.25), row(1000, 0.75, capacity_fraction=0.2)], day=20_001)
    assert [weight(tables, capacity) for capacity in (1, 310, 320, 10**6)] == [0.25, 0.25, 0.75, 0.75]


def test_a_weight_that_is_set_counts_alone(tables: Tables) -> None:
    recorded(tables, [row(100, 1.0)], day=20_000)
    assert weight(tables, 100, model_weight=0.25) == 0.25


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
