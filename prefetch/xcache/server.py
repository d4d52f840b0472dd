"""What depends on a server's version, and the logins to servers."""

import base64
import dataclasses
import hashlib
import json
import os
import re
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any

from features.common import files
from features.common.errors import ConfigError, TargetUnavailable, bounded

_VERSION = re.compile(r"v?([0-9]{1,2})\.([0-9]{1,4})(?:\.([0-9]{1,4}))?([-~]?rc)?")
_KEEPS_OPEN_FILES = (5, 6, 0)
_REPORTS_WRITTEN = (5, 7, 2)
_STAT_TELLS_WHOLE = (5, 8, 0)
_PURGES_BY_MTIME = (5, 8, 0)


@dataclasses.dataclass(frozen=True)
class ServerVersion:
    """`numbers` as (5, 5, 3); empty if the server's answer has none: then it counts as the oldest.

    `is_candidate`: of a release candidate, which may not yet do what the release does.
    """

    numbers: tuple[int, ...]
    is_candidate: bool = False

    @property
    def removes_open_files(self) -> bool:
        """Whether the command `remove_file` takes a file from under the job that reads it."""
        return not self._has(_KEEPS_OPEN_FILES)

    @property
    def reports_written(self) -> bool:
        """Whether the g-stream reports the bytes that were written to disk."""
        return self._has(_REPORTS_WRITTEN)

    @property
    def purges_at_start(self) -> bool:
        """Whether it purges when it starts, down to NOMINAL of `files BASE NOMINAL MAX`.

        Later versions look a minute after their start and every minute, and then go down to MAX.
        """
        return not self._has(_PURGES_BY_MTIME)

    def __str__(self) -> str:
        candidate = "-rc" if self.is_candidate else ""
        return ".".join(map(str, self.numbers)) + candidate or "of unknown version"

    def _has(self, since: tuple[int, ...]) -> bool:
        """Whether it does what releases do from the version `since` on."""
        return self.numbers > since or (self.numbers == since and not self.is_candidate)

    def described(self) -> str:
        traits = [
            "removes open files when asked to evict" if self.removes_open_files else "keeps open files",
            f"a push is confirmed by {'stat' if self.stat_tells_whole else 'cinfo or the g-stream'}",
            f"the g-stream {'tells' if self.reports_written else 'does not tell'} what was fetched",
            "purges at its start" if self.purges_at_start else "purges from a minute after its start",
        ]
        unknown = "" if self.numbers else "; treated as the oldest"
        return f"XRootD {self}{unknown}: {', '.join(traits)}"

    @property
    def stat_tells_whole(self) -> bool:
        """Whether the answer to `stat` says that all of a file is in the cache."""
        return self._has(_STAT_TELLS_WHOLE)


def parse_version(answer: str) -> ServerVersion:
    """The version in a server's answer to `query config version`, for example `v5.5.3`."""
    match = _VERSION.match(answer.strip())
    if match is None:
        return ServerVersion(())
    *numbers, candidate = match.groups()
    return ServerVersion(tuple(int(part or 0) for part in numbers), is_candidate=candidate is not None)


N_ASKED = 5
"""Number of files that the server is asked about."""


KEYTAB, PROXY, TOKEN = "XrdSecSSSKT", "X509_USER_PROXY", "BEARER_TOKEN_FILE"
"""Variables that name the file by which the XRootD client of a process logs in."""
_WORDS = {KEYTAB: "keytab", PROXY: "proxy", TOKEN: "token file"}


def use_login(variable: str, path: Path, setting: str) -> None:
    """Let the XRootD client of this process log in by the file at `path`; `variable`: of which kind it is.

    Raises ConfigError, which names `setting`, for a file that is missing, not ours alone, or not the one that
    is in use.
    """
    files.check_private(path, _WORDS[variable], setting)
    in_use = os.environ.get(variable)
    if in_use is not None and Path(in_use) != path:
        raise ConfigError(
            setting, f"this process logs in by {in_use} already; put the keys of all caches into one file"
        )
    os.environ[variable] = str(path)


# The XRootD client reads the token from the file that BEARER_TOKEN_FILE names whenever it opens a connection,
# and a server judges a connection by the token that opened it: a renewed one needs another connection. The
# claims are read only to say what is wrong: their signature is for the server to check.
_MAX_TOKEN_BYTES = 16 * 1024
_ENDS_S = 10.0
"""A token that ends within this time may end on its way."""
_LATEST_S = 2**53
_PLAIN = os.O_NOFOLLOW | os.O_NONBLOCK
_READING = ("storage.read", "storage.stage", "read")
_ANY = ("https://wlcg.cern.ch/jwt/v1/any", "ANY")


class BearerToken:
    """The token in the file at `path`; `audience`: what its `aud` must name, None: anything."""

    def __init__(self, path: Path, audience: str | None) -> None:
        self._path, self._audience = path, audience

    def checked(self, name: str = "") -> str:
        """A digest of the token that the file has now, which may read file or command `name` (empty: any).

        Raises TargetUnavailable, without the token, if it may not: a renewed one may.
        """
        token = self._read()
        fault = _fault(_claims(token), name, self._audience)
        if fault is not None:
            raise TargetUnavailable(f"token file {self._path}: {fault}; renew the token")
        return hashlib.sha256(token).hexdigest()

    def _read(self) -> bytes:
        # What renews it may leave another kind of file, or one open to all; a pipe would never end.
        if (fault := files.private_fault(self._path, "token file")) is not None:
            raise TargetUnavailable(fault)
        try:
            with open(self._path, "rb", opener=lambda file, flags: os.open(file, flags | _PLAIN)) as opened:
                return opened.read(_MAX_TOKEN_BYTES).strip()
        except OSError as error:
            raise TargetUnavailable(f"token file {self._path}: {error.strerror}; renew the token") from None


_in_use: BearerToken | None = None


def use_token(path: Path, audience: str | None, url: str, setting: str) -> None:
    """Log in by the token in `path`, to `url` among others. Raises ConfigError, also without TLS."""
    global _in_use  # noqa: PLW0603  the client library has one login a process
    if not url.startswith("roots://"):
        raise ConfigError(setting, "a token is sent over TLS only: write url = roots://…")
    use_login(TOKEN, path, setting)
    _in_use = BearerToken(path, audience)


def login(scheme: str, name: str = "") -> str:
    """`BearerToken.checked` of the token in use; empty if there is none, or without TLS."""
    return "" if _in_use is None or scheme != "roots" else _in_use.checked(name)


def _claims(token: bytes) -> dict[str, Any]:
    parts = token.split(b".")
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + b"=" * (-len(parts[1]) % 4)))
    except (IndexError, ValueError, RecursionError):
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
    stated = claims.get("aud")
    audiences = [str(text) for text in (stated if isinstance(stated, list) else [stated])]
    if audience is not None and not {audience, *_ANY} & set(audiences):
        return f"its audience is {_in_words(audiences)}, not {audience}"
    scopes = scope.split()
    # A token without a scope for storage may be allowed by its groups.
    paths = [path or "/" for kind, _, path in (text.partition(":") for text in scopes) if kind in _READING]
    if paths and name and not any(_is_below(name, path) for path in paths):
        return f"its scope {_in_words(scopes)} does not cover {bounded(name, 100)}"
    return None


def _is_below(name: str, path: str) -> bool:
    folder = path.rstrip("/")
    return name == folder or name.startswith(f"{folder}/")


def _in_words(texts: Collection[str]) -> str:
    return bounded(" ".join(" ".join(texts).split()) or "none", 150)
