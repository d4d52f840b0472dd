"""Tokens: who may change what, and files that others may read are refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.errors import ConfigError
from prefetch.placement.tokens import Tokens, read_token

BOTH = Tokens("operators-token-123", "caches-token-456789")


def test_each_token_allows_its_own() -> None:
    assert BOTH.may_change("Bearer operators-token-123")
    assert BOTH.may_beat("bearer operators-token-123")
    assert BOTH.may_beat("Bearer caches-token-456789")
    assert not BOTH.may_change("Bearer caches-token-456789")


@given(st.none() | st.text())
def test_nothing_else_allows_anything(header: str | None) -> None:
    for tokens in (BOTH, Tokens("", "")):
        assert not tokens.may_beat(header)
        assert not tokens.may_change(header)


@pytest.mark.parametrize(
    "header", ["Bearer", "Bearer ", "Bearer constructor", "Basic operators-token-123", "operators-token-123"]
)
def test_near_misses_are_misses(header: str) -> None:
    assert not BOTH.may_change(header)
    assert not Tokens("", "").may_change(header)


def test_a_file_is_read_only_if_it_is_private(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("operators-token-123\n")
    path.chmod(0o600)
    assert read_token("", str(path), "serve.token") == "operators-token-123"
    path.chmod(0o640)
    with pytest.raises(ConfigError, match="chmod 600"):
        read_token("", str(path), "serve.token")
    with pytest.raises(ConfigError, match="twice"):
        read_token("x", str(path), "serve.token")
    with pytest.raises(ConfigError, match="cannot read"):
        read_token("", str(tmp_path / "none"), "serve.token")


def test_a_short_token_is_refused_without_being_shown() -> None:
    with pytest.raises(ConfigError) as told:
        Tokens("hunter2", "")
    assert "hunter2" not in str(told.value)
