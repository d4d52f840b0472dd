"""Who may change things: bearer tokens, and tokens that an issuer signs (WLCG, SciTokens)."""

import dataclasses
import hashlib
import hmac
import json
import os
import re
import stat
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import jwt

from features.common.errors import ConfigError
from features.common.files import check_private

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
        self._issuers = {issuer.url: _Keys(issuer) for issuer in issuers}

    def __bool__(self) -> bool:
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
        self._mark, self._known = _mark(issuer.keys), _public_keys(issuer)

    def owner(self, token: str) -> str | None:
        """As `SignedTokens.owner`. Raises PyJWTError."""
        key_id = jwt.get_unverified_header(token).get("kid")
        issuer = self._issuer
        for key in self._present():
            if key_id is not None and key.key_id is not None and key.key_id != key_id:
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
                self._known = _public_keys(self._issuer)
            except ConfigError:
                return self._known
        return self._known


def _mark(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _public_keys(issuer: Issuer) -> list[jwt.PyJWK]:
    where, path = f"serve.issuers.{issuer.url}.keys", issuer.keys
    try:
        # A pipe in its place would hold the service for ever.
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as opened:
            status = os.fstat(opened.fileno())
            mode, text = stat.S_IMODE(status.st_mode), opened.read(_MAX_BYTES)
        keys = json.loads(text)["keys"]
        public_keys = [jwt.PyJWK(key) for key in keys if key.get("kty") in ("RSA", "EC")]
    except OSError as error:
        raise ConfigError(where, f"cannot read {path}: {error.strerror}") from None
    except (jwt.PyJWTError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise ConfigError(where, f"{path} is no JSON Web Key Set of the issuer's public keys") from None
    if mode & 0o022:
        raise ConfigError(where, f"others may write {path}: chmod 0644 it")
    if not public_keys:
        raise ConfigError(where, f"{path} has no public RSA or EC key")
    return public_keys


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
        return bool(self._owners or self._signed)

    def login(self, authorization: str | None, subject: str | None) -> str | None:
        """Who asks: by the `Authorization` header if there is one, else by the subject of a certificate."""
        if authorization is not None:
            return self.owner(authorization)
        return None if subject is None else self._subjects.get(subject)

    def owner(self, authorization: str | None) -> str | None:
        """Whose token this `Authorization` header shows: a cache, a federation, `OPERATORS`, or nobody."""
        scheme, _, token = (authorization or "").partition(" ")
        hashed = _digest(token.strip())
        # Every digest is compared, so that the time does not say which one came near.
        owners = [owner for digest, owner in self._owners.items() if hmac.compare_digest(hashed, digest)]
        if scheme.lower() != "bearer":
            return None
        return owners[0] if owners else self._signed.owner(token.strip())


def federation(site: str) -> str:
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
    check_private(path, "token file", where)
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
