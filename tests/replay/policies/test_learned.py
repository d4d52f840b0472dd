"""The learned order in line, against plain loops, and what it may never do; policies of one's own."""

import sys
from pathlib import Path

import numpy as np
import pytest
from contexts import context_with
from ladders import one_split

from features.common.errors import ConfigError, InputError
from features.spec import COLUMNS
from models.learning.order import decisions
from replay.access_context import AccessContext
from replay.policies import Policy, run_policy
from replay.policies.learned import Order
from replay.policies.own import PACKAGES, checked, own_policies
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


FIRST_COME = """
from __future__ import annotations
import dataclasses

@dataclasses.dataclass
class Disk:
    used: int = 0

def first_come(trace, capacity_bytes, hit):
    held, disk = set(), Disk()
    for i, file in enumerate(trace.item.tolist()):
        size = int(trace.size_bytes[file])
        hit[i] = file in held
        if file not in held and disk.used + size <= capacity_bytes:
            held.add(file)
            disk.used += size
    return disk.used
"""
TRACE = Trace(np.arange(6), np.array([0, 1, 2, 0, 1, 2]), np.array([10, 10, 30]))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(FIRST_COME)
    return path


def test_a_function_of_a_file_is_replayed_by_its_name_beside_ours(file: Path) -> None:
    names, own = own_policies(["LRU", f"{file}:first_come"])
    assert names == ["lru", "first_come"]
    assert list(own) == ["first_come"]
    result = run_policy("first_come", TRACE, 20, policy=own["first_come"])
    assert (result.hits, result.peak_usage_bytes) == (2, 20)


def test_a_package_brings_a_policy_and_ours_of_that_name_counts(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dist_info = tmp_path / "mine-1.0.dist-info"
    dist_info.mkdir()
    (dist_info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (dist_info / "entry_points.txt").write_text(
        f"[{PACKAGES.name}]\nfirst-come = mine:first_come\nlru = mine:none\nlost = mine:none\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    try:
        names, own = own_policies(["First_Come", "lru"])
        assert (names, list(own)) == (["first-come", "lru"], ["first-come"])
        assert run_policy("first-come", TRACE, 20, policy=own["first-come"]).hits == 2
        with pytest.raises(ConfigError, match="'lost' of the package mine cannot be loaded: AttributeError"):
            own_policies(["lost"])
        with pytest.raises(ConfigError, match=r"no policy is called 'x'; there are lru, .*first-come"):
            own_policies(["x"])
    finally:
        sys.modules.pop("mine", None)


@pytest.mark.parametrize(
    ("code", "word", "words"),
    [
        ("", "nowhere.py:mine", "there is no Python file nowhere.py"),
        ("", "FILE:mine", "FILE has no function mine"),
        ("def f(:\n", "FILE:f", "FILE cannot be loaded: SyntaxError"),
        ("raise SystemExit(3)", "FILE:f", "FILE cannot be loaded: SystemExit: 3"),
        ("lru = print", "FILE:lru", "cachecast has a policy lru; rename yours"),
        ("f = 3", "FILE:f", "f is no function, but of type int"),
        ("", "FILE:a b", "'a b' is no name for a policy"),
    ],
)
def test_what_is_no_policy_is_one_line(tmp_path: Path, code: str, word: str, words: str) -> None:
    path = tmp_path / "own.py"
    path.write_text(code)
    with pytest.raises(ConfigError) as error:
        own_policies([word.replace("FILE", str(path))])
    assert words.replace("FILE", str(path)) in str(error.value)
    assert "\n" not in str(error.value)


def test_other_words_and_two_of_one_name_are_refused(file: Path) -> None:
    with pytest.raises(ConfigError, match="3 is neither a name nor a function"):
        own_policies([3])
    with pytest.raises(ConfigError, match="'<lambda>' is no name for a policy"):
        own_policies([lambda *_: 0])
    with pytest.raises(ConfigError, match="two policies are called first_come"):
        own_policies([f"{file}:first_come", f"{file}:first_come"])


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("return None", "bad returned None; a policy returns the most bytes that it held"),
        ("return 21", "bad held 21 bytes in a cache of 20"),
        ("hit[:1] = True; return 0", "bad has a hit at access 0, the first of its file"),
        ("hit[5] = True; return 0", "bad has a hit at access 5, of a file larger than the cache"),
        ("return 1 // 0", "bad failed in .* line 1: ZeroDivisionError"),
    ],
)
def test_an_answer_that_cannot_be_names_the_policy(body: str, words: str) -> None:
    space: dict[str, object] = {}
    exec(f"def bad(trace, capacity_bytes, hit): {body}", space)
    with pytest.raises(ConfigError, match=words):
        run_policy("bad", TRACE, 20, policy=checked("bad", space["bad"]))
