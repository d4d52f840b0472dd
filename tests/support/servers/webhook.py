"""A webhook on this machine, which keeps what it is told."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import TracebackType
from typing import Any


class Webhook:
    """Answers `status` at `url` within a `with`; `told`: the messages in the order of their arrival."""

    def __init__(self, path: str = "secret-path") -> None:
        self.told: list[dict[str, Any]] = []
        self.status = 204
        webhook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                webhook.told.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
                self.send_response(webhook.status)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self.url = f"http://127.0.0.1:{self._server.server_port}/{path}"

    def __enter__(self) -> Webhook:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
