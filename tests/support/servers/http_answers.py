"""HTTP servers of a test's own, in threads of its process, that log nothing."""

import contextlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


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
def answering(answers: type[Answers]) -> Iterator[str]:
    """The URL at which `answers` are given until the block ends."""
    with _Server(("127.0.0.1", 0), answers) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
