"""A door before a real server, of any protocol, through which answers come as slowly, or as late, as told."""

import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

_TICK_S = 0.1
_PIECE_BYTES = 65536


class TricklingProxy:
    """Listens on `port`, and passes to `upstream`. `bytes_per_s`: of each connection; None: any.

    `delay_s`: from one end to the other; a connection then also takes a round trip to be made.
    `window_bytes`: of a connection and direction, under way or not yet acknowledged at once, as TCP's; None:
    any number.
    """

    def __init__(self, listener: socket.socket) -> None:
        self.port: int = listener.getsockname()[1]
        self.upstream = 0
        self.bytes_per_s: int | None = None
        self.delay_s = 0.0
        self.window_bytes: int | None = None
        self._listener = listener
        self._open = set[socket.socket]()

    def serve(self) -> None:
        """Take connections until the listener is closed."""
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self.upstream))
                threading.Thread(target=self._connect, args=(client, server), daemon=True).start()

    def close(self) -> None:
        """End all connections."""
        for open_socket in (self._listener, *self._open.copy()):
            with suppress(OSError):
                open_socket.shutdown(socket.SHUT_RDWR)
            open_socket.close()

    def _connect(self, client: socket.socket, server: socket.socket) -> None:
        """Carry both ways until both have ended."""
        ends = {client, server}
        self._open |= ends
        with suppress(OSError):
            for end in ends:
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        asking = threading.Thread(target=self._carry, args=(_give_all, client, server), daemon=True)
        asking.start()
        self._carry(self._give, server, client)
        asking.join()
        for end in ends:
            end.close()
        self._open -= ends

    def _carry(
        self, give: Callable[[socket.socket, bytes], int], source: socket.socket, sink: socket.socket
    ) -> None:
        """Pass what `source` sends, each piece after its delay, until it ends."""
        time.sleep(2 * self.delay_s)
        under_way, acknowledged = deque[tuple[float, bytes]](), deque[tuple[float, int]]()
        n_bytes, is_open = 0, True
        with suppress(OSError, ValueError):  # a socket that was closed
            while is_open or under_way:
                now = time.monotonic()
                while acknowledged and acknowledged[0][0] <= now:
                    n_bytes -= acknowledged.popleft()[1]
                if under_way and under_way[0][0] <= now:
                    piece = under_way.popleft()[1]
                    acknowledged.append((now + self.delay_s, len(piece)))
                    while piece:
                        piece = piece[give(sink, piece) :]
                    continue
                has_room = self.window_bytes is None or n_bytes < self.window_bytes
                next_s = [some[0][0] for some in (under_way, acknowledged) if some]
                wait_s = max(0.0, min(next_s) - now) if next_s else None
                if select.select([source] if is_open and has_room else [], [], [], wait_s)[0]:
                    piece = source.recv(_PIECE_BYTES)
                    is_open, n_bytes = bool(piece), n_bytes + len(piece)
                    if piece:
                        under_way.append((time.monotonic() + self.delay_s, piece))
        with suppress(OSError):
            sink.shutdown(socket.SHUT_RDWR)

    def _give(self, client: socket.socket, piece: bytes) -> int:
        """Send what may go now; how many bytes."""
        if (rate := self.bytes_per_s) is None:
            return _give_all(client, piece)
        n_bytes = max(1, int(rate * _TICK_S))
        client.sendall(piece[:n_bytes])
        time.sleep(min(n_bytes, len(piece)) / rate)
        return n_bytes


def _give_all(sink: socket.socket, piece: bytes) -> int:
    sink.sendall(piece)
    return len(piece)


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
