"""Choice by hash: by weight, the same everywhere, and moved only where the chosen one goes."""

from __future__ import annotations

import numpy as np

from replay.ranges import key_of, keys_of, scores

KEYS = keys_of(f"cms:/P{i}/E/AOD" for i in range(20_000))
WEIGHTS = {"A": 1.0, "B": 2.0, "C": 5.0}


def chosen(weights: dict[str, float]) -> list[str]:
    best = scores(KEYS, list(weights), list(weights.values())).argmax(axis=1)
    return [list(weights)[i] for i in best.tolist()]


def test_each_is_chosen_by_its_weight() -> None:
    found = chosen(WEIGHTS)
    for name, weight in WEIGHTS.items():
        assert abs(found.count(name) / len(found) - weight / 8) < 0.012


def test_who_goes_moves_its_own_alone() -> None:
    before = chosen(WEIGHTS)
    after = chosen({"A": 1.0, "C": 5.0})
    assert all(old in (new, "B") for old, new in zip(before, after, strict=True))


def test_the_order_of_names_does_not_matter() -> None:
    assert chosen(WEIGHTS) == chosen(dict(reversed(WEIGHTS.items())))


def test_the_choice_is_what_it_was() -> None:
    # Placements outlive releases: a change of the hash would move everything.
    assert key_of("cms:/A/B/AOD") == 6438093600196897641
    ranking = scores(np.array([1, 2, 3, 4, 5], np.uint64), ["A", "B", "C"], [1.0, 1.0, 1.0])
    assert ranking.argmax(axis=1).tolist() == [2, 2, 1, 0, 2]
