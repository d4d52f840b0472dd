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

    `drained`: names of nodes that never count as serving or holding a file.
    """

    def __init__(
        self, url: str, nodes: Mapping[str, Iterable[str]], drained: frozenset[str] = frozenset()
    ) -> None:
        self._url, self._drained = url, drained
        self._connections = ThreadConnections(url)
        self._names = {at: name for name, of in nodes.items() for address in of for at in _resolved(address)}
        self._strangers = set[str]()

    def serving(self) -> frozenset[str]:
        """The nodes that it sends readers to now.

        Raises TargetUnavailable if it does not answer, or names none of the configured nodes.
        """
        online = [node for node in locations(self._connections.url(), ALL_NODES) if node.is_online]
        nodes = self._known(online)
        if not nodes:
            seen = ", ".join(node.address for node in online[:3]) or "none"
            raise TargetUnavailable(
                f"redirector {self._url} names no configured node (it names {bounded(seen, 200)}): connect "
                "their cmsd to it, or set their `address` to what it names"
            )
        return nodes

    def holders(self, name: str) -> frozenset[str]:
        """The nodes that hold file `name`, asked for now. Raises PushRejected, TargetUnavailable."""
        nodes = locations(self._connections.url(), checked_lfn(name))
        return self._known(node for node in nodes if node.is_online)

    def _known(self, nodes: Iterable[Location]) -> frozenset[str]:
        """The configured nodes among `nodes`; others are named in the log, once each."""
        names = set[str]()
        for _, node in zip(range(_MOST_NODES), nodes, strict=False):
            name = self._names.get(_parsed(node.address))
            if name is not None:
                names.add(name)
            elif node.address not in self._strangers and len(self._strangers) < _MOST_NODES:
                self._strangers.add(node.address)
                address = printable(bounded(node.address, 100))
                _log.warning("redirector %s names %s, no configured cache", self._url, address)
        return frozenset(names) - self._drained


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
    match = _ADDRESS.fullmatch(address)
    return ("", 0) if match is None else (plain_address(match[1].lower()), int(match[2]))


def _resolved(address: str) -> list[_Address]:
    """A configured `host:port` as the redirector may write it: by name, and by each of its addresses."""
    host, port = _parsed(address)
    if not host:
        raise ConfigError("caches", f"{address[:100]!r} is no address; write host:port")
    try:
        answers = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        answers = []
    return [(host, port), *((plain_address(str(answer[4][0])), port) for answer in answers)]
