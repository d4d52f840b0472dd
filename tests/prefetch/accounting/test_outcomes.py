"""Outcomes against a slow oracle: plain loops over items and reads."""

import datetime as dt
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from cases import cases
from hypothesis import given
from hypothesis import strategies as st

from features.schema import OUTCOMES, arrow_schema
from prefetch.outcomes import outcomes

START = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)


EXPIRES = 20.0


def at(second: float) -> dt.datetime:
    return START + dt.timedelta(seconds=second)


def receipt(item_id: str, second: float, **changes: Any) -> dict[str, Any]:
    item = {"item_id": item_id, "cache": "c", "did": "t:a", "action": "prefetch", "bytes": 100}
    done = {"state": "done", "updated_at": at(second), "expires_at": at(EXPIRES)}
    return {**item, **done, "attempts": 1, "error": None, **changes}


def read(second: float, lasted_s: float = 0, **changes: Any) -> dict[str, Any]:
    known = {"did": "t:a", "cache": "c", "bytes_hit": 50, "bytes_missed": 0, "n_reads": 1}
    return {**known, "accessed_at": at(second), "closed_at": at(second + lasted_s), **changes}


def rows(
    receipts: list[dict[str, Any]], reads: list[dict[str, Any]], *, until: float | None = EXPIRES
) -> list[dict[str, Any]]:
    known = None if until is None else at(until)
    of_receipts = pd.DataFrame(receipts, columns=list(receipt("", 0)))
    table = outcomes(of_receipts, pd.DataFrame(reads, columns=list(read(0))), until=known)
    assert list(table.columns) == [*OUTCOMES.column_names, "cache"]
    schema = arrow_schema(OUTCOMES).append(pa.field("cache", pa.string(), nullable=False))
    return pa.Table.from_pandas(table, schema=schema, preserve_index=False).to_pylist()


def follows(row: dict[str, Any], item: dict[str, Any]) -> bool:
    """Whether read `one` began after `item` was done, as far as whole seconds tell."""
    began, done = row["accessed_at"], item["updated_at"]
    if began.microsecond or began > done:
        return bool(began > done)
    in_its_second = began + dt.timedelta(seconds=1) > done
    return bool(in_its_second and (item["action"] == "prefetch" or (row["closed_at"] or began) > done))


def oracle(receipts: list[dict[str, Any]], reads: list[dict[str, Any]], until: float) -> list[dict[str, Any]]:
    items = [each for each in receipts if each["state"] == "done" and each["action"] in ("prefetch", "pin")]
    earned: dict[str, list[dict[str, Any]]] = {each["item_id"]: [] for each in items}
    for row in reads:
        before = [
            each
            for each in items
            if (each["cache"], each["did"]) == (row["cache"], row["did"]) and follows(row, each)
        ]
        if before:
            earned[max(before, key=lambda each: (each["updated_at"], each["item_id"]))["item_id"]].append(row)
    expected = []
    for each in sorted(items, key=lambda each: each["item_id"]):
        hits: list[dict[str, Any]] = []
        use = "pending" if each["expires_at"] > at(until) else "unread"
        for n, second in enumerate(sorted({row["accessed_at"] for row in earned[each["item_id"]]})):
            together = [row for row in earned[each["item_id"]] if row["accessed_at"] == second]
            if n == 0:
                use = "unread" if any((row["bytes_missed"] or 0) > 0 for row in together) else "read"
            if any(row["bytes_missed"] != 0 or not row["bytes_hit"] > 0 for row in together):
                break
            hits += together
        spent = each["bytes"] if each["action"] == "prefetch" else 0
        delays = [max(0.0, (hit["accessed_at"] - each["updated_at"]).total_seconds()) for hit in hits]
        expected.append(
            {key: each[key] for key in ("item_id", "cache", "did", "action", "expires_at")}
            | {
                "n_hits": sum(hit["n_reads"] for hit in hits),
                "bytes_saved": sum(hit["bytes_hit"] for hit in hits),
            }
            | {"bytes_spent": spent, "bytes_wasted": spent if use == "unread" else 0, "use": use}
            | {"first_hit_delay_s": min(delays, default=None)}
        )
    return expected


RECEIPTS = st.lists(
    st.builds(
        lambda second, **changes: (second, changes),
        st.one_of(st.integers(0, 20), st.integers(0, 100).map(lambda tenths: tenths / 10)),
        did=st.sampled_from(["t:a", "t:b"]),
        cache=st.sampled_from(["c", "d"]),
        action=st.sampled_from(["prefetch", "pin", "evict"]),
        state=st.sampled_from(["done", "done", "failed"]),
        bytes=st.integers(0, 100),
        expires_at=st.integers(0, 40).map(at),
    ),
    max_size=6,
).map(lambda tries: [receipt(f"i{n}", second, **changes) for n, (second, changes) in enumerate(tries)])
READS = st.lists(
    st.builds(
        read,
        st.one_of(st.integers(0, 30), st.integers(0, 150).map(lambda tenths: tenths / 10)),
        st.sampled_from([0, 0, 1, 5]),
        did=st.sampled_from(["t:a", "t:b"]),
        cache=st.sampled_from(["c", "d", None]),
        bytes_hit=st.integers(0, 3),
        bytes_missed=st.sampled_from([0, 0, 0, 1, None]),
        n_reads=st.integers(1, 3),
    ),
    max_size=15,
)


@cases(40, thorough=1000)
@given(RECEIPTS, READS, st.integers(0, 40))
def test_equals_the_oracle(receipts: list[dict[str, Any]], reads: list[dict[str, Any]], until: float) -> None:
    assert rows(receipts, reads, until=until) == oracle(receipts, reads, until)


@pytest.mark.parametrize(
    ("action", "begin", "lasted_s", "hits"),
    [
        ("prefetch", 10, 0, 1),  # in the second of the receipt: without the prefetch it had missed
        ("prefetch", 10, 3, 1),
        ("prefetch", 9, 0, 0),
        ("prefetch", 9, 3, 0),  # began before the receipt, whenever it ended
        ("prefetch", 10.5, 3, 0),  # a time with a fraction is exact
        ("prefetch", 10.7, 0, 1),
        ("pin", 10, 0, 0),  # may have ended before the receipt
        ("pin", 10, 1, 1),
        ("pin", 9, 3, 0),
        ("pin", 11, 0, 1),
    ],
)
def test_a_read_counts_if_it_began_after_the_receipt_as_far_as_whole_seconds_tell(
    action: str, begin: float, lasted_s: float, hits: int
) -> None:
    (got,) = rows([receipt("a", 10.6, action=action)], [read(begin, lasted_s)])
    assert got["n_hits"] == hits
    assert got["first_hit_delay_s"] is None or got["first_hit_delay_s"] >= 0


def test_an_item_that_may_still_be_read_is_pending_and_no_waste() -> None:
    items = [receipt("a", 10), receipt("b", 10, action="pin", did="t:b"), receipt("c", 10, did="t:c")]
    reads = [read(12, did="t:c")]

    def uses(until: float | None) -> list[tuple[str, int]]:
        return [(row["use"], row["bytes_wasted"]) for row in rows(items, reads, until=until)]

    assert uses(None) == uses(19.9) == [("pending", 0), ("pending", 0), ("read", 0)]
    assert uses(EXPIRES) == [("unread", 100), ("unread", 0), ("read", 0)]
    assert [row["use"] for row in rows([receipt("a", 10, expires_at=None)], [], until=99)] == ["pending"]
