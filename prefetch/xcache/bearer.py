"""The bearer token (WLCG, SciTokens) by which this process logs in to caches over TLS.

The XRootD client reads it from the file that BEARER_TOKEN_FILE names whenever it opens a connection, and a
server goes on to judge a connection by the token that opened it. So a renewed token needs another connection.
The claims are read here without a check of the signature, which is the server's: only to say what is wrong.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import os
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any

from features.common.errors import ConfigError, TargetUnavailable, bounded
from prefetch import private_files
from prefetch.xcache import server

_MAX_BYTES = 16 * 1024
_ENDS_S = 10.0
"""A token that ends within this time may end on its way."""
_LATEST_S = 2**53
_READING = ("storage.read", "storage.stage", "read")
_ANY = ("https://wlcg.cern.ch/jwt/v1/any", "ANY")


class Login:
    """The token in the file at `path`; `audience`: what its `aud` must name, None: anything."""

    def __init__(self, path: Path, audience: str | None) -> None:
        self._path, self._audience = path, audience

    def checked(self, name: str = "") -> str:
        """A digest of the token as it is in the file now, if it may read file or command `name` (empty: any).

        Raises TargetUnavailable, in one line without the token: with a renewed one the same may be had.
        """
        token = self._read()
        fault = _fault(_claims(token), name, self._audience)
        if fault is not None:
            raise TargetUnavailable(f"token file {self._path}: {fault}; renew the token")
        return hashlib.sha256(token).hexdigest()

    def _read(self) -> bytes:
        # What renews it may leave another kind of file, or one open to all; a pipe would never end.
        if (found := private_files.fault(self._path, "token file")) is not None:
            raise TargetUnavailable(found)
        try:
            with open(self._path, "rb", opener=_without_waiting) as opened:
                return opened.read(_MAX_BYTES).strip()
        except OSError as error:
            raise TargetUnavailable(f"token file {self._path}: {error.strerror}; renew the token") from None


_in_use: Login | None = None


def use_token(path: Path, audience: str | None, url: str, setting: str) -> None:
    """Let the XRootD client of this process log in by the token in `path`, to `url` among others.

    Raises ConfigError, with the `setting` it was given by, for a file that is not there, not ours alone, or
    not the one in use, and for a `url` without TLS.
    """
    global _in_use  # noqa: PLW0603  the client library has one login a process
    if not url.startswith("roots://"):
        raise ConfigError(setting, "a token is sent over TLS only: write url = roots://…")
    server.use_login(server.TOKEN, path, setting)
    _in_use = Login(path, audience)


def login(scheme: str, name: str = "") -> str:
    """`Login.checked` of the token in use; empty if there is none, or without TLS."""
    return "" if _in_use is None or scheme != "roots" else _in_use.checked(name)


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def _claims(token: bytes) -> dict[str, Any]:
    """The claims of a token; empty for what is none."""
    parts = token.split(b".")
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + b"=" * (-len(parts[1]) % 4)))
    except (IndexError, ValueError, RecursionError, binascii.Error):
        return {}
    return claims if isinstance(claims, dict) and len(parts) == 3 else {}


def _fault(claims: dict[str, Any], name: str, audience: str | None) -> str | None:
    """Why a token with these claims is of no use for `name`; None: nothing is known to be wrong."""
    ends_s, scope = claims.get("exp", 0), claims.get("scope", "")
    is_time = isinstance(ends_s, int | float) and not isinstance(ends_s, bool) and 0 < ends_s < _LATEST_S
    if not is_time or not isinstance(scope, str):
        return "it holds no token with an end"
    if (left_s := ends_s - time.time()) < _ENDS_S:
        return f"it expired {-left_s:.0f} s ago" if left_s < 0 else f"it expires in {left_s:.0f} s"
    audiences = _texts(claims.get("aud"))
    if audience is not None and not {audience, *_ANY} & set(audiences):
        return f"its audience is {_shown(audiences)}, not {audience}"
    scopes = scope.split()
    # A token without a scope for storage may be allowed by its groups.
    paths = [path or "/" for kind, _, path in (one.partition(":") for one in scopes) if kind in _READING]
    if paths and name and not any(_is_below(name, path) for path in paths):
        return f"its scope {_shown(scopes)} does not cover {bounded(name, 100)}"
    return None


def _is_below(name: str, path: str) -> bool:
    folder = path.rstrip("/")
    return name == folder or name.startswith(f"{folder}/")


def _texts(value: object) -> list[str]:
    return [str(one) for one in (value if isinstance(value, list) else [value])]


def _shown(texts: Collection[str]) -> str:
    return bounded(" ".join(" ".join(texts).split()) or "none", 150)
