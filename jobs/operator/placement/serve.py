"""The configured placement service: its parts, its logins, its socket, and its loop until a signal."""

import asyncio
import errno
import os
import resource
import socket
import ssl
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import cast

import uvicorn

from features.common.errors import ConfigError, InputError, ServiceError
from features.common.hosts import is_loopback
from jobs.ground.settings.sections import ServeSettings, SiteSettings
from jobs.ground.settings.tree import CacheSettings, Settings
from prefetch.databases import without_password
from prefetch.placement.app import application
from prefetch.placement.connections import Gate, connections
from prefetch.placement.database import PlacementTables, Synchroniser
from prefetch.placement.messages import Member, Members, checked_address
from prefetch.placement.pages import PageMaker
from prefetch.placement.service import Options, Service
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
from replay.study.benefit import Cluster

_MOST_PORT = 65535
_BACKLOG = 512
_OTHER_DESCRIPTORS = 128  # file descriptors of the database, the event loop and libraries
_LAST_ANSWERS_S = 10  # when the service is stopped; a slow client must not delay it further


def run(
    settings: Settings, operator: PageMaker, *, host: str | None, port: int | None, log: Callable[[str], None]
) -> None:
    """Answer on `host`:`port` (or [serve]'s) until SIGTERM or SIGINT. Raises ConfigError, ServiceError."""
    listen = {key: value for key, value in (("host", host), ("port", port)) if value is not None}
    serve, rate = settings.serve.model_copy(update=listen), settings.benefit.job_read_rate
    needed = serve.connections + _BACKLOG + _OTHER_DESCRIPTORS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise ConfigError(
            "serve.connections",
            f"{serve.connections} need {needed} open files of {hard} allowed: raise LimitNOFILE or lower it",
        )
    if soft != resource.RLIM_INFINITY and soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
    built = server(serve, settings.caches.values(), operator, job_read_rate_bytes_s=rate, now_s=time.time)
    with _listening(serve.host, serve.port) as listener:
        address, bound = listener.getsockname()[:2]
        scheme = "https" if serve.tls_cert else "http"
        log(f"answering on {scheme}://{address}:{bound}, kept in {without_password(serve.database)}")
        built.run(sockets=[listener])


def server(
    serve: ServeSettings,
    caches: Iterable[CacheSettings],
    operator: PageMaker,
    *,
    job_read_rate_bytes_s: float,
    now_s: Callable[[], float],
) -> uvicorn.Server:
    """The HTTP server of the service with its limits; it runs on a socket. Raises ConfigError."""
    gate = Gate(most=serve.connections, per_client=serve.connections_per_client)
    known = list(caches)
    logins, joinable = _logins(serve, known)
    options = Options(
        liveness_s=serve.liveness,
        forget_s=serve.forget,
        max_wait_s=serve.max_wait,
        never=serve.never,
        members=members(known),
        federations=joinable,
        taken=frozenset(cache.name for cache in known),
        clusters={name: _cluster(serve, site, job_read_rate_bytes_s) for name, site in serve.sites.items()},
        cluster=_cluster(serve, SiteSettings(), job_read_rate_bytes_s),
    )
    service = Service(options, now_s=now_s)
    keeper = Synchroniser(service, PlacementTables(serve.database), every_s=serve.sync)
    hosts = {serve.host, socket.gethostname(), socket.getfqdn(), *serve.hosts}
    front = application(service, keeper, logins, gate, operator, hosts=hosts)
    config = uvicorn.Config(
        front,
        loop="uvloop",
        http=cast(type[asyncio.Protocol], connections(gate, _tls(serve))),
        ws="none",
        interface="asgi3",
        proxy_headers=False,
        lifespan="on",
        # With a warning per request that is not HTTP, anybody could fill the log.
        log_level="error",
        access_log=False,
        server_header=False,
        backlog=_BACKLOG,
        timeout_graceful_shutdown=_LAST_ANSWERS_S,
    )
    return uvicorn.Server(config)


def _cluster(serve: ServeSettings, site: SiteSettings, job_read_rate_bytes_s: float) -> Cluster:
    return Cluster(
        network_bytes_s=site.network or serve.network,
        cache_bytes_s_per_node=site.cache_read or serve.cache_read,
        n_nodes=1,
        workflow_bytes_s_per_slot=job_read_rate_bytes_s,
        n_slots=site.slots or serve.slots,
    )


def _tls(serve: ServeSettings) -> ssl.SSLContext | None:
    if not serve.tls_cert:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    key, what = "serve.tls_cert", "it with tls_key"
    try:
        context.load_cert_chain(serve.tls_cert, serve.tls_key)
        if serve.client_ca:
            key, what = "serve.client_ca", "it"
            context.load_verify_locations(serve.client_ca)
            context.verify_mode = ssl.CERT_OPTIONAL
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ConfigError(key, f"cannot use {what}: {reason}; give PEM files") from None
    return context


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    if not 0 <= port <= _MOST_PORT:
        raise ConfigError("serve.port", f"{port} is no port; give one up to {_MOST_PORT}, or 0")
    try:
        socket.getaddrinfo(host or None, port, family)
    except (OSError, UnicodeError):
        raise ConfigError("serve.host", f"{host!r} is no address of this machine") from None
    try:
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        remedy = "; choose another port" if error.errno == errno.EADDRINUSE else ""
        why = os.strerror(error.errno or 0)
        raise ServiceError(f"cannot listen on {host}:{port}: {why}{remedy}") from None


def members(caches: Iterable[CacheSettings]) -> Members:
    """The caches that clients read through, without directory caches. Raises ConfigError."""
    return {
        cache.name: Member(cache.at_site, _address(cache), cache.capacity, cache.drain)
        for cache in caches
        if cache.kind == "xcache"
    }


def _address(cache: CacheSettings) -> str:
    key, address = "address", cache.address
    if address is None:
        key, address = "url", "{}:{}".format(*cache.door)
    try:
        return checked_address(address)
    except InputError as error:
        raise ConfigError(f"caches.{cache.name}.{key}", str(error)) from None


def _logins(serve: ServeSettings, caches: Sequence[CacheSettings]) -> tuple[Tokens, frozenset[str]]:
    """All logins, and the sites that nodes may join without being configured.

    Raises ConfigError, also if tokens would be sent unencrypted.
    """
    operator = read_token(serve.token.get_secret_value(), serve.token_file, "serve.token")
    own = read_folder(serve.cache_tokens, {cache.name for cache in caches}, "serve.cache_tokens")
    sites = {cache.at_site for cache in caches}
    nodes = read_folder(serve.federation_tokens, sites, "serve.federation_tokens")
    issuers = [
        Issuer(url, of.keys, of.audience, _owners(of.subjects, caches, f"serve.issuers.{url}.subjects"))
        for url, of in serve.issuers.items()
    ]
    subjects = _owners(serve.client_subjects, caches, "serve.client_subjects")
    logins = Tokens(operator, own, nodes, SignedTokens(issuers), subjects)
    if logins and not (serve.tls_cert or serve.plain_http or is_loopback(serve.host)):
        raise ConfigError(
            "serve.host",
            f"tokens would come to {serve.host} unencrypted: set tls_cert and tls_key, or plain_http = true",
        )
    owners = [*(owner for issuer in issuers for owner in issuer.owners.values()), *subjects.values()]
    return logins, frozenset({*nodes, *filter(None, map(federation_of, owners))})


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
