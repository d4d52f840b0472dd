"""HTTP servers of a test's own, in threads of its process, that log nothing."""

import contextlib
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class Answers(BaseHTTPRequestHandler):
    """What a test derives its answers from."""

    def say(self, status: int, body: bytes = b"", **headers: str) -> None:
        """Answer with `body`; in the names of headers `_` stands for `-`."""
        self.send_response(status)
        for name, value in (headers | {"content_length": str(len(body))}).items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_words: object) -> None:
        """Nothing: the test speaks."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Who gave up waiting is no fault of the server's."""


@contextlib.contextmanager
def answering(
    answers: type[Answers], *, pem: Path | None = None, shown_by_clients: bool = True
) -> Iterator[str]:
    """The URL at which `answers` are given until the block ends.

    `pem`: a certificate of localhost with its key, for TLS with clients that have to show the same.
    """
    with _Server(("127.0.0.1", 0), answers) as server:
        if pem is not None:
            tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=pem)
            tls.verify_mode = ssl.CERT_REQUIRED if shown_by_clients else ssl.CERT_NONE
            tls.load_cert_chain(pem)
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            host = "http://127.0.0.1" if pem is None else "https://localhost"
            yield f"{host}:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
