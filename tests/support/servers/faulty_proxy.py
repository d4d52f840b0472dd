"""A proxy before a real HTTP server that spoils answers as told, as networks and front ends do."""

import http.client
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from urllib.parse import urlsplit

from http_answers import Answers, answering

Lie = Callable[[str, str], int | Iterable[bytes] | None]
_OWN_HEADERS = {"transfer-encoding", "content-length", "connection", "server", "date"}


class FaultyProxy:
    """`url` stands before the server. `faults`: what the next requests meet, then all pass.

    `pass`; a status as `503`; `cut`: half an answer; `slow`: `slow_s` of silence. `paths`: what was asked.
    `lie`: by method and path with its query, what is answered in the server's place: a status, or pieces.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.faults: deque[str] = deque()
        self.slow_s = 5.0
        self.paths: list[str] = []
        self.lie: Lie = lambda _method, _path: None


@contextmanager
def before(upstream: str) -> Iterator[FaultyProxy]:
    """A proxy before the server at `upstream`; it ends with the block."""
    host, port = urlsplit(upstream).hostname or "", urlsplit(upstream).port
    assert host

    class Handler(Answers):
        def _forward(self) -> None:
            proxy.paths.append(self.path.split("?")[0])
            fault = proxy.faults.popleft() if proxy.faults else "pass"
            length = int(self.headers.get("content-length") or 0)
            sent = self.rfile.read(length) if length else None
            if fault == "slow":
                time.sleep(proxy.slow_s)
            lie = int(fault) if fault.isdigit() else proxy.lie(self.command, self.path)
            if isinstance(lie, int):
                self.send_error(lie)
                return
            if lie is not None:
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.end_headers()
                for piece in lie:
                    self.wfile.write(piece)
                return
            with closing(http.client.HTTPConnection(host, port, timeout=60)) as connection:
                connection.request(self.command, self.path, sent, dict(self.headers.items()))
                answer = connection.getresponse()
                body = answer.read()
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in _OWN_HEADERS:
                    self.send_header(name, value)
            self.send_header("content-length", str(len(body)))
            self.send_header("connection", "close")
            self.end_headers()
            self.wfile.write(body[: len(body) // 2] if fault == "cut" else body)
            self.close_connection = True

        do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = _forward

    with answering(Handler) as url:
        proxy = FaultyProxy(url)
        yield proxy
