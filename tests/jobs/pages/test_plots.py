"""Plots draw whatever policies there are, each with a look of its own."""

from __future__ import annotations

import pytest

from jobs.pages import plots
from replay.policies import POLICIES


def rows(policies: list[str]) -> list[dict[str, object]]:
    return [
        {"policy": p, "capacity_bytes": size, "capacity_fraction": size / 100, "byte_hit_ratio": 0.01 * k}
        for k, p in enumerate(policies)
        for size in (10, 20)
    ]


def test_no_two_policies_look_alike() -> None:
    policies = [*POLICIES, "lru+plan", "bound", *(f"policy {n}" for n in range(25))]
    styles = plots.styles(policies)
    assert list(styles) == policies
    looks = {(s["marker"], s.get("fillstyle")) for s in styles.values()}  # all that black and white leaves
    assert len(looks) == len(styles)


def test_lru_comes_first_and_the_best_possible_last() -> None:
    found = sorted(["bound", "sieve", "clairvoyant", "lru+plan", "fifo", "lru"], key=plots.rank)
    assert found == ["lru", "lru+plan", "fifo", "sieve", "clairvoyant", "bound"]


@pytest.mark.parametrize("policies", [["sieve"], [*POLICIES, "bound"], ["something-new", "lru"]])
def test_any_set_of_policies_is_drawn(policies: list[str]) -> None:
    drawn = plots.hit_ratio_against_capacity(rows(policies)).svg()
    assert drawn.startswith("<svg")
    assert drawn == plots.hit_ratio_against_capacity(rows(policies)[::-1]).svg()
