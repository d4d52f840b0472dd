"""What is said of a token, which may be anything, and which files are taken as one."""

from __future__ import annotations

import base64
import json
import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from features.common.errors import ConfigError, TargetUnavailable
from prefetch.xcache import session
from prefetch.xcache.server import BearerToken, use_token

READ = "storage.read:/store"


def token(**claims: Any) -> bytes:
    payload = json.dumps({"exp": time.time() + 600, "scope": READ} | claims).encode()
    return b"e30." + base64.urlsafe_b64encode(payload).rstrip(b"=") + b".c2ln"


def written(tmp_path: Path, content: bytes) -> Path:
    path = tmp_path / "token"
    path.write_bytes(content)
    path.chmod(0o600)
    return path


@pytest.mark.parametrize(
    ("claims", "name", "fault"),
    [
        ({}, "/store/f", None),
        ({}, "", None),
        ({}, "/storefront/f", "does not cover /storefront/f"),
        ({"scope": "openid storage.read:/"}, "/store/f", None),
        ({"scope": "read:/store/"}, "/store/f", None),
        ({"scope": "openid"}, "/store/f", None),
        ({"scope": "storage.modify:/store storage.read:/x"}, "/store/f", "does not cover /store/f"),
        ({"scope": 7}, "", "no token with an end"),
        ({"exp": "soon"}, "", "no token with an end"),
        ({"exp": 1}, "", "it expired"),
        ({"exp": -1e400}, "", "no token"),
        ({"exp": float("nan")}, "", "no token"),
        ({"exp": -(10**400)}, "", "no token"),
        ({"exp": True}, "", "no token"),
        ({"exp": time.time() + 5}, "", "it expire"),
        ({"aud": ["a", "cache"]}, "", None),
        ({"aud": "https://wlcg.cern.ch/jwt/v1/any"}, "", None),
        ({"aud": ["a", "b\nALARM"]}, "", "its audience is a b ALARM, not cache"),
        ({"aud": "x" * 9999}, "", "not cache"),
    ],
)
def test_the_fault_of_a_token_is_one_line(
    tmp_path: Path, claims: dict[str, Any], name: str, fault: str | None
) -> None:
    login = BearerToken(written(tmp_path, token(**({"aud": "cache"} | claims))), "cache")
    if fault is None:
        assert len(login.checked(name)) == 64
        return
    with pytest.raises(TargetUnavailable, match=fault) as raised:
        login.checked(name)
    assert len(str(raised.value).splitlines()) == 1
    assert len(str(raised.value)) < 500


parts = st.binary(max_size=100).map(lambda b: b"a." + base64.urlsafe_b64encode(b) + b".c")


@given(st.binary(max_size=300) | parts)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_anything_is_no_token(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(TargetUnavailable, match="no token"):
        BearerToken(written(tmp_path, content), None).checked()


def test_deep_huge_and_missing_tokens_are_none(tmp_path: Path) -> None:
    deep = b"a." + base64.urlsafe_b64encode(b"[" * 9000) + b".c"
    for content in (deep, b"a" * 10**6, b""):
        with pytest.raises(TargetUnavailable, match="no token"):
            BearerToken(written(tmp_path, content), None).checked()
    with pytest.raises(TargetUnavailable, match="No such file"):
        BearerToken(tmp_path / "none", None).checked()


def test_what_takes_the_place_of_a_token_later_is_looked_at_too(tmp_path: Path) -> None:
    path = written(tmp_path, token())
    login = BearerToken(path, None)
    login.checked()
    path.chmod(0o644)
    with pytest.raises(TargetUnavailable, match="open to others"):
        login.checked()
    real = path.rename(tmp_path / "real")
    real.chmod(0o600)
    path.symlink_to(real)
    with pytest.raises(TargetUnavailable, match="no plain file"):
        login.checked()
    path.unlink()
    os.mkfifo(path, 0o600)
    with pytest.raises(TargetUnavailable, match="no plain file"):
        login.checked()


@pytest.mark.parametrize("length", [40, 90, 10**6])
def test_a_token_that_a_server_sends_back_is_in_no_message(
    monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    sent = "eyJhbGciOiJFUzI1NiJ9" + token().decode().removeprefix("e30")
    said = f"no access\nby Bearer {sent[:length]}"
    status = SimpleNamespace(ok=False, code=400, errno=3012, message=said)
    library = SimpleNamespace(FileSystem=lambda _: SimpleNamespace(stat=lambda *_, **__: (status, None)))
    monkeypatch.setattr(session, "_library", lambda: library)
    with pytest.raises(TargetUnavailable, match=r"no access by Bearer \*\*\*\)?$") as raised:
        session.stat("roots://x:1094", "/store/f")
    assert sent[:30] not in str(raised.value)


def test_a_token_file_is_ours_alone_and_goes_over_tls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path, token())
    with pytest.raises(ConfigError, match="over TLS only"):
        use_token(path, None, "root://x:1094", "caches.x.token")
    path.chmod(0o644)
    with pytest.raises(ConfigError, match="open to others"):
        use_token(path, None, "roots://x:1094", "caches.x.token")
    path.chmod(0o600)
    monkeypatch.setenv("BEARER_TOKEN_FILE", "/run/other")
    with pytest.raises(ConfigError, match="/run/other already"):
        use_token(path, None, "roots://x:1094", "caches.x.token")
