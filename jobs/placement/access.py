"""Access to the placement service: its caches, the tokens, and the connections that may carry tokens."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import urlsplit

from features.common.errors import ConfigError, InputError
from features.common.hosts import is_loopback
from jobs.settings.serve import ServeSettings
from jobs.settings.tree import CacheSettings
from prefetch.placement.names import Member, Members, checked_address
from prefetch.placement.tokens import Tokens, read_folder, read_token

_XROOTD_PORT = 1094


def tokens(serve: ServeSettings, caches: Iterable[CacheSettings]) -> Tokens:
    """The tokens of operators and caches. Raises ConfigError, also if they would be sent unencrypted."""
    operator = read_token(serve.token.get_secret_value(), serve.token_file, "serve.token")
    names = {cache.name for cache in caches}
    found = Tokens(operator, read_folder(serve.cache_tokens, names, "serve.cache_tokens"))
    if found and not (serve.tls_cert or serve.plain_http or is_loopback(serve.host)):
        raise ConfigError(
            "serve.host",
            f"tokens would come to {serve.host} unencrypted: set tls_cert and tls_key, or plain_http = true",
        )
    return found


def members(caches: Iterable[CacheSettings]) -> Members:
    """The caches that clients read through, without directory caches. Raises ConfigError."""
    return {
        cache.name: Member(cache.at_site, _address(cache), cache.capacity)
        for cache in caches
        if cache.kind == "xcache"
    }


def _address(cache: CacheSettings) -> str:
    key = "url" if cache.address is None else "address"
    try:
        if cache.address is not None:
            return checked_address(cache.address)
        parts = urlsplit(cache.url)
        host = parts.hostname or ""
        return checked_address(f"{f'[{host}]' if ':' in host else host}:{parts.port or _XROOTD_PORT}")
    except (InputError, ValueError) as error:
        raise ConfigError(f"caches.{cache.name}.{key}", str(error)) from None
