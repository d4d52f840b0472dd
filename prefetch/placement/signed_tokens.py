"""Tokens that an issuer signs (WLCG, SciTokens): whose they are, by the issuer's public keys in a file."""

from __future__ import annotations

import dataclasses
import json
import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path

import jwt

from features.common.errors import ConfigError

ALGORITHMS = ("RS256", "RS384", "RS512", "ES256", "ES384")
"""WLCG's profile names RS256 and ES256. A secret that is shared with the issuer is no public key."""
MAX_CHARS = 8192
_MAX_BYTES = 1024 * 1024
_LEEWAY_S = 10
"""By which clocks may differ."""
_REQUIRED = ("exp", "iss", "sub", "aud")


@dataclasses.dataclass(frozen=True)
class Issuer:
    """One issuer: the `iss` of its tokens, the file of its public keys (JWKS), and whom it may speak for.

    `audience`: what `aud` must name. `owners`: by `sub`, the owner of a token as in `Tokens`.
    """

    url: str
    keys: Path
    audience: str
    owners: Mapping[str, str]


class SignedTokens:
    """Whose a signed token is. Key files are read again when they change."""

    def __init__(self, issuers: Sequence[Issuer]) -> None:
        """Raises ConfigError for a file of keys that cannot be used, or that others may write."""
        self._issuers = {one.url: _Keys(one) for one in issuers}

    def __bool__(self) -> bool:
        """Whether there is any issuer."""
        return bool(self._issuers)

    def owner(self, token: str) -> str | None:
        """The owner of a token that is signed, in time, for us, and of a known subject; else None."""
        if not self._issuers or len(token) > MAX_CHARS or token.count(".") != 2:
            return None
        try:
            claims = jwt.decode(token, options={"verify_signature": False})
            keys = self._issuers.get(str(claims.get("iss")))
            return None if keys is None else keys.owner(token)
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
            return None


class _Keys:
    def __init__(self, issuer: Issuer) -> None:
        self._issuer = issuer
        self._mark, self._known = _mark(issuer.keys), _read(issuer)

    def owner(self, token: str) -> str | None:
        """As `SignedTokens.owner`. Raises PyJWTError."""
        wanted = jwt.get_unverified_header(token).get("kid")
        issuer = self._issuer
        for key in self._present():
            if wanted is not None and key.key_id is not None and key.key_id != wanted:
                continue
            try:
                claims = jwt.decode(
                    token,
                    key,
                    algorithms=ALGORITHMS,
                    audience=issuer.audience,
                    issuer=issuer.url,
                    leeway=_LEEWAY_S,
                    options={"require": list(_REQUIRED)},
                )
            except (jwt.InvalidSignatureError, jwt.InvalidAlgorithmError, jwt.InvalidKeyError):
                continue
            return issuer.owners.get(str(claims["sub"]))
        return None

    def _present(self) -> list[jwt.PyJWK]:
        """The keys; a file that cannot be used now leaves those of before."""
        if (mark := _mark(self._issuer.keys)) != self._mark:
            self._mark = mark
            try:
                self._known = _read(self._issuer)
            except ConfigError:
                return self._known
        return self._known


def _mark(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _read(issuer: Issuer) -> list[jwt.PyJWK]:
    where, path = f"serve.issuers.{issuer.url}.keys", issuer.keys
    try:
        # A pipe in its place would hold the service for ever.
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as opened:
            status = os.fstat(opened.fileno())
            mode, text = stat.S_IMODE(status.st_mode), opened.read(_MAX_BYTES)
        keys = json.loads(text)["keys"]
        found = [jwt.PyJWK(key) for key in keys if key.get("kty") in ("RSA", "EC")]
    except OSError as error:
        raise ConfigError(where, f"cannot read {path}: {error.strerror}") from None
    except (jwt.PyJWTError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise ConfigError(where, f"{path} is no JSON Web Key Set of the issuer's public keys") from None
    if mode & 0o022:
        raise ConfigError(where, f"others may write {path}: chmod 0644 it")
    if not found:
        raise ConfigError(where, f"{path} has no public RSA or EC key")
    return found
