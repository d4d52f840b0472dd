"""The learned order in line: against plain loops, and what it may never do."""

import numpy as np
import pytest
from contexts import context_with
from ladders import one_split

from features.common.errors import InputError
from features.spec import COLUMNS
from models.learning.order import decisions
from replay.access_context import AccessContext
from replay.kernels.scored_files import new_rule
from replay.policies import Policy, run_policy
from replay.policies.learned import Order
from replay.steward.policies import steward_policy
from replay.trace import Trace


def trace_of(seed: int, *, n: int = 3000, m: int = 200) -> Trace:
    draw = np.random.default_rng(seed)
    times = np.cumsum(draw.integers(0, 400, n))
    item = np.minimum(draw.geometric(0.02, n) - 1, m - 1)
    return Trace(times, item.astype(np.int32), draw.integers(1, 1000, m))


def in_sevens(trace: Trace, n_datasets: int = 7) -> AccessContext:
    return context_with(trace, np.arange(trace.n_items) % n_datasets)


def learned(context: AccessContext, orders: list[Order]) -> Policy:
    policy = steward_policy("steward", context, orders)
    assert callable(policy)
    return policy


def hits_of(trace: Trace, orders: list[Order], capacity: int, *, n_datasets: int = 7) -> np.ndarray:
    hit = np.zeros(trace.n_accesses, np.bool_)
    peak = learned(in_sevens(trace, n_datasets), orders)(trace, capacity, hit)
    assert isinstance(peak, int) and peak <= capacity
    return hit


@pytest.mark.parametrize("seed", range(3))
def test_without_an_order_it_is_lru(seed: int) -> None:
    trace = trace_of(seed)
    for capacity in (100, 5000, 30_000, 10**6):
        result = run_policy("learned", trace, capacity, policy=learned(in_sevens(trace), []))
        assert result.wan_bytes == run_policy("lru", trace, capacity).wan_bytes


def test_half_of_recency_is_nearly_lru_where_all_rates_are_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest of a sample goes: of few files, the sample is nearly all of them."""
    half = lambda ladder: new_rule(ladder)._replace(share=0.5)  # noqa: E731
    monkeypatch.setattr("replay.steward.order.new_rule", half)
    trace = trace_of(1)
    order = Order(float(trace.time_s[0]), one_split("n_reads", 1, -9, -9))
    result = run_policy("learned", trace, 12_000, policy=learned(in_sevens(trace), [order]))
    assert result.wan_bytes == pytest.approx(run_policy("lru", trace, 12_000).wan_bytes, rel=0.02)


def test_the_least_valuable_file_goes_first() -> None:
    """Where a small file is worth nothing, it goes again and again although it is read as often as others."""
    item = np.array([0, 1, 2, 3] * 200, np.int32)
    trace = Trace(np.arange(item.size) * 60, item, np.array([10, 100, 100, 100]))
    missed = {}
    for name, small, large in (("large", -9.0, 9.0), ("small", 9.0, -9.0)):
        order = Order(0.0, one_split("size_bytes", 50.0, small, large))
        hit = hits_of(trace, [order], 305, n_datasets=1)
        missed[name] = np.bincount(item[~hit], minlength=4).tolist()
    assert missed["small"][0] == 1
    assert missed["large"][0] > 100


def test_an_order_rules_from_its_time_until_the_next_begins() -> None:
    trace = trace_of(2)
    orders = [
        Order(float(trace.time_s[1000]), one_split("recency_s", 600.0, -3.0, 3.0)),
        Order(float(trace.time_s[2000]), one_split("size_bytes", 500.0, 3.0, -3.0)),
    ]
    for n, order in enumerate(orders):
        without, ruled = hits_of(trace, orders[:n], 8000), hits_of(trace, orders[: n + 1], 8000)
        first = trace.first_at(int(order.from_s))
        assert (without[:first] == ruled[:first]).all()
        assert (without[first:] != ruled[first:]).any()


def test_a_file_larger_than_the_cache_stays_out() -> None:
    trace = trace_of(3)
    order = Order(float(trace.time_s[10]), one_split("n_reads", 2.0, -1.0, 1.0))
    hit = hits_of(trace, [order], 900)
    assert hit.any()
    assert not hit[trace.size_bytes[trace.item] > 900].any()


@pytest.mark.parametrize("seed", range(3))
def test_rows_are_of_files_within_the_window_and_labels_of_the_next_read(seed: int) -> None:
    trace = trace_of(seed)
    # Sizes tell files apart here.
    trace = Trace(trace.time_s, trace.item, np.arange(1, trace.n_items + 1))
    begin, end, window_s = float(trace.time_s[500]), float(trace.time_s[2500]), float(trace.time_s[400])
    rows = decisions(trace, in_sevens(trace), [window_s], from_s=begin, to_s=end, most=300)
    recency, size = (rows.x[:, COLUMNS.index(name)] for name in ("recency_s", "size_bytes"))
    assert rows.at_s.size > 200
    assert ((rows.at_s >= begin) & (rows.at_s < end)).all()
    assert ((recency >= 0) & (recency <= window_s)).all()
    past = trace.until(int(end))
    for at_s, next_s, file, age_s in zip(rows.at_s, rows.next_s, size - 1, recency, strict=True):
        times = past.time_s[past.item == file]
        assert at_s - age_s in times
        # Times tie: a read at this very second may lie before the row or behind it.
        after, strictly = times[times >= at_s], times[times > at_s]
        first = {float(some[0] - at_s) if some.size else np.inf for some in (after, strictly)}
        assert next_s in first


def test_rows_do_not_depend_on_what_comes_after_the_end() -> None:
    trace = trace_of(4)
    end = float(trace.time_s[2000])
    cut = Trace(trace.time_s[:2000], trace.item[:2000], trace.size_bytes)
    rows = [decisions(t, in_sevens(t), [1e5], from_s=0.0, to_s=end, most=200) for t in (trace, cut)]
    for one, other in zip(*rows, strict=True):
        assert np.array_equal(one, other, equal_nan=True)


def test_a_context_of_another_trace_never_reaches_the_kernels() -> None:
    trace = trace_of(5)
    fitting = in_sevens(trace)
    files, n = fitting.files, trace.n_accesses
    order = Order(0.0, one_split("n_reads", 2.0, -1.0, 1.0))
    hostile = [
        fitting._replace(files=files._replace(dataset=np.full(trace.n_items, value, np.int32)))
        for value in (-1, 7, 2**31 - 1)
    ]
    hostile += [
        fitting._replace(reader=np.zeros(n - 1, np.int32)),
        fitting._replace(n_datasets=6),
        fitting._replace(files=files._replace(n_files=np.zeros(6, np.int64))),
        *(
            fitting._replace(files=files._replace(**{name: getattr(files, name)[:-1]}))
            for name in ("dataset", "tier", "size_bytes", "rank")
        ),
    ]
    for context in hostile:
        with pytest.raises(InputError, match="of another trace"):
            learned(context, [order])(trace, 1000, np.zeros(n, np.bool_))
        with pytest.raises(InputError, match="of another trace"):
            decisions(trace, context, [1e5], from_s=0.0, to_s=1e9, most=10)
