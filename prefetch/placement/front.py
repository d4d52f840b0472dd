"""The two routes that Rucio calls for every file, in front of the framework: they only send prepared bytes.

Other requests are counted, their bodies read within bounds, and handed on in turn: however many there are,
the two routes wait for a few of them at most.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from features.common.errors import CachecastError
from features.common.times import parse_as_of
from prefetch.placement.connections import Gate, client_of
from prefetch.placement.database import Synchroniser
from prefetch.placement.messages import NO_BODY, PreparedAnswer, json_answer
from prefetch.placement.service import Service

MAX_BODY_BYTES = 2 * 1024**2
SMALL_BODY_BYTES = 16 * 1024
"""The longest body on all routes except `/score`."""
BODY_S = 10.0
ROUTES = frozenset({"liveness", "prefix", "serve", "ds", "score", "metrics", "health", "docs", "operator"})

_READS = ("GET", "HEAD")
_RETRY_AFTER = (b"retry-after", b"10")
_CLOSE = (b"connection", b"close")

# A page that may be framed can be laid under a stranger's, whose visitor then clicks in it.
_SAFE = ((b"x-frame-options", b"DENY"), (b"x-content-type-options", b"nosniff"))

Scope = MutableMapping[str, Any]
Send = Callable[[Any], Awaitable[None]]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class RefusedError(CachecastError):
    """A request that is not handed on; `status` is its answer's."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class GoneError(CachecastError):
    """The client has left before its body was whole."""


class Lane:
    """Requests of one kind: `at_once` at work; with those that wait `most`, of one client `per_client`."""

    def __init__(self, *, at_once: int, most: int, per_client: int) -> None:
        self.turn, self._most, self._per_client = asyncio.Semaphore(at_once), most, per_client
        self._n_of: Counter[str] = Counter()

    @contextmanager
    def place(self, client: str) -> Iterator[None]:
        """Count a request for as long as the block runs; `turn` is its work's. Raises RefusedError."""
        if self._n_of.total() >= self._most or self._n_of[client] >= self._per_client:
            raise RefusedError(503, "too many such requests at once; ask again")
        self._n_of[client] += 1
        try:
            yield
        finally:
            self._n_of[client] -= 1
            if not self._n_of[client]:
                del self._n_of[client]


async def whole_body(receive: Receive, length: int, *, within_s: float) -> bytes:
    """A body of `length` bytes. Raises RefusedError, GoneError."""
    body = bytearray()
    try:
        async with asyncio.timeout(within_s):
            while len(body) < length:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise GoneError("the client has left")
                body += message.get("body", b"")
    except TimeoutError:
        raise RefusedError(408, f"the body did not come within {within_s:.0f} s") from None
    return bytes(body)


class Front:
    """The ASGI application: answers the two routes itself, and hands other requests to `app`."""

    def __init__(self, service: Service, app: App, is_ours: Callable[[bytes], bool]) -> None:
        """`is_ours`: whether a Host header means this service."""
        self._service, self._app, self._is_ours = service, app, is_ours
        self.n_ranges = self.n_datasets = self.n_unchanged = 0
        self.others: Counter[tuple[str, int]] = Counter()
        self._lanes = {
            # Ranking is work for a thread, and two would only share one interpreter.
            "score": Lane(at_once=1, most=32, per_client=8),
            # A page waits for the tables; heartbeats must not wait behind it.
            "operator": Lane(at_once=8, most=16, per_client=8),
            # The files of the docs wait for slow readers.
            "docs": Lane(at_once=8, most=16, per_client=8),
        }
        self._rest = Lane(at_once=8, most=256, per_client=64)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
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

        async def send_counted(message: Any) -> None:
            if message["type"] == "http.response.start":
                self.others[route, message["status"]] += 1
                message["headers"] = [*message["headers"], *_SAFE]
            await send(message)

        try:
            await self._bounded(route, scope, receive, send_counted)
        except GoneError:
            return
        except RefusedError as error:
            again = [_RETRY_AFTER] if error.status == 503 else []
            answer = _refusal(error.status, str(error), *again)
            await send_counted(answer.start)
            await send_counted(answer.body)

    async def _bounded(self, route: str, scope: Scope, receive: Receive, send: Send) -> None:
        lane, client = self._lanes.get(route, self._rest), client_of(scope["client"])
        length = _body_length(
            dict(scope["headers"]), MAX_BODY_BYTES if route == "score" else SMALL_BODY_BYTES
        )
        # A long body takes a place while it comes, so the sum is bounded; a slow heartbeat takes nobody's.
        body = b"" if route == "score" else await whole_body(receive, length, within_s=BODY_S)
        messages: list[Any] = []

        async def hold_back(message: Any) -> None:
            messages.append(message)

        with lane.place(client):
            if route == "score":
                body = await whole_body(receive, length, within_s=BODY_S)
            async with lane.turn:
                await self._app(scope, _replayed(body, receive), send if route == "docs" else hold_back)
        # Neither place nor turn is held for a client that does not read.
        for message in messages:
            await send(message)


def _replayed(body: bytes, receive: Receive) -> Receive:
    """A `receive` that gives all of `body` at once."""
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def replayed() -> MutableMapping[str, Any]:
        return messages.pop() if messages else await receive()

    return replayed


def _body_length(headers: Mapping[bytes, bytes], most_bytes: int) -> int:
    """The Content-Length, which a body must have, so that no client fills the memory. Raises RefusedError."""
    length = headers.get(b"content-length", b"0")
    if b"transfer-encoding" in headers or not length.isdigit():
        raise RefusedError(411, "say Content-Length")
    if len(length) > 7 or int(length) > most_bytes:
        raise RefusedError(413, f"the body is too long; at most {most_bytes} bytes")
    return int(length)


def _refusal(status: int, text: str, *more: tuple[bytes, bytes]) -> PreparedAnswer:
    return json_answer({"error": text}, max_age_s=0, status=status, more=[*more, _CLOSE])


_NOT_US = _refusal(421, "this service has another name; who should use this one adds it to [serve] hosts")


class ServiceMetrics:
    """A Prometheus collector over the service, its keeper, its front and its gate."""

    def __init__(self, service: Service, keeper: Synchroniser, front: Front, gate: Gate) -> None:
        self._service, self._keeper, self._front, self._gate = service, keeper, front, gate

    def collect(self) -> Iterator[Metric]:
        yield self._requests()
        yield from self._servers()
        snapshot = self._service.snapshot
        for name, text, value in (
            ("datasets", "datasets with a placement", snapshot.dataset_keys.size),
            ("items", "files and datasets with known fractions", snapshot.item_keys.size),
            ("reassigned", "datasets placed by hand", len(self._service.reassigned)),
            ("unplanned_servers", "servers that no configuration names", len(self._service.unplanned())),
            ("connections", "connections held", len(self._gate)),
            ("silent_caches", "planned caches that are not alive", len(self._service.silent())),
            ("database_up", "1 if the last exchange with the database worked", self._keeper.fault is None),
            ("database_synced_seconds", "when it last did, since 1970", self._keeper.synced_at_s or 0.0),
        ):
            yield GaugeMetricFamily(f"cachecast_placement_{name}", text, value=float(value))
        if snapshot.as_of:
            yield GaugeMetricFamily(
                "cachecast_placement_as_of_seconds",
                "moment of the placements, since 1970; missing before the first refresh",
                value=float(parse_as_of(snapshot.as_of)),
            )
        yield _counters("database_faults", "exchanges that failed", "error", self._keeper.faults)
        yield _counters("connections_closed", "connections closed at a limit", "reason", self._gate.closed)
        yield CounterMetricFamily(
            "cachecast_placement_unchanged", "replies 304 of the hot routes", value=self._front.n_unchanged
        )

    def _requests(self) -> Metric:
        requests = CounterMetricFamily(
            "cachecast_placement_requests",
            "requests by route; the status of the two hot routes is not kept apart",
            labels=["route", "status"],
        )
        requests.add_metric(["serverRanges", ""], self._front.n_ranges)
        requests.add_metric(["ds", ""], self._front.n_datasets)
        for (route, status), n in sorted(self._front.others.items()):
            requests.add_metric([route, str(status)], n)
        return requests

    def _servers(self) -> Iterator[Metric]:
        known = GaugeMetricFamily("cachecast_placement_server_alive", "1: alive", labels=["site", "id"])
        last_seen = GaugeMetricFamily(
            "cachecast_placement_server_seen_seconds", "last heartbeat, since 1970", labels=["site", "id"]
        )
        for server, is_alive in self._service.servers():
            known.add_metric([server.site, server.id], float(is_alive))
            last_seen.add_metric([server.site, server.id], server.seen_at_s)
        yield from (known, last_seen)


def _counters(name: str, text: str, label: str, counts: Counter[str]) -> Metric:
    family = CounterMetricFamily(f"cachecast_placement_{name}", text, labels=[label])
    for key, n in sorted(counts.items()):
        family.add_metric([key], n)
    return family
