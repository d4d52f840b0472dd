"""How a push ends."""

from __future__ import annotations

import pytest

from features.common.errors import TargetUnavailable
from jobs.cli.plans import end_push
from prefetch.push.push import PushSummary


def test_a_push_that_the_cache_has_ended_fails_so_that_a_scheduler_tries_it_again() -> None:
    end_push("xc1", PushSummary(pushed=3))
    stopped = PushSummary(pushed=3, stopped="cache 'xc1' was unavailable 5 times in a row: refused")
    with pytest.raises(TargetUnavailable, match=r"'xc1' was unavailable 5 times.*run the same push again"):
        end_push("xc1", stopped)
