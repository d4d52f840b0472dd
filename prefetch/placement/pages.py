"""The service's pages for people: links at `/`, and at `/docs` Swagger UI, whose files it serves itself."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable

from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.responses import HTMLResponse

TITLE = "cachecast placement"
_OPERATOR = {"operator": "caches, stewards, models and alarms, for operators"}
_LINKS = {
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
_ONLY_US = (
    f"default-src 'self'; script-src {_INLINE}; style-src {_INLINE}; img-src 'self' data:; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)


class Pages:
    """The routes of the pages; `planned`: the caches that have a plan now."""

    def __init__(self, planned: Callable[[], Iterable[str]], *, has_operator: bool) -> None:
        self._planned = planned
        self._links = {**(_OPERATOR if has_operator else {}), **_LINKS}

    async def links(self) -> HTMLResponse:
        """A page of links to what can be opened in a browser."""
        plans = {f"plan/{name}": f"the newest plan of cache {name}" for name in sorted(self._planned())}
        return HTMLResponse(_page(_items({**self._links, **plans}.items())), headers=_headers())

    async def docs(self) -> HTMLResponse:
        """Swagger UI."""
        page = get_swagger_ui_html(
            openapi_url="openapi.json",
            title=TITLE,
            swagger_js_url=f"docs/{_SCRIPT}",
            swagger_css_url=f"docs/{_STYLE}",
            swagger_favicon_url=f"docs/{_ICON}",
            swagger_ui_parameters={"validatorUrl": None},
        )
        return HTMLResponse(page.body, headers=_headers())


def _items(links: Iterable[tuple[str, str]]) -> str:
    escaped = [(html.escape(to), html.escape(what)) for to, what in links]
    return "\n".join(f'<li><a href="{to}">/{to}</a>: {what}</li>' for to, what in escaped)


def _page(items: str) -> str:
    return (
        f'<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>{TITLE}</title>\n'
        f'<link rel="icon" href="docs/{_ICON}">\n'
        '<body style="font-family: sans-serif; margin: 2em; line-height: 1.6">\n'
        f"<h1>{TITLE}</h1>\n<ul>\n{items}\n</ul>\n</body></html>\n"
    )


def _headers() -> dict[str, str]:
    return {"content-security-policy": _ONLY_US, "cache-control": "no-cache"}
