"""Ports of this machine."""

from __future__ import annotations

import contextlib
import secrets
import socket
from typing import Final

PORTS: Final = range(15_000, 32_000)
"""Below those that Linux gives to outgoing connections, which would take one before its server starts."""


def free_ports(n_ports: int) -> list[int]:
    """So many TCP ports of loopback that nobody listens at; nothing keeps other servers from taking them."""
    with contextlib.ExitStack() as stack:
        ports: list[int] = []
        while len(ports) < n_ports:
            tried = stack.enter_context(socket.socket())
            with contextlib.suppress(OSError):  # taken
                tried.bind(("127.0.0.1", secrets.choice(PORTS)))
                ports.append(int(tried.getsockname()[1]))
        return ports
