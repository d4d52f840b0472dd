"""Checks of names that come from outside, and of caches that call, before they become keys or log lines."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Mapping
from typing import NamedTuple

from features.common.errors import InputError
from features.common.names import UNFIT

MAX_NAME_BYTES = 1024
OTHER = "other"
"""The site of datasets that are placed nowhere; Rucio and PanDA know the word."""

_UNFIT = re.compile(UNFIT)
_SITE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_HOST = r"(?:[A-Za-z0-9](?:[A-Za-z0-9._-]{0,252})|\[[0-9A-Fa-f:.]{2,45}\])"
_NUMERIC = re.compile(r"(?:0x[0-9a-fA-F]*|[0-9]+)(?:\.(?:0x[0-9a-fA-F]*|[0-9]+)){0,3}\.?")
_ADDRESS = re.compile(rf"(?:x?roots?://)?({_HOST}):([0-9]{{1,5}})/?")


def checked_name(text: str) -> str:
    """A file or dataset name, with or without scope. Raises InputError."""
    if not text or _too_long(text) or _UNFIT.search(text):
        raise InputError(f"not a name: {text[:100]!r}; at most {MAX_NAME_BYTES} bytes, no control characters")
    return text


def checked_site(text: str) -> str:
    """The name of a site, a client or a server. Raises InputError."""
    if not _SITE.fullmatch(text):
        raise InputError(f"not a site: {text[:100]!r}; letters, digits, '.', '_' and '-', at most 64")
    return text


def checked_address(text: str) -> str:
    """`host:port`, the form Rucio prefixes, of that or of `root://host:port`. Raises InputError."""
    match = _ADDRESS.fullmatch(text)
    if match is None or not 0 < int(match[2]) < 2**16:
        raise InputError(f"not an address: {text[:100]!r}; write for example xc1.example.org:1094")
    return f"{match[1]}:{int(match[2])}"


def host_and_port(address: str) -> tuple[str, int]:
    """A checked address by which two spellings of one name are equal."""
    host, _, port = address.rpartition(":")
    return host.lower().removesuffix("."), int(port)


def dataset_of(did: str) -> str:
    """The did under which a dataset is placed: a CMS block (`…#uuid`) goes with its dataset."""
    return did.partition("#")[0]


def _too_long(text: str) -> bool:
    return len(text) > MAX_NAME_BYTES or len(text.encode("utf-8", "surrogatepass")) > MAX_NAME_BYTES


class Member(NamedTuple):
    """A configured cache: what its heartbeats stand for, whatever they say. `size_bytes`: its capacity.

    `is_drained`: it serves nobody, alive or not.
    """

    site: str
    address: str
    size_bytes: int
    is_drained: bool = False


Members = Mapping[str, Member]
_MOST_BYTES = 2**62


def joining(site: str, *, at: str | None, address: str | None, size: object) -> Member:
    """What the heartbeat of a node says that is not configured, by the token of `site`. Raises InputError."""
    if at not in (None, site):
        raise InputError(f"this is the token of federation {site}, and the heartbeat names {at}")
    if address is None or not isinstance(size, int) or size is True or not 0 < size < _MOST_BYTES:
        raise InputError("a node that is not configured gives its address, and its size in bytes")
    if _is_of_one_machine(host_and_port(checked_address(address))[0]):
        raise InputError(f"jobs would not come to {address}: it is another machine on each of theirs")
    return Member(site, checked_address(address), size)


def _is_of_one_machine(host: str) -> bool:
    """Whether each machine takes `host` for itself, or for what only it can reach."""
    try:
        # Resolvers also read 127.1, 0 and 0x7f000001 as addresses.
        ip = ipaddress.ip_address(socket.inet_aton(host) if _NUMERIC.fullmatch(host) else host.strip("[]"))
    except (OSError, ValueError):
        return host == "localhost" or host.endswith(".localhost") or _NUMERIC.fullmatch(host) is not None
    ip = getattr(ip, "ipv4_mapped", None) or ip
    return ip.is_loopback or ip.is_link_local or ip.is_unspecified or ip.is_multicast


def member(members: Members, cache: str, *, site: str | None, address: str | None) -> Member:
    """The configuration of `cache`; a heartbeat's `site` and `address` must agree. Raises InputError."""
    known = members.get(cache)
    if known is None:
        raise InputError(
            f"no cache server is called {cache!r} here; add an XCache of this name to the settings, restart"
        )
    for name, said, meant in (("site", site, known.site), ("address", address, known.address)):
        if said is not None and said != meant:
            raise InputError(f"{name} of {cache} is {meant} by configuration, and {said} by its heartbeat")
    return known
