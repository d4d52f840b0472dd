"""The examples in the docstrings of what others implement: a planner, a cache target."""

from __future__ import annotations

import doctest
import time
from types import ModuleType

import pytest

from features.common.errors import PushRejected
from prefetch import target
from prefetch.lfn import checked_lfn
from replay import planner


@pytest.mark.parametrize("seam", [target, planner])
def test_the_example_of_a_seam_runs(seam: ModuleType) -> None:
    known = {"checked_lfn": checked_lfn, "time": time, "PushRejected": PushRejected}
    result = doctest.testmod(seam, extraglobs=known)

    assert result.attempted
    assert not result.failed
