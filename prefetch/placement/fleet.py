"""The servers that caches' heartbeats tell of: who is alive, and which names each holds.

A server joins its site's layout with its first heartbeat and leaves it when it was not heard of for
`forget_s`. In between, while it is silent for `liveness_s` or more, the others stand in for it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from prefetch.placement.ranges import Layout, covered, owner_of, rebalanced, wire


@dataclasses.dataclass(frozen=True)
class Server:
    """One cache server. `size`: its capacity, in a unit of its site; `seen_at_s`: its last heartbeat."""

    site: str
    id: str
    address: str
    size: float
    seen_at_s: float

    @property
    def key(self) -> tuple[str, str]:
        """What tells it from others."""
        return self.site, self.id


@dataclasses.dataclass(frozen=True)
class Home:
    """A site's layout with every server alive; `version` counts what was stored, 0: never."""

    layout: Layout
    version: int = 0


class Fleet:
    """The servers of all sites. Not thread-safe: one thread changes and reads it."""

    def __init__(self, *, liveness_s: float, forget_s: float) -> None:
        self._liveness_s, self._forget_s = liveness_s, forget_s
        self._servers: dict[tuple[str, str], Server] = {}
        self._serving: dict[str, dict[str, Server]] = {}
        self.homes: dict[str, Home] = {}
        self._layouts: dict[str, Layout] = {}

    def known(self) -> list[Server]:
        """Every server not forgotten."""
        return list(self._servers.values())

    def alive(self, site: str) -> Mapping[str, Server]:
        """The live servers of `site` by id, as of the last `settle`."""
        return self._serving.get(site, {})

    def live_sites(self) -> list[str]:
        """Sites with a live server, by name."""
        return sorted(self._serving)

    def weights(self) -> dict[str, float]:
        """Sites with a live server, and the sizes of all their servers together."""
        return {site: sum(self._sizes(site).values()) for site in self.live_sites()}

    def hear(self, server: Server) -> bool:
        """Take a heartbeat, unless a later one was heard; whether servers or sizes changed by it."""
        before = self._servers.get(server.key)
        if before is not None and before.seen_at_s > server.seen_at_s:
            return False
        self._servers[server.key] = server
        joined = before is None or (before.address, before.size) != (server.address, server.size)
        return joined or server.id not in self.alive(server.site)

    def drop(self, site: str, id: str) -> Server | None:
        """Forget a server; None: it was not known."""
        return self._servers.pop((site, id), None)

    def restore(self, servers: Iterable[Server], *, now_s: float) -> None:
        """Take over what was stored: who was alive then has `liveness_s` from now to be heard."""
        stored = list(servers)
        stopped_s = max((server.seen_at_s for server in stored), default=0.0)
        for server in stored:
            was_alive = server.seen_at_s > stopped_s - self._liveness_s
            self.hear(dataclasses.replace(server, seen_at_s=now_s) if was_alive else server)

    def settle(self, now_s: float) -> bool:
        """Let the silent leave, the heard of return and layouts follow; whether replies change."""
        for key, server in list(self._servers.items()):
            if server.seen_at_s <= now_s - self._forget_s:
                del self._servers[key]
        before = (self._serving, self._layouts)
        self._serving = self._alive_at(now_s)
        sites = {server.site for server in self._servers.values()}
        for site in sites:
            home = self.homes.get(site, Home(()))
            layout = rebalanced(home.layout, self._sizes(site))
            if layout != home.layout:
                self.homes[site] = Home(layout, home.version)
        for site in self.homes.keys() - sites:
            self.homes[site] = Home((), self.homes[site].version)
        self._layouts = {
            site: covered(self.homes[site].layout, self._sizes(site), live.keys())
            for site, live in self._serving.items()
        }
        return self._told(*before) != self._told(self._serving, self._layouts)

    def server_of(self, site: str, name: str) -> Server | None:
        """The live server of `site` that holds file `name`; None if there is none."""
        layout = self._layouts.get(site)
        return self._serving[site][owner_of(layout, name)] if layout else None

    def ranges(self) -> dict[str, dict[str, list[list[object]]]]:
        """What Rucio reads at `/serverRanges`: sites with a live server."""
        return {
            site: wire(layout, {i: (s.address, _plain(s.size)) for i, s in self._serving[site].items()})
            for site, layout in sorted(self._layouts.items())
        }

    def _alive_at(self, now_s: float) -> dict[str, dict[str, Server]]:
        serving: dict[str, dict[str, Server]] = {}
        for server in sorted(self._servers.values(), key=lambda server: server.key):
            if now_s - server.seen_at_s < self._liveness_s:
                serving.setdefault(server.site, {})[server.id] = server
        return serving

    def _sizes(self, site: str) -> dict[str, float]:
        return {server.id: server.size for server in self._servers.values() if server.site == site}

    @staticmethod
    def _told(serving: Mapping[str, Mapping[str, Server]], layouts: Mapping[str, Layout]) -> object:
        return layouts, {s: {i: (v.address, v.size) for i, v in live.items()} for s, live in serving.items()}


def _plain(size: float) -> float:
    return int(size) if size.is_integer() else size
