"""Who may change what at the placement service: tokens in files, tokens of issuers, and certificates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from features.common.errors import ConfigError
from features.common.hosts import is_loopback
from jobs.ground.settings.serve import ServeSettings
from jobs.ground.settings.tree import CacheSettings
from prefetch.placement.tokens import (
    OPERATORS,
    Issuer,
    SignedTokens,
    Tokens,
    federation,
    federation_of,
    read_folder,
    read_token,
)


def tokens(serve: ServeSettings, caches: Sequence[CacheSettings]) -> Tokens:
    """All logins. Raises ConfigError, also if tokens would be sent unencrypted."""
    operator = read_token(serve.token.get_secret_value(), serve.token_file, "serve.token")
    own = read_folder(serve.cache_tokens, {cache.name for cache in caches}, "serve.cache_tokens")
    signed, subjects = SignedTokens(issuers(serve, caches)), certificates(serve, caches)
    found = Tokens(operator, own, node_tokens(serve, caches), signed, subjects)
    if found and not (serve.tls_cert or serve.plain_http or is_loopback(serve.host)):
        raise ConfigError(
            "serve.host",
            f"tokens would come to {serve.host} unencrypted: set tls_cert and tls_key, or plain_http = true",
        )
    return found


def node_tokens(serve: ServeSettings, caches: Iterable[CacheSettings]) -> dict[str, str]:
    """The token of each site's nodes that are not configured. Raises ConfigError."""
    sites = {cache.at_site for cache in caches}
    return read_folder(serve.federation_tokens, sites, "serve.federation_tokens")


def joinable(serve: ServeSettings, caches: Sequence[CacheSettings]) -> frozenset[str]:
    """The sites that nodes may join without being configured. Raises ConfigError."""
    signed = [owner for issuer in issuers(serve, caches) for owner in issuer.owners.values()]
    owners = [*signed, *certificates(serve, caches).values()]
    return frozenset({*node_tokens(serve, caches), *filter(None, map(federation_of, owners))})


def issuers(serve: ServeSettings, caches: Sequence[CacheSettings]) -> list[Issuer]:
    """The issuers of signed tokens. Raises ConfigError."""
    return [
        Issuer(url, one.keys, one.audience, _owners(one.subjects, caches, f"serve.issuers.{url}.subjects"))
        for url, one in serve.issuers.items()
    ]


def certificates(serve: ServeSettings, caches: Sequence[CacheSettings]) -> dict[str, str]:
    """Whom certificates speak for, by subject. Raises ConfigError."""
    return _owners(serve.client_subjects, caches, "serve.client_subjects")


def _owners(roles: Mapping[str, str], caches: Sequence[CacheSettings], where: str) -> dict[str, str]:
    """The owner in each role: `operator`, `cache NAME` or `site NAME`. Raises ConfigError for any other."""
    names, sites = {cache.name for cache in caches}, {cache.at_site for cache in caches}
    owners = {"operator": OPERATORS, **{f"cache {name}": name for name in names}}
    owners |= {f"site {site}": federation(site) for site in sites}
    for subject, role in roles.items():
        if role not in owners:
            raise ConfigError(
                f"{where}.{subject}",
                f"{role!r} is none of: operator, cache NAME, site NAME, of configured ones",
            )
    return {subject: owners[role] for subject, role in roles.items()}
