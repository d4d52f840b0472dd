"""The placement service as settings configure it: wiring, a socket, and a loop that ends with a signal."""

from __future__ import annotations

import errno
import os
import socket
import time
from collections.abc import Callable, Mapping

import uvicorn

from features.errors import ConfigError, ServiceError
from jobs.settings.serve import ServeSettings, SiteSettings
from jobs.settings.tree import Settings
from prefetch.databases import shown
from prefetch.placement.app import application
from prefetch.placement.database import Database
from prefetch.placement.front import Front
from prefetch.placement.keeper import Keeper
from prefetch.placement.service import Options, Service
from prefetch.placement.tokens import Tokens, read_token
from replay.benefit import Cluster

_BACKLOG = 2048


def run(settings: Settings, *, host: str | None, port: int | None, log: Callable[[str], None]) -> None:
    """Run the placement service until it is stopped."""
    given = {key: value for key, value in (("host", host), ("port", port)) if value is not None}
    chosen = settings.serve.model_copy(update=given)
    answer_until_stopped(chosen, job_read_rate_bytes_s=settings.benefit.job_read_rate, log=log)


def answer_until_stopped(
    serve: ServeSettings, *, job_read_rate_bytes_s: float, log: Callable[[str], None]
) -> None:
    """Answer on `serve.host`:`serve.port` until SIGTERM or SIGINT. Raises ConfigError, ServiceError."""
    front = wired(serve, job_read_rate_bytes_s=job_read_rate_bytes_s, now_s=time.time)
    with _listening(serve.host, serve.port) as listener:
        config = uvicorn.Config(
            front,
            loop="uvloop",
            http="httptools",
            ws="none",
            interface="asgi3",
            proxy_headers=False,
            lifespan="on",
            log_level="warning",
            access_log=False,
            server_header=False,
            backlog=_BACKLOG,
            ssl_certfile=serve.tls_cert or None,
            ssl_keyfile=serve.tls_key or None,
        )
        host, port = listener.getsockname()[:2]
        scheme = "https" if serve.tls_cert else "http"
        log(f"answering on {scheme}://{host}:{port}, kept in {shown(serve.database)}")
        uvicorn.Server(config).run(sockets=[listener])


def wired(serve: ServeSettings, *, job_read_rate_bytes_s: float, now_s: Callable[[], float]) -> Front:
    """The application, its state and its database, none of them started. Raises ConfigError."""
    operators = read_token(serve.token.get_secret_value(), serve.token_file, "serve.token")
    caches = read_token(serve.cache_token.get_secret_value(), serve.cache_token_file, "serve.cache_token")
    options = Options(
        liveness_s=serve.liveness,
        forget_s=serve.forget,
        max_wait_s=serve.max_wait,
        never=serve.never,
        clusters={name: _cluster(serve, site, job_read_rate_bytes_s) for name, site in serve.sites.items()},
        cluster=_cluster(serve, SiteSettings(), job_read_rate_bytes_s),
    )
    service = Service(options, now_s=now_s)
    keeper = Keeper(service, Database(serve.database), every_s=serve.sync)
    return application(service, keeper, Tokens(operators, caches))


def rates(serve: ServeSettings, n_nodes: Mapping[str, int]) -> dict[str, float]:
    """Bytes a second that one dataset may draw from each site, of `n_nodes` caches."""
    named = {site: serve.sites.get(site, SiteSettings()) for site in n_nodes}
    return {
        site: serve.site_share * n_nodes[site] * (one.cache_read or serve.cache_read)
        for site, one in named.items()
    }


def _cluster(serve: ServeSettings, site: SiteSettings, job_read_rate_bytes_s: float) -> Cluster:
    return Cluster(
        network_bytes_s=site.network or serve.network,
        cache_bytes_s_per_node=site.cache_read or serve.cache_read,
        n_nodes=1,
        workflow_bytes_s_per_slot=job_read_rate_bytes_s,
        n_slots=site.slots or serve.slots,
    )


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except socket.gaierror:
        raise ConfigError("serve.host", f"{host!r} is no address of this machine") from None
    except OSError as error:
        remedy = "; choose another port" if error.errno == errno.EADDRINUSE else ""
        raise ServiceError(
            f"cannot listen on {host}:{port}: {os.strerror(error.errno or 0)}{remedy}"
        ) from None
