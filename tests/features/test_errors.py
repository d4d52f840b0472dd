"""Errors that cross from one process to another."""

from __future__ import annotations

import pickle

import pytest

from features.common.errors import CachecastError, ConfigError, NotPlainError, ServiceError


@pytest.mark.parametrize(
    "error", [ConfigError("conf/base.toml: a", "no"), NotPlainError("p", "a pipe"), ServiceError("z")]
)
def test_another_process_gets_the_same_error(error: CachecastError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))
