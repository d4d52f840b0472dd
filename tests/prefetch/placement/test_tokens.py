"""Tokens: who may change what, and files that others may read are refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.common.errors import ConfigError
from prefetch.placement.tokens import OPERATORS, Tokens, read_folder, read_token

BOTH = Tokens("operators-token-123", {"xc1": "xc1s-token-4567890", "xc2": "xc2s-token-4567890"})


def test_each_token_is_its_owners() -> None:
    assert BOTH.owner("Bearer operators-token-123") == OPERATORS
    assert BOTH.owner("bearer xc1s-token-4567890") == "xc1"
    assert BOTH.owner("Bearer xc2s-token-4567890") == "xc2"
    assert BOTH
    assert not Tokens("", {})


@given(st.none() | st.text())
def test_nothing_else_is_anybodys(header: str | None) -> None:
    for tokens in (BOTH, Tokens("", {}), Tokens("", {"xc1": ""})):
        assert tokens.owner(header) is None


def private(path: Path, text: str = "operators-token-123\n") -> Path:
    path.touch(mode=0o600)
    path.write_text(text)
    return path


def test_a_file_is_read_only_if_it_is_private(tmp_path: Path) -> None:
    path = private(tmp_path / "token")
    assert read_token("", str(path), "serve.token") == "operators-token-123"
    path.chmod(0o640)
    with pytest.raises(ConfigError, match="open to others"):
        read_token("", str(path), "serve.token")
    with pytest.raises(ConfigError, match="twice"):
        read_token("x", str(path), "serve.token")
    with pytest.raises(ConfigError, match="cannot read"):
        read_token("", str(tmp_path / "none"), "serve.token")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "is empty"),
        ("\n", "is empty"),
        ("  \n", "is empty"),
        ("operators-token-123\nsecond\n", "more than one line"),
        ("operators-token-123\n\n", "more than one line"),
    ],
)
def test_a_file_holds_one_token_and_nothing_else(tmp_path: Path, text: str, told: str) -> None:
    path = private(tmp_path / "token", text)
    with pytest.raises(ConfigError, match=told):
        read_token("", str(path), "serve.token")


def test_a_folder_has_a_file_per_cache(tmp_path: Path) -> None:
    folder = tmp_path / "tokens"
    folder.mkdir(mode=0o700)
    private(folder / "xc1")
    assert read_folder(str(folder), {"xc1", "xc2"}, "serve.cache_tokens") == {"xc1": "operators-token-123"}
    assert read_folder("", {"xc1"}, "serve.cache_tokens") == {}
    private(folder / "xc1~")
    with pytest.raises(ConfigError, match="xc1~ is of no configured cache"):
        read_folder(str(folder), {"xc1", "xc2"}, "serve.cache_tokens")
    folder.chmod(0o770)
    with pytest.raises(ConfigError, match="others may write"):
        read_folder(str(folder), {"xc1", "xc2"}, "serve.cache_tokens")


@pytest.mark.parametrize(
    ("operator", "caches", "told"),
    [
        ("hunter2", {}, "shorter than 16"),
        ("", {"xc1": "hunter2"}, "token of xc1 is shorter"),
        ("hunter2 hunter2 hunter2", {}, "blank"),
        (
            "hunter2-hunter2-hunter2",
            {"xc1": "hunter2-hunter2-hunter2"},
            "the operators and xc1 have the same",
        ),
        ("", {"a": "hunter2-hunter2-hunter2", "b": "hunter2-hunter2-hunter2"}, "a and b have the same"),
    ],
)
def test_a_token_that_protects_nothing_is_refused_and_not_shown(
    operator: str, caches: dict[str, str], told: str
) -> None:
    with pytest.raises(ConfigError, match=told) as caught:
        Tokens(operator, caches)
    assert "hunter2" not in str(caught.value)
