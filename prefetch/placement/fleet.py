"""The servers that caches' heartbeats report: who is alive, and which names each holds.

The servers of a site's layout and their capacities come from the planner's configuration (`planned`), so that
both know the same owner of a file; heartbeats say who is alive. At a site that nobody plans for, heartbeats
alone count: a server joins with its first one, and leaves when it was silent for `forget_s`. While a server
is silent for `liveness_s` or more, the others stand in for it.
"""

import dataclasses
from collections.abc import Iterable, Mapping

from replay.ranges import SPACE, Layout, covered, layout_of


@dataclasses.dataclass(frozen=True)
class CacheServer:
    """One cache server. `size`: its capacity, in a unit of its site; `seen_at_s`: its last heartbeat."""

    site: str
    id: str
    address: str
    size: float
    seen_at_s: float

    @property
    def key(self) -> tuple[str, str]:
        return self.site, self.id


@dataclasses.dataclass(frozen=True)
class Pending:
    """What the service has to store, by site and id; `after`: the number of the refresh it has."""

    heard: Mapping[tuple[str, str], CacheServer]
    dropped: Mapping[tuple[str, str], CacheServer]
    after: int


@dataclasses.dataclass(frozen=True)
class Refresh:
    """A refresh as its job wrote it: the snapshot's bytes."""

    number: int
    snapshot: bytes


@dataclasses.dataclass(frozen=True)
class Stored:
    """The content of the database; `refresh`: the last, None if it is known or there is none."""

    servers: tuple[CacheServer, ...]
    serves: Mapping[str, str]
    reassigned: Mapping[str, tuple[str, ...]]
    refresh: Refresh | None


class Fleet:
    """The servers of all sites. Not thread-safe: one thread changes and reads it."""

    def __init__(self, *, liveness_s: float, forget_s: float) -> None:
        self._liveness_s, self._forget_s = liveness_s, forget_s
        self._servers: dict[tuple[str, str], CacheServer] = {}
        self._alive: dict[str, dict[str, CacheServer]] = {}
        self.planned: Mapping[str, Mapping[str, float]] = {}
        self._layouts: dict[str, Layout] = {}
        self._ranges: dict[str, dict[str, list[list[object]]]] = {}

    def known(self) -> list[CacheServer]:
        return list(self._servers.values())

    def alive(self, site: str) -> Mapping[str, CacheServer]:
        """The live servers of `site` by id, as of the last `settle`."""
        return self._alive.get(site, {})

    def live_sites(self) -> list[str]:
        """Sites with a live server of their layout, by name."""
        return sorted(self._layouts)

    def weights(self) -> dict[str, float]:
        """Sites with a live server, and the sizes of all their servers together."""
        return {site: sum(self._sizes(site).values()) for site in self.live_sites()}

    def serves(self, server: CacheServer) -> bool:
        """Whether `server` belongs to its site's layout; one that no plan names does not."""
        return server.site not in self.planned or server.id in self.planned[server.site]

    def silent(self) -> list[tuple[str, str]]:
        """Site and name of each planned server that is not alive: others stand in for it."""
        return sorted(
            (site, name)
            for site, sizes in self.planned.items()
            for name in sizes.keys() - self.alive(site).keys()
        )

    def hear(self, server: CacheServer) -> bool:
        """Record a heartbeat, unless a later one is known; return whether servers or sizes changed."""
        before = self._servers.get(server.key)
        if before is not None and before.seen_at_s > server.seen_at_s:
            return False
        self._servers[server.key] = server
        joined = before is None or (before.address, before.size) != (server.address, server.size)
        return joined or server.id not in self.alive(server.site)

    def drop(self, site: str, id: str) -> CacheServer | None:
        return self._servers.pop((site, id), None)

    def restore(self, servers: Iterable[CacheServer], *, now_s: float) -> None:
        """Take over stored servers: those alive then have `liveness_s` from now to send a heartbeat."""
        stored = list(servers)
        stopped_s = max((server.seen_at_s for server in stored), default=0.0)
        for server in stored:
            was_alive = server.seen_at_s > stopped_s - self._liveness_s
            self.hear(dataclasses.replace(server, seen_at_s=now_s) if was_alive else server)

    def settle(self, now_s: float) -> bool:
        """Update who is alive at `now_s`, and the layouts; return whether replies change."""
        for key, server in list(self._servers.items()):
            if server.seen_at_s <= now_s - self._forget_s:
                del self._servers[key]
            elif server.seen_at_s > now_s:  # the clock was ahead: else it would be alive until then
                self._servers[key] = dataclasses.replace(server, seen_at_s=now_s)
        self._alive = self._alive_at(now_s)
        self._layouts = {}
        for site, live in self._alive.items():
            sizes = self._sizes(site)
            layout = covered(layout_of(sizes), sizes, live.keys())
            if layout.ranges:
                self._layouts[site] = layout
        before, self._ranges = self._ranges, self._wired()
        return self._ranges != before

    def server_of(self, site: str, name: str) -> CacheServer | None:
        """The live server of `site` that holds file `name`; None if there is none."""
        layout = self._layouts.get(site)
        return self._alive[site][layout.owners_of([name])[0]] if layout else None

    def ranges(self) -> dict[str, dict[str, list[list[object]]]]:
        return self._ranges

    def _wired(self) -> dict[str, dict[str, list[list[object]]]]:
        """The form that Rucio reads, by site."""
        wired: dict[str, dict[str, list[list[object]]]] = {}
        for site, layout in sorted(self._layouts.items()):
            sizes, alive = self._sizes(site), self._alive[site]
            order = sorted({part.owner for part in layout.ranges})
            index = {id: i for i, id in enumerate(order)}
            wired[site] = {
                "servers": [[alive[id].address, _plain(sizes[id])] for id in order],
                "ranges": [[index[part.owner], part.upper / SPACE] for part in layout.ranges],
            }
        return wired

    def _alive_at(self, now_s: float) -> dict[str, dict[str, CacheServer]]:
        alive: dict[str, dict[str, CacheServer]] = {}
        for server in sorted(self._servers.values(), key=lambda server: server.key):
            if now_s - server.seen_at_s < self._liveness_s:
                alive.setdefault(server.site, {})[server.id] = server
        return alive

    def _sizes(self, site: str) -> Mapping[str, float]:
        heard = {server.id: server.size for server in self._servers.values() if server.site == site}
        return self.planned.get(site, heard)


def _plain(size: float) -> float:
    return int(size) if float(size).is_integer() else size
