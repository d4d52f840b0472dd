"""Which connections are held, and which are closed so that a new one always gets in.

Rucio asks at once on a connection that it opens; who floods the service opens connections and is slow. So at
a limit it is the connection that was longest without an answer that is closed, never the new one.
"""

from __future__ import annotations

import asyncio
import ipaddress
import time
from collections import Counter
from collections.abc import Callable

HEAD_S = 10.0
"""For a TLS handshake and a request's headers, from the connection or from the last answer."""
ANSWER_S = 60.0
"""For a request's body, and its answer's way to the client, from the end of the headers."""
_SWEEP_S = 0.5


class Held:
    """A connection that counts: whose it is, and until when it must have got on."""

    __slots__ = ("client", "deadline_s", "transport")

    def __init__(self, transport: asyncio.Transport, client: str, deadline_s: float) -> None:
        self.transport, self.client, self.deadline_s = transport, client, deadline_s


class Gate:
    """The connections of one service: `most` at once, of one client `per_client`.

    `closed`: connections that it closed, by reason: full, client (its limit) or slow.
    """

    def __init__(self, *, most: int, per_client: int, now_s: Callable[[], float] = time.monotonic) -> None:
        self._most, self._per_client, self._now_s = most, per_client, now_s
        self._held: dict[Held, None] = {}
        self._n_of: Counter[str] = Counter()
        self._sweeper: asyncio.TimerHandle | None = None
        self.closed: Counter[str] = Counter({"full": 0, "client": 0, "slow": 0, "head": 0})

    def __len__(self) -> int:
        return len(self._held)

    def enter(self, transport: asyncio.Transport) -> Held:
        """Count a new connection; at a limit, close the one that is longest without an answer."""
        client = client_of(transport.get_extra_info("peername"))
        if self._n_of[client] >= self._per_client:
            self.close(next(held for held in self._held if held.client == client), "client")
        elif len(self._held) >= self._most:
            self.close(next(iter(self._held)), "full")
        held = Held(transport, client, self._now_s() + HEAD_S)
        self._held[held] = None
        self._n_of[client] += 1
        if self._sweeper is None:
            self._sweeper = asyncio.get_running_loop().call_later(_SWEEP_S, self._sweep)
        return held

    def leave(self, held: Held) -> None:
        """A connection has ended; also one that was closed here."""
        if held not in self._held:
            return
        del self._held[held]
        self._n_of[held.client] -= 1
        if not self._n_of[held.client]:
            del self._n_of[held.client]

    def close(self, held: Held, reason: str) -> None:
        """End a connection at once, whatever it is still to be sent."""
        self.leave(held)
        self.closed[reason] += 1
        held.transport.abort()

    def asked(self, held: Held) -> None:
        """The headers of a request are whole."""
        held.deadline_s = self._now_s() + ANSWER_S

    def answered(self, held: Held) -> None:
        """An answer was handed to the connection: of all it is now the last to be closed."""
        held.deadline_s = self._now_s() + HEAD_S
        if held in self._held:
            del self._held[held]
            self._held[held] = None

    def _sweep(self) -> None:
        now_s = self._now_s()
        for held in [held for held in self._held if held.deadline_s <= now_s]:
            self.close(held, "slow")
        loop = asyncio.get_running_loop()
        self._sweeper = loop.call_later(_SWEEP_S, self._sweep) if self._held else None


def client_of(peer: tuple[str, int] | None) -> str:
    """What counts as one client: an IPv4 address, or the /64 of an IPv6 one, which a host may have whole."""
    host = peer[0] if peer else ""
    if ":" not in host:
        return host
    address = ipaddress.IPv6Address(host.partition("%")[0])
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(address) >> 64 << 64, 64)))
