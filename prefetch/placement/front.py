"""The two routes that Rucio calls for every file, in front of the framework: prepared bytes, nothing made.

What else comes is counted, its body measured, and handed on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from prefetch.placement.answers import NO_BODY, Answer, json_answer
from prefetch.placement.service import Service

MAX_BODY_BYTES = 2 * 1024**2
ROUTES = frozenset({"liveness", "prefix", "serve", "ds", "plan", "score", "metrics", "health", "docs"})

_READS = ("GET", "HEAD")

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[Any], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class Front:
    """The ASGI application: hot routes here, the rest in `app`."""

    def __init__(self, service: Service, app: App) -> None:
        self._service, self._app = service, app
        self.n_ranges = self.n_datasets = self.n_unchanged = 0
        self.others: Counter[tuple[str, int]] = Counter()
        self._too_long = json_answer({"error": "the body is too long"}, max_age_s=0, status=413)
        self._no_length = json_answer({"error": "say Content-Length"}, max_age_s=0, status=411)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, or the framework's lifespan."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path: str = scope["path"]
        if path == "/serverRanges" and scope["method"] in _READS:
            self.n_ranges += 1
            answer = self._service.ranges
        elif path.startswith("/ds/") and scope["method"] in _READS:
            self.n_datasets += 1
            answer = self._service.dataset(path[4:])
        else:
            await self._hand_on(scope, receive, send)
            return
        start, body = answer.start, answer.body
        for name, value in scope["headers"]:
            if name == b"if-none-match" and answer.etag in value and start["status"] == 200:
                self.n_unchanged += 1
                start, body = answer.unchanged, NO_BODY
        await send(start)
        await send(body)

    async def _hand_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        first = scope["path"].split("/")[1]
        route = first if first in ROUTES else "unknown"

        async def counted(message: Any) -> None:
            if message["type"] == "http.response.start":
                self.others[route, message["status"]] += 1
            await send(message)

        refusal = self._refusal(dict(scope["headers"]))
        if refusal is None:
            await self._app(scope, receive, counted)
        else:
            await counted(refusal.start)
            await counted(refusal.body)

    def _refusal(self, headers: Mapping[bytes, bytes]) -> Answer | None:
        """A body must say its length, so that no caller fills the memory."""
        if b"transfer-encoding" in headers:
            return self._no_length
        length = headers.get(b"content-length", b"0")
        if not length.isdigit():
            return self._no_length
        return self._too_long if len(length) > 7 or int(length) > MAX_BODY_BYTES else None
