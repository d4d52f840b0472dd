"""Hosts: which stay on this machine, where secrets need no TLS; and by which names a service is called."""

from __future__ import annotations

import functools
import ipaddress
import re
from collections.abc import Callable, Iterable

_HOST = re.compile(r"(?:\[(?P<six>[0-9a-f:.]*:[0-9a-f:.]*)\]|(?P<name>[^\[\]:]*))(?::[0-9]*)?")


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
        found = _HOST.fullmatch(header.decode("latin-1").lower())
        if found is None:
            return False
        if found["six"] is not None:
            return _is_address(found["six"])
        host = found["name"].removesuffix(".")
        return host in known or _is_address(host)

    return is_ours


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
