"""The redirector of several XCaches: which of them serve, which hold a file.

Seen on `cmsd` 5.5.3: `locate *` lists all nodes, a lost one as pending until `cms.delay drop` is over. It
remembers the locations of a file, also that there are none: only a refresh asks the nodes again, and takes
`cms.delay lookup`. Locations are addresses; nothing is ever sent to one that is not configured.
"""

import logging
import re
import socket
from collections.abc import Iterable, Mapping

from features.common.errors import ConfigError, TargetUnavailable, bounded, printable
from features.common.hosts import plain_address
from prefetch.lfn import checked_lfn
from prefetch.xcache.session import ThreadConnections, locations

ALL_NODES = "*"
_ADDRESS = re.compile(r"\[?([0-9A-Za-z:._-]{1,255}?)\]?:([0-9]{1,5})")
_MOST_NODES = 1000

_log = logging.getLogger(__name__)

_Address = tuple[str, int]


class Redirector:
    """The redirector at `url`, and its `nodes`, addresses by name; those `drained` never count."""

    def __init__(
        self, url: str, nodes: Mapping[str, Iterable[str]], drained: frozenset[str] = frozenset()
    ) -> None:
        self._url, self._drained = url, drained
        self._connections = ThreadConnections(url)
        self._names = {at: name for name, of in nodes.items() for address in of for at in _resolved(address)}
        self._strangers = set[str]()

    def serving(self) -> frozenset[str]:
        """The nodes that it sends readers to now. Raises TargetUnavailable if none of them is configured."""
        online = locations(self._connections.url(), ALL_NODES)
        nodes = self._known(online)
        if not nodes:
            named = ", ".join(online[:3]) or "none"
            raise TargetUnavailable(
                f"redirector {self._url} names no configured node (it names {bounded(named, 200)}): connect "
                "their cmsd to it, or set their `address` to what it names"
            )
        return nodes - self._drained

    def holders(self, name: str) -> frozenset[str]:
        """The nodes that hold file `name`, asked for now. Raises PushRejected, TargetUnavailable."""
        return self._known(locations(self._connections.url(), checked_lfn(name))) - self._drained

    def _known(self, addresses: list[str]) -> frozenset[str]:
        """The configured nodes at `addresses`; others are named in the log, once each."""
        names = set[str]()
        for address in addresses[:_MOST_NODES]:
            name = self._names.get(_parsed(address))
            if name is not None:
                names.add(name)
            elif address not in self._strangers and len(self._strangers) < _MOST_NODES:
                self._strangers.add(address)
                stranger = printable(bounded(address, 100))
                _log.warning("redirector %s names %s, no configured cache", self._url, stranger)
        return frozenset(names)


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
    except (OSError, UnicodeError):
        answers = []
    return [(host, port), *((plain_address(str(answer[4][0])), port) for answer in answers)]
