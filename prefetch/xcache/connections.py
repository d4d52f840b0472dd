"""Connections to a cache: one for each thread.

Seen on XRootD 5.5.3: a server works off the requests of one connection in turn, and an open waits for the
origin. Where all files share a connection, as the client library has it by itself, one file whose origin is
unavailable stops all the others, and those that are in the cache too.
"""

from __future__ import annotations

import itertools
import threading

_MOST = 256
# Of the process: connections that one target left behind must not come to the next.
_numbers = itertools.count()


class ThreadConnections:
    """URLs of the cache at `root://host:port` that differ in a user's name, which no server looks at.

    The client library keeps a connection for each user and host. `spare` is used by nobody's files.
    """

    def __init__(self, url: str) -> None:
        self._scheme, _, self._host = url.partition("://")
        self._own = threading.local()
        self.spare = self._of("ask")

    def url(self) -> str:
        """The cache's URL on the connection of this thread."""
        if not hasattr(self._own, "url"):
            self.leave()
        found: str = self._own.url
        return found

    def leave(self) -> None:
        """Use another connection from now on: a request may hold this one for long."""
        self._own.url = self._of(f"cc{next(_numbers) % _MOST}")

    def _of(self, user: str) -> str:
        return f"{self._scheme}://{user}@{self._host}"
