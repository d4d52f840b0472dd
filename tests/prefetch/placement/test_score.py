"""Scores of sites, against sums done file by file."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefetch.placement.score import Score, score
from prefetch.placement.snapshot import MAX_SITES, CacheHolding, Snapshot, snapshot_of
from replay.study.benefit import Cluster

GB = 10**9
CACHES = (("xc1", "A"), ("xc2", "A"), ("xc3", "B"))
CLUSTER = Cluster(750e6, 1.2e9, 1, 2.4e6, 1000)
LIVE = {"A": frozenset({"xc1", "xc2"}), "B": frozenset({"xc3"})}


def known(files: dict[str, tuple[int, tuple[float, ...], tuple[float, ...]]]) -> Snapshot:
    size = np.array([one[0] for one in files.values()], np.float64)
    now = np.array([one[1] for one in files.values()]).reshape(-1, 3)
    soon = np.array([one[2] for one in files.values()]).reshape(-1, 3)
    return snapshot_of(
        as_of="2026-03-01T00:00:00Z",
        sites=("A", "B"),
        caches=CACHES,
        capacities={},
        datasets=np.empty(0, np.uint64),
        placed=np.empty((0, MAX_SITES), np.uint8),
        items=list(files),
        size_bytes=size,
        holdings=[CacheHolding(np.arange(len(files)), now[:, i] * size, soon[:, i] * size) for i in range(3)],
    )


def scored(snapshot: Snapshot, inputs: list[str], *, waited_s: float = 0.0, alive: object = LIVE) -> Score:
    return score(
        snapshot,
        inputs,
        [None] * len(inputs),
        alive=alive,  # type: ignore[arg-type]
        clusters={"A": CLUSTER, "B": CLUSTER},
        waited_s=waited_s,
        max_wait_s=900,
    )


part = st.floats(0, 0.5)
file = st.tuples(st.integers(1, 10**12), st.tuples(part, part, part), st.just((0.0,) * 3))
files = st.dictionaries(st.text("abc", min_size=1), file, min_size=1, max_size=8)


@given(files)
def test_fractions_and_times_are_those_of_the_sums(
    content: dict[str, tuple[int, tuple[float, ...], tuple[float, ...]]],
) -> None:
    answer = scored(known(content), list(content))
    total = sum(size for size, *_ in content.values())
    held = [sum(size * now[i] for size, now, _ in content.values()) / total for i in range(3)]
    assert answer.input_bytes == total
    for site in answer.sites:
        x, nodes = (held[0] + held[1], 2) if site.site == "A" else (held[2], 1)
        assert site.cached_fraction == pytest.approx(x, abs=1e-5)
        # KIT, Eq. 1
        remote, cached = (1 - x) * total / 750e6, x * total / (1.2e9 * nodes)
        eq1 = max(remote, cached, total / 2.4e9)
        assert site.processing_s == pytest.approx(eq1, rel=1e-3, abs=0.01)
    times = [site.processing_s for site in answer.sites]
    assert times == sorted(times)


CONTENT = known(
    {"near": (1000 * GB, (0.2, 0.2, 0.0), (0.0,) * 3), "far": (1000 * GB, (0.0, 0.0, 0.3), (0.9, 0.1, 0.3))}
)


def test_a_job_waits_no_longer_than_its_best_site_saves() -> None:
    first = scored(CONTENT, ["near"])
    times = [site.processing_s for site in first.sites]
    assert [site.site for site in first.sites] == ["A", "B"]
    assert [site.rank for site in first.sites] == [1, 2]
    assert first.max_wait_s == pytest.approx(min(900, times[1] - times[0]), abs=0.01)
    assert not first.released
    waited = scored(CONTENT, ["near"], waited_s=first.max_wait_s + 0.01)
    assert waited.released
    assert {site.rank for site in waited.sites} == {1}


def test_what_a_dead_cache_holds_does_not_count() -> None:
    live = {"A": frozenset({"xc1"}), "B": frozenset({"xc3"})}
    answer = {site.site: site for site in scored(CONTENT, ["near"], alive=live).sites}
    assert answer["A"].cached_fraction == pytest.approx(0.2)
    assert [cache.cache for cache in answer["A"].caches] == ["xc1"]
    assert math.isclose(answer["A"].predicted_fraction, 0.0)


def test_what_two_caches_of_a_site_hold_counts_once() -> None:
    """Others fetch for a cache that is dead, and keep what it still has when it returns."""
    both, none = (GB, (1.0, 1.0, 0.0), (1.0, 0.8, 0.0)), (GB, (0.0,) * 3, (0.0,) * 3)
    answer = {site.site: site for site in scored(known({"f": both, "g": none}), ["f", "g"]).sites}
    assert (answer["A"].cached_fraction, answer["A"].predicted_fraction) == (0.5, 0.5)


def test_sizes_that_the_asker_knows_count() -> None:
    answer = score(
        CONTENT,
        ["near", "new", "newer"],
        [None, 500 * GB, None],
        alive=LIVE,
        clusters={"A": CLUSTER, "B": CLUSTER},
        waited_s=0,
        max_wait_s=60,
    )
    assert answer.input_bytes == 1500 * GB
    assert answer.unknown_inputs == 1
    assert answer.max_wait_s == 60
    best = answer.sites[0]
    assert best.cached_fraction == pytest.approx(0.4 * 1000 / 1500, abs=1e-6)


def same(loads: dict[str, float], *, near: float = 0.5, far: float = 0.5) -> Score:
    """Where all of a file is: `near` of it at each of xc1 and xc2, `far` at xc3."""
    content = known({"file": (10_000 * GB, (near, near, far), (0.0,) * 3)})
    return scored(dataclasses.replace(content, loads=loads), ["file"])


def test_the_site_whose_busy_cache_holds_the_input_loses() -> None:
    held = known({"file": (1000 * GB, (0.9, 0.0, 0.9), (0.0,) * 3)})
    fast = Cluster(750e6, 1.2e9, 1, 1e9, 1000)
    live = {"A": frozenset({"xc1"}), "B": frozenset({"xc3"})}
    for load, first in ((1.2, "B"), (0.9, "A")):
        loaded = dataclasses.replace(held, loads={"xc1": load})
        clusters = {"A": fast, "B": fast}
        answer = score(loaded, ["file"], [None], alive=live, clusters=clusters, waited_s=0, max_wait_s=900)
        assert answer.sites[0].site == first
        # Where computing takes longest, the load still decides among equals.
        assert scored(loaded, ["file"], alive=live).sites[0].site == first


@pytest.mark.parametrize("load", [1e300, math.inf, -5.0, 0.0])
def test_an_absurd_load_changes_a_cache_by_a_quarter_at_most(load: float) -> None:
    plain, loaded = ({one.site: one for one in same(loads).sites}["B"] for loads in ({}, {"xc3": load}))
    assert 0.8 * plain.processing_s <= loaded.processing_s <= 1.25 * plain.processing_s
    assert loaded.caches[0].load in (0.8, 1.25)
    # And a busy cache that holds all still beats an empty one.
    whole = same({"xc3": load}, near=0.0, far=1.0)
    assert whole.sites[0].site == "B"
