"""Removal of secrets from messages: a server may send back what it was sent."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from urllib.parse import quote, quote_plus, unquote, urlsplit

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
    user, _, password = _userinfo(url).partition(":")
    if not password:
        return ()
    return (f"{user}:{password}", f"{unquote(user)}:{unquote(password)}", password, unquote(password))


def without_login(url: str) -> str:
    """`url` without user and password, and without the query, which may hold a token."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        return url
    return f"{scheme}://{rest.partition('?')[0].rpartition('@')[2]}"


def _userinfo(url: str) -> str:
    try:
        return urlsplit(url).netloc.rpartition("@")[0]
    except ValueError:
        return url.partition("://")[2].rpartition("@")[0]


def _forms(secret: str) -> Iterator[str]:
    yield from (secret, quote(secret, safe=""), quote_plus(secret))
    yield base64.b64encode(secret.encode("utf-8", "surrogateescape")).decode()
