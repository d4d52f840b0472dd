"""A door before a real server, of any protocol, through which answers come as slowly as told."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_TICK_S = 0.1
_PIECE_BYTES = 65536


class TricklingProxy:
    """Listens on `port`, and passes to `upstream`. `bytes_per_s`: of each connection; None: any."""

    def __init__(self, listener: socket.socket) -> None:
        self.port: int = listener.getsockname()[1]
        self.upstream = 0
        self.bytes_per_s: int | None = None
        self._listener = listener
        self._open = list[socket.socket]()

    def serve(self) -> None:
        """Take connections until the listener is closed."""
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self.upstream))
                self._open += [client, server]
                for run, ends in ((self._ask, (client, server)), (self._answer, (server, client))):
                    threading.Thread(target=run, args=ends, daemon=True).start()

    def close(self) -> None:
        """End all connections."""
        for one in (self._listener, *self._open):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _ask(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while piece := client.recv(_PIECE_BYTES):
                server.sendall(piece)
        _end(server)

    def _answer(self, server: socket.socket, client: socket.socket) -> None:
        with suppress(OSError):
            while piece := server.recv(_PIECE_BYTES):
                while piece:
                    piece = piece[self._passed(client, piece) :]
        _end(client)

    def _passed(self, client: socket.socket, piece: bytes) -> int:
        """Send what may go now; how many bytes."""
        if (rate := self.bytes_per_s) is None:
            client.sendall(piece)
            return len(piece)
        n_bytes = max(1, int(rate * _TICK_S))
        client.sendall(piece[:n_bytes])
        time.sleep(min(n_bytes, len(piece)) / rate)
        return n_bytes


def _end(one: socket.socket) -> None:
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)


@contextmanager
def door() -> Iterator[TricklingProxy]:
    """An open door; tell it its `upstream` before it is used. It ends with the block."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        proxy = TricklingProxy(listener)
        thread = threading.Thread(target=proxy.serve, daemon=True)
        thread.start()
        try:
            yield proxy
        finally:
            proxy.close()
            thread.join()
