"""Outcomes against a slow oracle: plain loops over items and reads."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pandas as pd
import pyarrow as pa
from cases import cases
from hypothesis import given
from hypothesis import strategies as st

from features.schema import OUTCOMES, arrow_schema
from prefetch.accounting.outcomes import outcomes

START = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)


def at(second: int) -> dt.datetime:
    return START + dt.timedelta(seconds=second)


def receipt(item_id: str, second: int, **changes: Any) -> dict[str, Any]:
    known = {
        "item_id": item_id,
        "cache": "c",
        "did": "t:a",
        "action": "prefetch",
        "state": "done",
        "bytes": 100,
    }
    return known | {"updated_at": at(second), "attempts": 1, "error": None} | changes


def read(second: int, **changes: Any) -> dict[str, Any]:
    known = {
        "did": "t:a",
        "cache": "c",
        "accessed_at": at(second),
        "bytes_hit": 50,
        "bytes_missed": 0,
        "n_reads": 1,
    }
    return known | changes


def frames(receipts: list[dict[str, Any]], reads: list[dict[str, Any]]) -> tuple[pd.DataFrame, pd.DataFrame]:
    return pd.DataFrame(receipts, columns=list(receipt("", 0))), pd.DataFrame(reads, columns=list(read(0)))


def rows(receipts: list[dict[str, Any]], reads: list[dict[str, Any]]) -> list[dict[str, Any]]:
    table = outcomes(*frames(receipts, reads))
    assert list(table.columns) == [*OUTCOMES.column_names, "cache"]
    schema = arrow_schema(OUTCOMES).append(pa.field("cache", pa.string(), nullable=False))
    return pa.Table.from_pandas(table, schema=schema, preserve_index=False).to_pylist()


def oracle(receipts: list[dict[str, Any]], reads: list[dict[str, Any]]) -> list[dict[str, Any]]:
    items = [each for each in receipts if each["state"] == "done" and each["action"] in ("prefetch", "pin")]
    earned: dict[str, list[dict[str, Any]]] = {each["item_id"]: [] for each in items}
    for one in reads:
        before = [
            each
            for each in items
            if (each["cache"], each["did"]) == (one["cache"], one["did"])
            and each["updated_at"] < one["accessed_at"]
        ]
        if before:
            earned[max(before, key=lambda each: (each["updated_at"], each["item_id"]))["item_id"]].append(one)
    made = []
    for each in sorted(items, key=lambda each: each["item_id"]):
        hits: list[dict[str, Any]] = []
        for second in sorted({one["accessed_at"] for one in earned[each["item_id"]]}):
            together = [one for one in earned[each["item_id"]] if one["accessed_at"] == second]
            if any(one["bytes_missed"] != 0 or not one["bytes_hit"] > 0 for one in together):
                break
            hits += together
        spent = each["bytes"] if each["action"] == "prefetch" else 0
        delay = (hits[0]["accessed_at"] - each["updated_at"]).total_seconds() if hits else None
        made.append(
            {key: each[key] for key in ("item_id", "cache", "did", "action")}
            | {
                "n_hits": sum(one["n_reads"] for one in hits),
                "bytes_saved": sum(one["bytes_hit"] for one in hits),
            }
            | {"bytes_spent": spent, "bytes_wasted": 0 if hits else spent, "first_hit_delay_s": delay}
        )
    return made


RECEIPTS = st.lists(
    st.builds(
        lambda second, **changes: (second, changes),
        st.integers(0, 20),
        did=st.sampled_from(["t:a", "t:b"]),
        cache=st.sampled_from(["c", "d"]),
        action=st.sampled_from(["prefetch", "pin", "evict"]),
        state=st.sampled_from(["done", "done", "failed"]),
        bytes=st.integers(0, 100),
    ),
    max_size=6,
).map(lambda made: [receipt(f"i{n}", second, **changes) for n, (second, changes) in enumerate(made)])
READS = st.lists(
    st.builds(
        read,
        st.integers(0, 30),
        did=st.sampled_from(["t:a", "t:b"]),
        cache=st.sampled_from(["c", "d", None]),
        bytes_hit=st.integers(0, 3),
        bytes_missed=st.sampled_from([0, 0, 0, 1]),
        n_reads=st.integers(1, 3),
    ),
    max_size=15,
)


@cases(40, thorough=1000)
@given(RECEIPTS, READS)
def test_equals_the_oracle(receipts: list[dict[str, Any]], reads: list[dict[str, Any]]) -> None:
    assert rows(receipts, reads) == oracle(receipts, reads)


def test_a_hit_pays_and_an_unread_file_is_wasted() -> None:
    got = rows(
        [receipt("a", 10), receipt("b", 10, did="t:b")], [read(5), read(10), read(15), read(30, n_reads=2)]
    )
    assert [(r["n_hits"], r["bytes_saved"], r["bytes_spent"], r["bytes_wasted"]) for r in got] == [
        (3, 100, 100, 0),
        (0, 0, 100, 100),
    ]
    assert [r["first_hit_delay_s"] for r in got] == [5.0, None]


def test_nothing_is_earned_after_a_miss() -> None:
    (got,) = rows([receipt("a", 10)], [read(15, bytes_missed=1), read(20)])
    assert (got["n_hits"], got["bytes_wasted"]) == (0, 100)


def test_unknown_bytes_are_no_hit() -> None:
    (got,) = rows([receipt("a", 10)], [read(15, bytes_hit=None, bytes_missed=None)])
    assert got["n_hits"] == 0


def test_no_receipts_and_no_reads_give_an_empty_table() -> None:
    assert rows([], []) == []
