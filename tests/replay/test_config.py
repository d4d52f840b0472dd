"""Patterns of names: what they mean, and that no pattern takes long."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from replay.config import expression, matching


def test_patterns_with_many_stars_are_quick_and_mean_what_they_say() -> None:
    """Python's matcher alone would try 10^11 ways for one name of 1 024 characters."""
    is_test = matching(["/mon/*a*a*a*a*b", "/mon?/x*", "*.probe"])
    assert not is_test("/mon/" + 1019 * "a")
    named = ("/mon/xaxaxaxaxb", "/mon1/x", "/y.probe")
    others = ("/mon/xaxaxab", "/mon/x", "/y.probes", "")
    assert all(map(is_test, named)) and not any(map(is_test, others))
    assert matching([])("x") is None and matching(["*"])("") is not None


@given(st.lists(st.text("ab*?", max_size=6), min_size=1, max_size=3), st.text("ab", max_size=12))
def test_patterns_mean_the_same_to_every_matcher(patterns: list[str], text: str) -> None:
    assert (matching(patterns)(text) is None) == (re.fullmatch(expression(patterns), text) is None)
