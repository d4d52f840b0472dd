"""The redirector of several XCaches: which of them serve, which hold a file; and a node that asks it first.

Seen on `cmsd` 5.5.3: `locate *` lists all nodes, a lost one as pending until `cms.delay drop` is over. It
remembers the locations of a file, also that there are none: only a refresh asks the nodes again, and takes
`cms.delay lookup`. Locations are addresses; nothing is ever sent to one that is not configured.
"""

from __future__ import annotations

import logging
import re
import socket
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from features.common.errors import ConfigError, PushRejected, TargetUnavailable, bounded, printable
from features.common.hosts import plain_address
from prefetch.lfn import checked_lfn
from prefetch.xcache.client import XCacheTarget
from prefetch.xcache.session import Location, ThreadConnections, locations

ALL_NODES = "*"
_ADDRESS = re.compile(r"\[?([0-9A-Za-z:._-]{1,255}?)\]?:([0-9]{1,5})")
_MOST_NODES = 1000

_log = logging.getLogger(__name__)

_Address = tuple[str, int]


class Redirector:
    """The redirector at `url`, and the `nodes` behind it: their addresses, `host:port`, by name.

    What it says of `drained` ones is left out: others stand in for them.
    """

    def __init__(
        self, url: str, nodes: Mapping[str, Iterable[str]], drained: frozenset[str] = frozenset()
    ) -> None:
        self._url, self._drained = url, drained
        self._connections = ThreadConnections(url)
        self._names = {at: name for name, of in nodes.items() for one in of for at in _resolved(one)}
        self._strangers = set[str]()

    def serving(self) -> frozenset[str]:
        """The nodes that it sends readers to now.

        Raises TargetUnavailable if it does not answer, or names none of the configured nodes.
        """
        told = [one for one in locations(self._connections.url(), ALL_NODES) if one.is_online]
        found = self._known(told)
        if not found:
            seen = ", ".join(one.address for one in told[:3]) or "none"
            raise TargetUnavailable(
                f"redirector {self._url} names no configured node (it names {bounded(seen, 200)}): connect "
                "their cmsd to it, or set their `address` to what it names"
            )
        return found

    def holders(self, name: str) -> frozenset[str]:
        """The nodes that hold file `name`, asked for now. Raises PushRejected, TargetUnavailable."""
        told = locations(self._connections.url(), checked_lfn(name))
        return self._known(one for one in told if one.is_online)

    def _known(self, told: Iterable[Location]) -> frozenset[str]:
        """The configured nodes among `told`; others are named in the log, once each."""
        found = set[str]()
        for _, one in zip(range(_MOST_NODES), told, strict=False):
            name = self._names.get(_parsed(one.address))
            if name is not None:
                found.add(name)
            elif one.address not in self._strangers and len(self._strangers) < _MOST_NODES:
                self._strangers.add(one.address)
                shown = printable(bounded(one.address, 100))
                _log.warning("redirector %s names %s, no configured cache", self._url, shown)
        return frozenset(found) - self._drained


class NodeTarget(XCacheTarget):
    """One XCache behind a redirector: what another node holds it does not fetch too."""

    def __init__(
        self,
        redirector: Redirector,
        name: str,
        url: str,
        namespace: Path | None = None,
        gstream: Path | None = None,
        *,
        spaces: Sequence[Path] = (),
        hosts: Sequence[str] = (),
        walks_apart: bool = False,
    ) -> None:
        super().__init__(name, url, namespace, gstream, spaces=spaces, hosts=hosts, walks_apart=walks_apart)
        self._redirector = redirector

    def prefetch(self, name: str, *, timeout_s: float) -> int:
        """As XCacheTarget; PushRejected if only other nodes hold `name`, where its readers are sent."""
        holders = self._redirector.holders(name)
        if holders and self.name not in holders:
            raise PushRejected(f"{min(holders)} holds it, and the redirector sends its readers there")
        size = super().prefetch(name, timeout_s=timeout_s)
        # Else it remembers that no node holds the file, and lets any of them fetch it again.
        self._redirector.holders(name)
        return size


def _parsed(address: str) -> _Address:
    """Host (an IPv4 address also where it is written as IPv6) and port; ("", 0) for what is no address."""
    found = _ADDRESS.fullmatch(address)
    return ("", 0) if found is None else (plain_address(found[1].lower()), int(found[2]))


def _resolved(address: str) -> list[_Address]:
    """A configured `host:port` as the redirector may write it: by name, and by each of its addresses."""
    host, port = _parsed(address)
    if not host:
        raise ConfigError("caches", f"{address[:100]!r} is no address; write host:port")
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        found = []
    return [(host, port), *((plain_address(str(one[4][0])), port) for one in found)]
