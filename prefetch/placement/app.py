"""The placement service's HTTP: the routes that caches, operators and batch systems call, with their docs."""

import asyncio
import gc
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import Body, Depends, FastAPI, Request, Response
from fastapi import Path as InPath
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, ProcessCollector, generate_latest
from starlette.exceptions import HTTPException
from starlette.staticfiles import StaticFiles

from features.common.errors import CachecastError, InputError, ServiceError, bounded
from features.common.hosts import called_by
from prefetch.placement import messages
from prefetch.placement.connections import SUBJECT, Gate
from prefetch.placement.database import Synchroniser
from prefetch.placement.front import Front, ServiceMetrics
from prefetch.placement.messages import FileName, SiteName
from prefetch.placement.pages import TITLE, OperatorPages, PageMaker, docs, links
from prefetch.placement.score import Score
from prefetch.placement.service import Service
from prefetch.placement.tokens import OPERATORS, Tokens, federation_of

_BY_FRONT = "the front answers this before the framework; here it is only described"

Dataset = Annotated[str, InPath(description="SCOPE:NAME; a name may hold slashes")]


def application(
    service: Service,
    keeper: Synchroniser,
    tokens: Tokens,
    gate: Gate,
    operator: PageMaker,
    *,
    hosts: Iterable[str] = (),
) -> Front:
    """The ASGI application, whose start restores what is stored and whose end stores the rest.

    `operator`: where the operator's pages come from. `hosts`: the names by which it is called, beside
    addresses and localhost.
    """

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with keeper.running():
            # What is loaded now stays: walking through it at every collection would delay answers.
            gc.freeze()
            yield
        await asyncio.to_thread(operator.close)

    app = FastAPI(title=TITLE, lifespan=lifespan, docs_url=None, redoc_url=None, redirect_slashes=False)
    front = Front(service, app, called_by(hosts))
    api = Api(service, keeper, tokens, ServiceMetrics(service, keeper, front, gate))
    pages = OperatorPages(operator, service)
    operators, anybody_known = [Depends(api.operators_only)], [Depends(api.known_only)]
    add = app.add_api_route
    for path, page in (
        ("/", links),
        ("/docs", docs),
        ("/operator", pages.region),
        ("/operator/style.css", pages.style),
        ("/operator/caches/{cache}", pages.cache),
    ):
        add(path, page, methods=["GET"], include_in_schema=False, response_model=None)
    app.mount("/docs", StaticFiles(packages=[("fastapi_offline", "static")]))
    unchanged: dict[int | str, dict[str, Any]] = {304: {"description": "As by If-None-Match"}}
    add("/serverRanges", api.server_ranges, methods=["GET"], responses=unchanged)
    add("/ds/{n}/{did:path}", api.dataset, methods=["GET"], responses=unchanged)
    add("/liveness", api.servers, methods=["GET"])
    add("/liveness", api.beat, methods=["POST"], dependencies=anybody_known, response_class=PlainTextResponse)
    add("/liveness/{site}/{server}", api.drop, methods=["DELETE"], dependencies=operators)
    add("/prefix", api.prefix, methods=["POST"], response_class=PlainTextResponse)
    add("/serve", api.serves, methods=["GET"])
    add("/serve", api.serve, methods=["PUT"], dependencies=operators)
    add("/serve", api.unserve, methods=["DELETE"], dependencies=operators)
    add("/ds/reassign/{dataset:path}/{sites}", api.reassign, methods=["PUT"], dependencies=operators)
    add("/ds/reassign/{dataset:path}", api.unassign, methods=["DELETE"], dependencies=operators)
    add("/score", api.score, methods=["POST"], openapi_extra=messages.SCORE_BODY)
    add("/metrics", api.metrics, methods=["GET"], response_class=PlainTextResponse)
    add("/health", api.health, methods=["GET"])
    for kind in (RequestValidationError, HTTPException, CachecastError):
        app.add_exception_handler(kind, _failed)
    return front


class Api:
    """The routes."""

    def __init__(
        self, service: Service, keeper: Synchroniser, tokens: Tokens, figures: ServiceMetrics
    ) -> None:
        self._service, self._keeper, self._tokens = service, keeper, tokens
        self._registry = CollectorRegistry()
        self._registry.register(figures)
        ProcessCollector(registry=self._registry)

    async def operators_only(self, request: Request) -> None:
        """Raise HTTPException (401) without the operators' token."""
        _require(self._owner(request) == OPERATORS)

    async def known_only(self, request: Request) -> str:
        """Who asks: a cache, a federation, or OPERATORS. Raises HTTPException (401) for all others."""
        owner = self._owner(request)
        _require(owner is not None)
        return str(owner)

    def _owner(self, request: Request) -> str | None:
        return self._tokens.login(request.headers.get("authorization"), request.scope["state"].get(SUBJECT))

    async def server_ranges(self) -> dict[str, Any]:
        """What Rucio reads to rewrite PFNs: live servers by site, with address and size.

        And `[index, upper]` ranges of the hash of the name without scope.
        """
        raise NotImplementedError(_BY_FRONT)

    async def dataset(self, n: Annotated[int, InPath(ge=0)], did: Dataset) -> list[str]:
        """At most `n` sites (0: all) that hold a dataset, best first, or `["other"]`."""
        raise NotImplementedError(_BY_FRONT)

    async def servers(self) -> dict[str, dict[str, dict[str, Any]]]:
        """Known cache servers by site and id; `timestamp` (ms since 1970) is the last heartbeat."""
        by_site: dict[str, dict[str, dict[str, Any]]] = {}
        for server, is_alive in self._service.servers():
            by_site.setdefault(server.site, {})[server.id] = {
                "address": server.address,
                "size": server.size,
                "timestamp": int(server.seen_at_s * 1000),
                "live": is_alive,
            }
        return by_site

    async def beat(self, body: messages.Heartbeat, request: Request) -> str:
        """A cache server reports that it is alive; due well within the liveness time. Needs its token.

        One that is not configured needs that of its federation.
        """
        owner = await self.known_only(request)
        site = federation_of(owner)
        if site is not None and body.id not in self._service.options.taken:
            self._service.admit(
                body.id, messages.joining(site, at=body.site, address=body.address, size=body.size)
            )
        elif owner not in (OPERATORS, body.id):
            raise HTTPException(403, f"this is not the token of {body.id}")
        else:
            self._service.heartbeat(body.id, site=body.site, address=body.address)
        return "OK"

    async def drop(self, site: SiteName, server: SiteName) -> dict[str, str]:
        """Take a server out for good, and give its names to the others. Needs the operators' token."""
        if not self._service.drop(site, server):
            raise HTTPException(404, "there is no such server")
        await self._keeper.sync()
        return {"dropped": server}

    async def prefix(self, client: Annotated[SiteName, Body()], filename: Annotated[FileName, Body()]) -> str:
        """Address of the server that holds a file for a client's site, as Rucio would choose; empty: none."""
        return self._service.server_for(client, filename)

    async def serves(self) -> dict[str, str]:
        """Which site's caches serve which client site; others are served by their own."""
        return self._service.serves

    async def serve(
        self, client: Annotated[SiteName, Body()], cache_site: Annotated[SiteName, Body()]
    ) -> dict[str, str]:
        """Let a client site be served by a site's caches. Needs the operators' token."""
        self._service.check_sites([cache_site])
        await self._keeper.change(lambda of: of.serve(client, cache_site))
        return {client: cache_site}

    async def unserve(self, client: Annotated[SiteName, Body(embed=True)]) -> dict[str, str]:
        """Let a client site be served by its own caches again. Needs the operators' token."""
        await self._keeper.change(lambda of: of.serve(client, None))
        return {}

    async def reassign(self, dataset: Dataset, sites: str) -> PlainTextResponse:
        """Place a dataset at sites by hand, best first: `A,B`, or `other`. Needs the operators' token."""
        did = messages.dataset_of(messages.checked_name(dataset))
        names = tuple(messages.checked_site(site) for site in sites.split(","))
        self._service.check_sites(names)
        await self._keeper.change(lambda of: of.reassign(did, names))
        return PlainTextResponse("Done.")

    async def unassign(self, dataset: Dataset) -> PlainTextResponse:
        """Place a dataset by its popularity again. Needs the operators' token."""
        did = messages.dataset_of(messages.checked_name(dataset))
        await self._keeper.change(lambda of: of.reassign(did, None))
        return PlainTextResponse("Done.")

    async def score(self, request: Request) -> Score:
        """Rank the sites for a job: cached and predicted fractions of its input, and KIT's Eq. 1."""
        body, ranked = await request.body(), self._service.ranking()
        return await asyncio.to_thread(lambda: ranked(messages.score_asked(body)))

    async def metrics(self) -> Response:
        """Figures for Prometheus."""
        return Response(generate_latest(self._registry), media_type=CONTENT_TYPE_LATEST)

    async def health(self) -> dict[str, Any]:
        """`ok`, or `degraded` while the database is unavailable and answers come from memory alone."""
        servers = self._service.servers()
        return {
            "status": "ok" if self._keeper.fault is None else "degraded",
            "database": self._keeper.fault or "up",
            "synced_at_s": self._keeper.synced_at_s,
            "as_of": self._service.snapshot.as_of or None,
            "datasets": int(self._service.snapshot.dataset_keys.size),
            "servers": len(servers),
            "servers_alive": sum(is_alive for _, is_alive in servers),
            "unplanned": ["/".join(key) for key in self._service.unplanned()],
            "silent": ["/".join(key) for key in self._service.silent()],
        }


def _require(is_allowed: bool) -> None:
    if not is_allowed:
        challenge = {"www-authenticate": "Bearer"}
        raise HTTPException(401, "this needs a bearer token that is configured here", challenge)


def _failed(_: Request, error: Exception) -> JSONResponse:
    if isinstance(error, RequestValidationError):
        return JSONResponse({"error": messages.first_fault(error.errors()[0])}, 400)
    if isinstance(error, HTTPException):
        return JSONResponse({"error": bounded(str(error.detail))}, error.status_code, error.headers)
    if isinstance(error, ServiceError):
        return JSONResponse({"error": str(error)}, 503, {"retry-after": "10"})
    return JSONResponse({"error": str(error)}, 400 if isinstance(error, InputError) else 500)
