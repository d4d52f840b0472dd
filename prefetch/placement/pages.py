"""The service's pages for people: links at `/`, Swagger UI at `/docs`, the operator's pages at `/operator`.

All their files come from here. A page of the operator is kept for some seconds: many requests read the tables
once.
"""

import asyncio
import html
import time
from collections.abc import Collection, Mapping
from typing import Annotated, Final, Literal, NamedTuple, Protocol

from fastapi import HTTPException, Query, Response
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.responses import HTMLResponse

from features.common.errors import ServiceError
from features.common.times import as_of_label
from features.common.units import roughly
from prefetch.placement.messages import SiteName, checked_name
from prefetch.placement.service import Service

TITLE = "cachecast placement"
_LINKS = {
    "operator": "caches, stewards, models and alarms, for operators",
    "docs": "what can be asked, to try out",
    "openapi.json": "the same for programs",
    "health": "state of the service",
    "liveness": "caches and their last heartbeats",
    "serverRanges": "what Rucio reads: servers and their ranges",
    "serve": "which site's caches serve which client site",
    "metrics": "figures for Prometheus",
}
_SCRIPT, _STYLE, _ICON = "swagger-ui-bundle.js", "swagger-ui.css", "favicon.png"
# The page must work where there is no other host to ask, and ask none where there is.
_INLINE = "'self' 'unsafe-inline'"
_PAGE_HEADERS = {
    "content-security-policy": f"default-src 'self'; script-src {_INLINE}; style-src {_INLINE}; "
    "img-src 'self' data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "cache-control": "no-cache",
}


async def links() -> HTMLResponse:
    items = "\n".join(f'<li><a href="{to}">/{to}</a>: {what}</li>' for to, what in _LINKS.items())
    page = (
        f'<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>{TITLE}</title>\n'
        f'<link rel="icon" href="docs/{_ICON}">\n'
        '<body style="font-family: sans-serif; margin: 2em; line-height: 1.6">\n'
        f"<h1>{TITLE}</h1>\n<ul>\n{items}\n</ul>\n</body></html>\n"
    )
    return HTMLResponse(page, headers=_PAGE_HEADERS)


async def docs() -> HTMLResponse:
    page = get_swagger_ui_html(
        openapi_url="openapi.json",
        title=TITLE,
        swagger_js_url=f"docs/{_SCRIPT}",
        swagger_css_url=f"docs/{_STYLE}",
        swagger_favicon_url=f"docs/{_ICON}",
        swagger_ui_parameters={"validatorUrl": None},
    )
    return HTMLResponse(page.body, headers=_PAGE_HEADERS)


REFRESH_S: Final = 60
"""The region's page loads itself anew so often."""
KEPT_S: Final = 5.0
"""A page is this old at most."""
ANSWER_WITHIN_S: Final = 50.0
"""Who asks for a page hears by then that there is none yet; connections.ANSWER_S ends a silent connection."""
_MOST_KEPT: Final = 64
_MOST_ITEMS: Final = 10**9
# Nothing runs, and nothing comes from elsewhere, whatever the names on the page hold.
_HEADERS: Final = {
    "content-security-policy": "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}


class PageRequest(NamedTuple):
    """What a page shows: the region, or the plan of a `cache`.

    Of a plan: the items of an `action`, or all, after the first `after`; and why `item` is in it or not.
    `is_still`: the region's page does not load itself anew.
    """

    cache: str = ""
    action: str = ""
    after: int = 0
    item: str = ""
    is_still: bool = False


class LastHeartbeat(NamedTuple):
    """A cache's last heartbeat, and whether it counts as alive."""

    seen_at_s: float
    is_alive: bool


class PageMaker(Protocol):
    """Makes the pages. `caches`: those that have a page; `style`: the stylesheet of all pages."""

    caches: Collection[str]
    style: bytes

    def page(self, request: PageRequest, heard: Mapping[str, LastHeartbeat]) -> bytes:
        """A page as HTML, with the heartbeats `heard` by cache. Takes seconds. Raises ServiceError."""

    def close(self) -> None:
        """Release what it holds."""


class OperatorPages:
    """The routes."""

    def __init__(self, source: PageMaker, service: Service) -> None:
        self._source, self._service = source, service
        self._making: asyncio.Task[bytes] | None = None
        self._kept: dict[PageRequest, tuple[bytes, float]] = {}  # with its time by the monotonic clock
        self._last_s: float | None = None
        self._began_s = service.now_s()

    async def region(self, still: bool = False) -> HTMLResponse:
        """Caches, stewards, models and alarms; unless `still`, a browser loads them anew each minute."""
        answer = await self._answer(PageRequest(is_still=still))
        if not still:
            answer.headers["refresh"] = str(REFRESH_S)
        return answer

    async def cache(
        self,
        cache: SiteName,
        action: Literal["", "prefetch", "pin", "unpin", "evict"] = "",
        after: Annotated[int, Query(ge=0, le=_MOST_ITEMS)] = 0,
        file: str = "",
    ) -> HTMLResponse:
        if cache not in self._source.caches:
            raise HTTPException(404, "there is no such cache")
        return await self._answer(PageRequest(cache, action, after, checked_name(file) if file else ""))

    async def style(self) -> Response:
        return Response(self._source.style, media_type="text/css", headers=_HEADERS)

    async def _answer(self, request: PageRequest) -> HTMLResponse:
        try:
            return HTMLResponse(await self._page(request), headers=_HEADERS)
        except ServiceError as error:
            return HTMLResponse(
                self._without_answer(request, str(error)), 503, {**_HEADERS, "retry-after": "10"}
            )

    async def _page(self, request: PageRequest) -> bytes:
        """One page is made at a time, to its end, also when those who asked for it have had their answer."""
        try:
            async with asyncio.timeout(ANSWER_WITHIN_S):
                while (content := self._fresh(request)) is None:
                    if self._making is None or self._making.done():
                        self._making = asyncio.create_task(self._make(request))
                        self._making.add_done_callback(lambda made: made.cancelled() or made.exception())
                        return await asyncio.shield(self._making)
                    await asyncio.wait({self._making})
                return content
        except TimeoutError:
            why = f"no page within {ANSWER_WITHIN_S:.0f} s: its process is still at work"
            raise ServiceError(why) from None

    async def _make(self, request: PageRequest) -> bytes:
        heard = {
            server.id: LastHeartbeat(server.seen_at_s, alive) for server, alive in self._service.servers()
        }
        content = await asyncio.to_thread(self._source.page, request, heard)
        self._last_s = self._service.now_s()
        if len(self._kept) >= _MOST_KEPT:
            self._kept.clear()
        self._kept[request] = content, time.monotonic()
        return content

    def _fresh(self, request: PageRequest) -> bytes | None:
        content, made_s = self._kept.get(request, (None, 0.0))
        return content if time.monotonic() - made_s < KEPT_S else None

    def _without_answer(self, request: PageRequest, why: str) -> str:
        since_s = self._began_s if self._last_s is None else self._last_s
        since = f"{as_of_label(int(since_s))}, {roughly(int(self._service.now_s() - since_s))} ago"
        up = "../../" if request.cache else ""
        last = (
            "No page was made since the service started" if self._last_s is None else "The last page was made"
        )
        return (
            '<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>Unknown – cachecast</title>\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f'<link rel="stylesheet" href="{up}operator/style.css">\n'
            f"<h1>Unknown</h1>\n<p>The state is unknown: {html.escape(why)}.</p>\n<p>{last} at {since}.</p>\n"
            "<p>The service itself answers: see /health, /liveness and /metrics.</p></html>\n"
        )
