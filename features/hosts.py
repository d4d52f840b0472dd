"""Hosts: which stay on this machine, where secrets need no TLS; and by which names a service is called."""

from __future__ import annotations

import functools
import ipaddress
from collections.abc import Callable, Iterable


def is_loopback(host: str) -> bool:
    """Whether what is sent to `host` stays on this machine."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def called_by(names: Iterable[str]) -> Callable[[bytes], bool]:
    """Whether a request's Host header is one of `names`, localhost, or an address.

    A stranger's page can make a browser call this machine by a name of its own, never by an address.
    """
    known = {"localhost", *(name.lower() for name in names)}

    @functools.lru_cache(maxsize=256)
    def is_ours(header: bytes) -> bool:
        host = header.decode("latin-1").lower()
        if host.startswith("["):
            return _is_address(host[1:].partition("]")[0])
        host = host.partition(":")[0].removesuffix(".")
        return host in known or _is_address(host)

    return is_ours


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
