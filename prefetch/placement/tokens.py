"""Who may change things: bearer tokens, compared in constant time and never shown."""

from __future__ import annotations

import hashlib
import hmac
import re
import stat
from collections.abc import Collection, Mapping
from pathlib import Path

from features.common.errors import ConfigError
from prefetch import private_files
from prefetch.placement.signed_tokens import SignedTokens

MIN_TOKEN_CHARS = 16
OPERATORS = "the operators"
_FEDERATION = "the federation "
_TOKEN = re.compile(r"[\x21-\x7e]+")
_MAX_FILE_BYTES = 4096


class Tokens:
    """The operators' token, which allows all changes, and one per cache, which allows its heartbeats.

    One per federation, by site, allows the heartbeats of nodes at that site that are not configured.
    `signed`: what an issuer's tokens allow; `subjects`: whom certificates speak for.
    """

    def __init__(
        self,
        operator: str,
        caches: Mapping[str, str],
        federations: Mapping[str, str] | None = None,
        signed: SignedTokens | None = None,
        subjects: Mapping[str, str] | None = None,
    ) -> None:
        """An empty one allows nobody. Raises ConfigError for a short token, and for one that two share."""
        owners: dict[bytes, str] = {}
        nodes = {federation(site): token for site, token in (federations or {}).items()}
        for owner, token in ((OPERATORS, operator), *caches.items(), *nodes.items()):
            where = "serve.token" if owner == OPERATORS else "serve.cache_tokens"
            where = "serve.federation_tokens" if owner in nodes else where
            if token:
                _check(token, owner, where)
                other = owners.setdefault(_digest(token), owner)
                if other != owner:
                    raise ConfigError(where, f"{other} and {owner} have the same token; give each its own")
        self._owners, self._signed = owners, signed or SignedTokens(())
        self._subjects = dict(subjects or {})

    def __bool__(self) -> bool:
        """Whether there is any."""
        return bool(self._owners or self._signed)

    def login(self, authorization: str | None, subject: str | None) -> str | None:
        """Who asks: by the `Authorization` header if there is one, else by the subject of a certificate."""
        if authorization is not None:
            return self.owner(authorization)
        return None if subject is None else self._subjects.get(subject)

    def owner(self, authorization: str | None) -> str | None:
        """Whose token this `Authorization` header shows: a cache, a federation, `OPERATORS`, or nobody."""
        scheme, _, token = (authorization or "").partition(" ")
        given = _digest(token.strip())
        # Every digest is compared, so that the time does not say which one came near.
        found = [owner for digest, owner in self._owners.items() if hmac.compare_digest(given, digest)]
        if scheme.lower() != "bearer":
            return None
        return found[0] if found else self._signed.owner(token.strip())


def federation(site: str) -> str:
    """The owner of the token of the federation at `site`."""
    return _FEDERATION + site


def federation_of(owner: str) -> str | None:
    """The site of the federation that is a token's `owner`; None: it is none."""
    return owner.removeprefix(_FEDERATION) if owner.startswith(_FEDERATION) else None


def read_token(value: str, file: str, where: str) -> str:
    """`value`, or the one line of a `file` that only we may read. Raises ConfigError."""
    if not file:
        return value
    if value:
        raise ConfigError(where, "is given twice: keep either the token or its file")
    return _read(Path(file), f"{where}_file")


def read_folder(folder: str, names: Collection[str], where: str) -> dict[str, str]:
    """Tokens by cache or site: the files of `folder`, each named like one of `names`. Raises ConfigError."""
    if not folder:
        return {}
    path = Path(folder)
    try:
        mode = path.stat().st_mode
        files = sorted(path.iterdir())
    except OSError as error:
        raise ConfigError(where, f"cannot read folder {path}: {error.strerror}") from None
    if stat.S_IMODE(mode) & 0o022:
        raise ConfigError(where, f"others may write to {path}: chmod 0700 it")
    if strangers := [file.name for file in files if file.name not in names]:
        raise ConfigError(where, f"{path / strangers[0]} is of no configured cache or site; remove it")
    return {file.name: _read(file, where) for file in files}


def _read(path: Path, where: str) -> str:
    private_files.check(path, "token file", where)
    try:
        with path.open("rb") as opened:
            lines = opened.read(_MAX_FILE_BYTES).decode().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(where, f"cannot read {path} ({type(error).__name__})") from None
    if not lines or not lines[0].strip():
        raise ConfigError(where, f"{path} is empty; write a token into it: openssl rand -hex 32")
    if len(lines) > 1:
        raise ConfigError(where, f"{path} has more than one line; keep the token alone")
    return lines[0].strip()


def _check(token: str, owner: str, where: str) -> None:
    if len(token) < MIN_TOKEN_CHARS:
        raise ConfigError(
            where, f"the token of {owner} is shorter than {MIN_TOKEN_CHARS} characters; make a longer one"
        )
    if not _TOKEN.fullmatch(token):
        raise ConfigError(where, f"the token of {owner} holds a blank or no ASCII: openssl rand -hex 32")


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
