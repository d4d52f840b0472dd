"""The errors cachecast raises on purpose.

    CachecastError
    ├── ConfigError          a setting is wrong: file, key, remedy
    ├── InputError           a file, a stream or a value given by a user cannot be used
    │   ├── SchemaError      its columns are missing or of the wrong type
    │   └── NotPlainError    it is a link, a pipe, a device: no plain file
    ├── StaleInputError      a table, a model or a partition is missing or too old
    ├── LimitError           more would be removed than the settings allow without --force
    ├── UnprovenError        a plan is by models that no promotion covers; it needs --unproven
    ├── NotDueError          there is nothing to do now; a scheduler skips what follows
    ├── ConflictError        another run changed the same thing first
    ├── ModelError           a model cannot be trained, loaded or used
    ├── ServiceError         MLflow, Rucio or another service failed or is unavailable
    └── PushError            a cache did not do what the plan asked
        ├── PushRejected     it refused, and will refuse again
        └── TargetUnavailable  it is unavailable; a later try may succeed
            └── SourceUnavailable  it answers, but the origin of the file does not

A message says what is wrong, where, with which value, and what to do. Its length is bounded, and it contains
no secrets.
Only the command line turns an error into an exit code.
"""

import base64
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, quote_plus, unquote, urlsplit

MAX_MESSAGE_CHARS = 600


class CachecastError(Exception):
    """Base of every error raised on purpose; its text is safe to print."""

    def __init__(self, message: str) -> None:
        super().__init__(bounded(printable(message)))

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process gets the same text, whatever an error was made of."""
        return _again, (type(self), str(self), self.__dict__)


def _again(kind: type[CachecastError], text: str, details: dict[str, Any]) -> CachecastError:
    error = kind.__new__(kind)
    CachecastError.__init__(error, text)
    error.__dict__.update(details)
    return error


class ConfigError(CachecastError):
    """A setting is wrong. `where`: file and key; `what`: the fault and its remedy."""

    def __init__(self, where: str, what: str) -> None:
        super().__init__(f"{where}: {what}")


class InputError(CachecastError):
    """A file, a stream or a value given by a user cannot be used."""


class SchemaError(InputError):
    """Columns are missing or of the wrong type."""


class NotPlainError(InputError):
    """A path leads to no plain file. `kind`: what it is instead, for example `a pipe`."""

    def __init__(self, path: str, kind: str) -> None:
        super().__init__(f"{path} is {kind}, not a plain file; put the file itself there")
        self.kind = kind


class StaleInputError(CachecastError):
    """A table, model or partition is missing or too old."""


class LimitError(CachecastError):
    """More would be removed than the settings allow; --force overrides the limit."""


class UnprovenError(CachecastError):
    """A plan is by models that no promotion covers; --unproven carries it out nevertheless."""


class NotDueError(CachecastError):
    """There is nothing to do now, which is no failure; the text says why."""


class ConflictError(CachecastError):
    """Another run changed the same thing first; run again."""


class ModelError(CachecastError):
    """A model cannot be trained, loaded or used."""


class ServiceError(CachecastError):
    """MLflow, Rucio or another service failed or is unavailable."""


class PushError(CachecastError):
    """A cache did not do what the plan asked."""


class PushRejected(PushError):
    """The cache refused and will refuse again."""


class TargetUnavailable(PushError):
    """The cache or the origin is unavailable; a later try may succeed."""


class SourceUnavailable(TargetUnavailable):
    """The cache answers, but the origin of the file is unavailable or slow; a later try may succeed."""


def printable(text: str) -> str:
    """`text` as one line for a terminal: control and format characters are escaped as in `repr`.

    Names and rows of others are quoted in messages, and a terminal obeys what follows an ESC.
    """
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def bounded(text: str, limit: int = MAX_MESSAGE_CHARS) -> str:
    """`text`, shortened in the middle if it is longer than `limit` characters."""
    if len(text) <= limit:
        return text
    head = limit * 2 // 3
    return f"{text[:head]} … {text[len(text) - (limit - head - 3) :]}"


STARS = "***"
_TOKEN = re.compile(r"eyJ[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*){0,2}")
"""The base64 of `{"`, and up to two more parts."""


def without_secrets(text: str, *secrets: str) -> str:
    """`text` with each non-empty secret replaced by stars: as it is, quoted for a URL, or in base64."""
    forms = {form for secret in secrets if secret for form in _forms(secret)}
    for form in sorted(forms, key=len, reverse=True):
        text = text.replace(form, STARS)
    return text


def without_tokens(text: str) -> str:
    """`text` with stars for whatever begins like a signed token (JWT), whoever's it is, and a cut one too."""
    return _TOKEN.sub(STARS, text)


def secrets_of(url: str) -> tuple[str, ...]:
    """The secrets in a URL: the password, and `user:password` as sent to a server."""
    try:
        authority = urlsplit(url).netloc
    except ValueError:
        authority = url.partition("://")[2]
    user, _, password = authority.rpartition("@")[0].partition(":")
    if not password:
        return ()
    return (f"{user}:{password}", f"{unquote(user)}:{unquote(password)}", password, unquote(password))


def without_login(url: str) -> str:
    """`url` without user and password, and without the query, which may hold a token."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        return url
    return f"{scheme}://{rest.partition('?')[0].rpartition('@')[2]}"


def _forms(secret: str) -> Iterator[str]:
    yield from (secret, quote(secret, safe=""), quote_plus(secret))
    yield base64.b64encode(secret.encode("utf-8", "surrogateescape")).decode()
