"""Which server has a file: by ranges of a site's servers, and by hash; both move little."""

from fractions import Fraction

import numpy as np
import pytest
from cases import cases
from hypothesis import given
from hypothesis import strategies as st
from ranges_oracle import held, moved

from replay.ranges import SLOTS, SPACE, key_of, keys_of, layout_of, positions, scores, shares

MOVED_BEYOND_LEAST = 0.10
"""Share of the names; docs/adr/0009-owner-layout.md states it, and what is usual."""

names = st.text("abcdefgh", min_size=1, max_size=3)
sizes = st.dictionaries(names, st.integers(1, 1000), min_size=1, max_size=24)


@given(sizes)
def test_every_server_holds_its_share_to_the_last_unit(servers: dict[str, int]) -> None:
    layout = layout_of(servers)
    uppers = [part.upper for part in layout.ranges]
    assert uppers == sorted(set(uppers))
    assert uppers[-1] == SPACE
    assert held(layout) == {name: n for name, n in shares(servers).items() if n}
    total = sum(servers.values())
    assert all(abs(n - Fraction(servers[name], total) * SPACE) <= 1 for name, n in held(layout).items())
    assert len(layout.ranges) <= SLOTS + len(servers)


@given(sizes, st.randoms(use_true_random=False))
def test_neither_order_nor_unit_matters(servers: dict[str, int], random: object) -> None:
    shuffled = sorted(servers.items(), key=lambda _: random.random())  # type: ignore[attr-defined]
    assert layout_of(dict(shuffled)) == layout_of(servers)
    assert layout_of({name: n * 10**12 for name, n in servers.items()}) == layout_of(servers)
    assert layout_of({name: n / 1024 for name, n in servers.items()}) == layout_of(servers)


@cases(60, thorough=2000)
@given(sizes, st.data())
def test_a_join_a_leave_or_a_resize_moves_little_more_than_it_must(
    before: dict[str, int], data: st.DataObject
) -> None:
    name = data.draw(names | st.sampled_from(sorted(before)))
    after = {other: n for other, n in before.items() if other != name}
    if name not in before or not after or data.draw(st.booleans()):
        after[name] = data.draw(st.integers(1, 1000))
    old, new = shares(before), shares(after)
    least = sum(max(0, n - old.get(other, 0)) for other, n in new.items())
    assert least <= moved(layout_of(before), layout_of(after)) <= least + MOVED_BEYOND_LEAST * SPACE


@pytest.mark.parametrize("n", [1, 2, 3, 8, 23])
def test_an_equal_server_that_joins_moves_its_share_and_a_few_percent(n: int) -> None:
    servers = {f"xc{i}": 50 for i in range(n)}
    beyond = moved(layout_of(servers), layout_of(servers | {"new": 50})) / SPACE - 1 / (n + 1)
    assert 0 <= beyond < 0.04


def test_no_server_has_no_ranges_and_one_has_all() -> None:
    assert layout_of({}).ranges == ()
    assert layout_of({"a": 7}).ranges == (("a", SPACE),)


def test_a_scope_moves_no_file() -> None:
    assert positions(["mc:a.root"])[0] == positions(["a.root"])[0] == positions(["data:a.root"])[0]


KEYS = keys_of(f"cms:/P{i}/E/AOD" for i in range(20_000))
WEIGHTS = {"A": 1.0, "B": 2.0, "C": 5.0}


def best_sites(weights: dict[str, float]) -> list[str]:
    best = scores(KEYS, list(weights), list(weights.values())).argmax(axis=1)
    return [list(weights)[i] for i in best.tolist()]


def test_each_is_chosen_by_its_weight() -> None:
    sites = best_sites(WEIGHTS)
    for name, weight in WEIGHTS.items():
        assert abs(sites.count(name) / len(sites) - weight / 8) < 0.012


def test_who_goes_moves_its_own_alone() -> None:
    before = best_sites(WEIGHTS)
    after = best_sites({"A": 1.0, "C": 5.0})
    assert all(old in (new, "B") for old, new in zip(before, after, strict=True))


def test_the_order_of_names_does_not_matter() -> None:
    assert best_sites(WEIGHTS) == best_sites(dict(reversed(WEIGHTS.items())))


def test_the_choice_is_what_it_was() -> None:
    # Placements outlive releases: a change of the hash would move everything.
    assert key_of("cms:/A/B/AOD") == 6438093600196897641
    ranking = scores(np.array([1, 2, 3, 4, 5], np.uint64), ["A", "B", "C"], [1.0, 1.0, 1.0])
    assert ranking.argmax(axis=1).tolist() == [2, 2, 1, 0, 2]
