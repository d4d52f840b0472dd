"""Ports of this machine."""

from __future__ import annotations

import contextlib
import socket


def free_ports(n_ports: int) -> list[int]:
    """So many TCP ports of loopback that nobody listens at; nothing keeps others from taking them."""
    with contextlib.ExitStack() as stack:
        bound = [stack.enter_context(socket.socket()) for _ in range(n_ports)]
        for each in bound:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in bound]
