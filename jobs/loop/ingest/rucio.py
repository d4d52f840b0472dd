"""The configured Rucio server."""

from __future__ import annotations

from features.common.errors import ConfigError
from jobs.ground.settings.sources import RucioSettings
from jobs.ground.store.user_cache import user_cache
from prefetch.rucio.session import RucioAccess, Session


def session(rucio: RucioSettings) -> Session:
    """A session with the configured server. Raises ConfigError if its settings are missing or incomplete."""
    if not rucio.url:
        raise ConfigError("rucio.url", "no Rucio server is configured; set it to https://rucio.example.org")
    return Session(
        RucioAccess(
            url=rucio.url.rstrip("/"),
            auth_url=rucio.auth_url.rstrip("/"),
            auth_type=rucio.auth_type,
            account=rucio.account,
            vo=rucio.vo,
            ca_cert=rucio.ca_cert,
            username=rucio.username,
            password=rucio.password.get_secret_value(),
            client_cert=rucio.client_cert,
            client_key=rucio.client_key,
            client_proxy=rucio.client_proxy,
            timeout_s=rucio.timeout,
            attempts=rucio.attempts,
            tokens=user_cache("rucio-tokens"),
        )
    )
