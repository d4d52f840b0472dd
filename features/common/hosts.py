"""Hosts: which are this machine, by which names a service is called, and which patterns an origin fits."""

import functools
import ipaddress
import re
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from features.common.arrays import IntArray

_HOST = re.compile(r"(?:\[(?P<six>[0-9a-f:.]*)\]|(?P<name>[^\[\]:]*))(?::[0-9]*)?")


def is_loopback(host: str) -> bool:
    """Whether what is sent to `host` stays on this machine, so that secrets need no TLS."""
    ip = _ip(host)
    return host == "localhost" or (ip is not None and ip.is_loopback)


def address_and_port(sender: str) -> tuple[str, str]:
    """The address (or name) of a sender in its one form, and its port, empty if it is not given.

    `192.0.2.7:40000`, `[2001:db8::1]:40000`, `2001:db8::1:40000`, or an address alone. What is an address as
    a whole has no port; an IPv4 address written as IPv6 is the former.
    """
    plain = sender.strip().lower()
    before, _, port = plain.rpartition(":")
    for host, of_host in ((plain, ""), (before, port)):
        if _ip(bare := host.removeprefix("[").removesuffix("]")):
            return plain_address(bare), of_host
    return (before, port) if port.isdigit() else (plain, "")


def plain_address(host: str) -> str:
    """`host` in its one form: an IPv4 address also where it is written as IPv6; a name as it is."""
    if (ip := _ip(host)) is None:
        return host
    # XRootD writes 127.0.0.1 as ::127.0.0.1 or ::ffff:127.0.0.1.
    is_four = ip.version == 6 and int(ip) >> 32 in (0, 0xFFFF) and int(ip) > 1
    return str(ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF) if is_four else ip)


def names_a_server(host: str) -> bool:
    """Whether `host` tells one server from others: a loopback address, or none, does not."""
    return host not in ("", "0.0.0.0", "::") and not is_loopback(host)  # noqa: S104  nothing listens there


def called_by(names: Iterable[str]) -> Callable[[bytes], bool]:
    """A check of Host headers: it returns whether a header is one of `names`, localhost, or an IP address.

    A stranger's page can make a browser call this machine by a name of its own, but not by an address.
    """
    known = {"localhost", *(name.lower() for name in names)}

    @functools.lru_cache(maxsize=256)
    def is_ours(header: bytes) -> bool:
        match = _HOST.fullmatch(header.decode("latin-1").lower())
        if match is None:
            return False
        if match["six"] is not None:
            return ":" in match["six"] and _ip(match["six"]) is not None
        host = match["name"].removesuffix(".")
        return host in known or _ip(host) is not None

    return is_ours


def _ip(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


_AROUND_HOST = r"(?s)^(?:[A-Za-z0-9+.-]+://)?(?:[^@/]*@)?(?:\[([^\]/]*)\]|([^:/]*)).*$"


def hosts_of(origins: pa.StringArray) -> pa.StringArray:
    """The host of each origin (host, host:port, URL or RSE) in lower case; an RSE counts as a host.

    Of an IPv6 address in brackets it is the address.
    """
    return pc.utf8_lower(pc.replace_substring_regex(origins, _AROUND_HOST, r"\1\2"))


def stated(origins: pa.StringArray) -> pa.StringArray:
    """`origins` without spaces around them; null for what is blank, and names no place."""
    plain = pc.utf8_trim_whitespace(origins)
    return pc.if_else(pc.equal(plain, ""), pa.scalar(None, pa.string()), plain)


def first_fit(origins: pa.StringArray, groups: Sequence[Sequence[str]]) -> IntArray:
    """Index of the first of `groups` (host patterns as `*.fr`, in any case) that fits; their number: none."""
    coded = origins.dictionary_encode()  # they repeat, and the host of each is looked for
    hosts = hosts_of(coded.dictionary).dictionary_encode()
    of_host = np.array([_first(host, groups) for host in hosts.dictionary.to_pylist()], np.int64)
    of_origin = np.append(of_host[hosts.indices.to_numpy()], len(groups))
    return np.asarray(of_origin[coded.indices.fill_null(-1).to_numpy()], np.int64)


def _first(host: str, groups: Sequence[Sequence[str]]) -> int:
    fits = (
        code
        for code, hosts in enumerate(groups)
        if any(fnmatchcase(host, pattern.lower()) for pattern in hosts)
    )
    return next(fits, len(groups))
