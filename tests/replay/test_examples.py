"""What others implement has an example in its docstring, which runs."""

from __future__ import annotations

import doctest
import importlib

import pytest

SEAMS = (
    "prefetch.target",
    *("replay.policies.policy", "replay.policies.own", "replay.planner", "replay.read.source"),
    "replay.steward.order",
)


@pytest.mark.parametrize("module", SEAMS)
def test_the_example_of_a_seam_runs(module: str) -> None:
    results = doctest.testmod(importlib.import_module(module))
    assert results.attempted and not results.failed
