"""The two routes that Rucio calls for every file, in front of the framework: prepared bytes, nothing made.

What else comes is counted, its body read within bounds, and handed on when it has its turn: however much of
it there is, the two routes wait for a few requests at most.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from prefetch.placement.answers import NO_BODY, Answer, json_answer
from prefetch.placement.gate import client_of
from prefetch.placement.lanes import Bodies, BusyError, GoneError, Lane, Receive, SlowError
from prefetch.placement.service import Service

MAX_BODY_BYTES = 2 * 1024**2
SMALL_BODY_BYTES = 16 * 1024
"""The longest body of all routes but `/score`."""
ALL_BODIES_BYTES = 32 * 1024**2
BODY_S = 10.0
ROUTES = frozenset(
    {"liveness", "prefix", "serve", "ds", "plan", "score", "metrics", "health", "docs", "operator"}
)

_READS = ("GET", "HEAD")
_RETRY_AFTER = (b"retry-after", b"10")
_CLOSE = (b"connection", b"close")

# A page that may be framed can be laid under a stranger's, whose visitor then clicks in it.
_SAFE = ((b"x-frame-options", b"DENY"), (b"x-content-type-options", b"nosniff"))

Scope = MutableMapping[str, Any]
Send = Callable[[Any], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class Front:
    """The ASGI application: hot routes here, the rest in `app`."""

    def __init__(self, service: Service, app: App, is_ours: Callable[[bytes], bool]) -> None:
        """`is_ours`: whether a Host header means this service."""
        self._service, self._app, self._is_ours = service, app, is_ours
        self.n_ranges = self.n_datasets = self.n_unchanged = 0
        self.others: Counter[tuple[str, int]] = Counter()
        self.bodies = Bodies(most_bytes=ALL_BODIES_BYTES, small_bytes=SMALL_BODY_BYTES, within_s=BODY_S)
        # Ranking is work for a thread, and two would only share one interpreter; plans wait for slow readers.
        self._score = Lane(at_once=1, most=32, per_client=8)
        self._plan = Lane(at_once=64, most=64, per_client=16)
        # The files of the docs are large, and wait for slow readers too.
        self._docs = Lane(at_once=8, most=16, per_client=8)
        # A page waits for the tables; heartbeats must not wait behind it.
        self._operator = Lane(at_once=8, most=16, per_client=8)
        self._rest = Lane(at_once=8, most=256, per_client=64)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, or the framework's lifespan."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path: str = scope["path"]
        if not all(self._is_ours(value) for name, value in scope["headers"] if name == b"host"):
            self.others["unknown", 421] += 1
            answer = _NOT_US
        elif path == "/serverRanges" and scope["method"] in _READS:
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
        # The path of `OPTIONS *` has no slash.
        first = scope["path"].partition("/")[2].partition("/")[0]
        route = "root" if scope["path"] == "/" else first if first in ROUTES else "unknown"

        async def counted(message: Any) -> None:
            if message["type"] == "http.response.start":
                self.others[route, message["status"]] += 1
                message["headers"] = [*message["headers"], *_SAFE]
            await send(message)

        headers = dict(scope["headers"])
        refusal = _refusal(headers, MAX_BODY_BYTES if route == "score" else SMALL_BODY_BYTES)
        if refusal is None:
            try:
                async with self.bodies.whole(receive, int(headers.get(b"content-length", b"0"))) as body:
                    await self._in_turn(route, scope, _replayed(body, receive), counted)
            except GoneError:
                return
            except BusyError as error:
                refusal = _refused(503, str(error), _RETRY_AFTER, _CLOSE)
            except SlowError as error:
                refusal = _refused(408, str(error), _CLOSE)
        if refusal is not None:
            await counted(refusal.start)
            await counted(refusal.body)

    async def _in_turn(self, route: str, scope: Scope, receive: Receive, send: Send) -> None:
        client = client_of(scope["client"])
        if route in {"plan", "docs"}:
            async with (self._plan if route == "plan" else self._docs).turn(client):
                await self._app(scope, receive, send)
            return
        messages: list[Any] = []

        async def kept(message: Any) -> None:
            messages.append(message)

        lane = {"score": self._score, "operator": self._operator}.get(route, self._rest)
        async with lane.turn(client):
            await self._app(scope, receive, kept)
        # A turn is not held for a client that does not read.
        for message in messages:
            await send(message)


def _replayed(body: bytes, receive: Receive) -> Receive:
    """`receive` as it would be if all of `body` came at once."""
    told = [{"type": "http.request", "body": body, "more_body": False}]

    async def replayed() -> MutableMapping[str, Any]:
        return told.pop() if told else await receive()

    return replayed


def _refusal(headers: Mapping[bytes, bytes], most_bytes: int) -> Answer | None:
    """A body must say its length, so that no caller fills the memory."""
    length = headers.get(b"content-length", b"0")
    if b"transfer-encoding" in headers or not length.isdigit():
        return _refused(411, "say Content-Length", _CLOSE)
    if len(length) > 7 or int(length) > most_bytes:
        return _refused(413, f"the body is too long; at most {most_bytes} bytes", _CLOSE)
    return None


def _refused(status: int, text: str, *more: tuple[bytes, bytes]) -> Answer:
    return json_answer({"error": text}, max_age_s=0, status=status, more=more)


_NOT_US = _refused(
    421, "this service has another name; who should use this one adds it to [serve] hosts", _CLOSE
)
