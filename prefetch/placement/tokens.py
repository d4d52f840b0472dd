"""Who may change things: bearer tokens, compared in constant time and never shown."""

from __future__ import annotations

import hashlib
import hmac
from pathlib import Path

from features.errors import ConfigError

MIN_TOKEN_CHARS = 16


class Tokens:
    """The operators' token, which allows every change, and the caches', which allows heartbeats."""

    def __init__(self, operator: str, caches: str) -> None:
        """An empty one allows nobody. Raises ConfigError for a short one."""
        for token in (operator, caches):
            if token and len(token) < MIN_TOKEN_CHARS:
                raise ConfigError(
                    "serve.token", f"is shorter than {MIN_TOKEN_CHARS} characters; make a longer one"
                )
        self._operator = _digests(operator)
        self._any = [*self._operator, *_digests(caches)]

    def may_change(self, authorization: str | None) -> bool:
        """Whether this `Authorization` header allows operators' changes."""
        return _matches(authorization, self._operator)

    def may_beat(self, authorization: str | None) -> bool:
        """Whether this `Authorization` header allows heartbeats."""
        return _matches(authorization, self._any)


def read_token(value: str, file: str, where: str) -> str:
    """`value`, or the first line of a `file` that only its owner may read. Raises ConfigError."""
    if not file:
        return value
    if value:
        raise ConfigError(where, "is given twice: keep either the token or its file")
    path = Path(file)
    try:
        if path.stat().st_mode & 0o077:
            raise ConfigError(f"{where}_file", f"others may read {path}: chmod 600 it")
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{where}_file", f"cannot read {path} ({type(error).__name__})") from None


def _digests(token: str) -> list[bytes]:
    return [hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()] if token else []


def _matches(authorization: str | None, digests: list[bytes]) -> bool:
    scheme, _, token = (authorization or "").partition(" ")
    given = hashlib.sha256(token.strip().encode("utf-8", "surrogatepass")).digest()
    # Every digest is compared, so time does not tell which one came near.
    found = [hmac.compare_digest(given, digest) for digest in digests]
    return scheme.lower() == "bearer" and any(found)
