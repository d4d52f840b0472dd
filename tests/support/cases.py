"""How many random cases a slow oracle judges: few in `make test`, thousands in `make verify`."""

import os
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from hypothesis import settings

Test = TypeVar("Test", bound=Callable[..., Any])
IS_THOROUGH = os.environ.get("CACHECAST_THOROUGH") == "1"


def cases(few: int, *, thorough: int) -> Callable[[Test], Test]:
    """Hypothesis' settings for a test of an oracle, which is marked `thorough`."""
    profile = settings(max_examples=thorough if IS_THOROUGH else few, deadline=None)
    return lambda test: pytest.mark.thorough(profile(test))
