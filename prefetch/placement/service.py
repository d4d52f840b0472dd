"""What the service knows, and its prepared answers: all in memory, so it answers without a database.

One thread, the event loop's, changes and reads it; `Synchroniser` carries changes to the tables and back.
"""

import dataclasses
import fnmatch
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from features.common.errors import InputError
from prefetch.placement import messages
from prefetch.placement.fleet import CacheServer, Fleet, Pending, Stored
from prefetch.placement.messages import Input, Member, PreparedAnswer, ScoreAsked
from prefetch.placement.score import Score, score
from prefetch.placement.snapshot import NOTHING, NOWHERE, Snapshot
from replay.ranges import key_of, scores
from replay.study.benefit import Cluster

KEPT_ANSWERS = 100_000
"""Most answers that are kept, some 20 MB; then all are dropped."""
KEPT_PATH_CHARS = 256
MOST_NODES = 250
RANGES_AGE_S, DATASET_AGE_S = 5, 60
"""How long others may keep an answer."""

Key = TypeVar("Key")


@dataclasses.dataclass(frozen=True)
class Options:
    """The settings of the service.

    `never`: patterns of dids that are placed nowhere; `members`: the caches that may send heartbeats;
    `federations`: sites whose unconfigured nodes may send them too, but by none of the names `taken`;
    `clusters`: rates for Eq. 1 by site, `cluster`: those of other sites.
    """

    liveness_s: int
    forget_s: int
    max_wait_s: int
    never: tuple[str, ...]
    members: messages.Members
    federations: frozenset[str]
    taken: frozenset[str]
    clusters: Mapping[str, Cluster]
    cluster: Cluster


class Service:
    """What the service knows and answers."""

    def __init__(self, options: Options, *, now_s: Callable[[], float]) -> None:
        self.options, self.now_s = options, now_s
        self._fleet = Fleet(liveness_s=options.liveness_s, forget_s=options.forget_s)
        self.serves: dict[str, str] = {}
        self.reassigned: dict[str, tuple[str, ...]] = {}
        self.snapshot, self._refresh = NOTHING, 0
        self._heard: dict[tuple[str, str], CacheServer] = {}
        self._dropped: dict[tuple[str, str], CacheServer] = {}
        self._is_restored = False
        self._answers: dict[str, PreparedAnswer] = {}
        self._by_sites: dict[tuple[str, ...], PreparedAnswer] = {}
        self._never = re.compile("|".join(map(fnmatch.translate, options.never)) or r"(?!)")
        self._bad_path = messages.json_answer({"error": "write /ds/N/SCOPE:NAME"}, max_age_s=0, status=400)
        self._publish()

    def dataset(self, path: str) -> PreparedAnswer:
        """The reply to `/ds/` and `path` (`N/DID`): at most N sites (0: all), best first."""
        ready = self._answers.get(path)
        if ready is None:
            ready = self._made(path)
            if ready.start["status"] == 200 and len(path) <= KEPT_PATH_CHARS:
                _remember(self._answers, path, ready)
        return ready

    def server_for(self, client: str, name: str) -> str:
        """The address of the server that holds file `name` for `client`; empty: none serves it."""
        server = self._fleet.server_of(self.serves.get(client, client), name)
        return "" if server is None else server.address

    def ranking(self) -> Callable[[ScoreAsked], Score]:
        """A function that ranks the sites alive now for a job, in any thread; see `score.score`."""
        allowed, snapshot = self.options.max_wait_s, self.snapshot
        alive = {site: frozenset(self._fleet.alive(site)) for site in self._fleet.live_sites()}
        clusters = {site: self.options.clusters.get(site, self.options.cluster) for site in alive}

        def ranked(job: ScoreAsked) -> Score:
            inputs = [file if isinstance(file, Input) else Input(did=file) for file in job.inputs]
            return score(
                snapshot,
                [file.did for file in inputs],
                [file.size_bytes for file in inputs],
                alive=alive,
                clusters=clusters,
                waited_s=job.waited_s,
                max_wait_s=allowed if job.max_wait_s is None else min(allowed, job.max_wait_s),
            )

        return ranked

    def servers(self) -> list[tuple[CacheServer, bool]]:
        known = sorted(self._fleet.known(), key=lambda server: server.key)
        return [(server, server.id in self._fleet.alive(server.site)) for server in known]

    def unplanned(self) -> list[tuple[str, str]]:
        """Site and id of servers that report from a planned site, whose configuration does not name them."""
        return sorted(server.key for server in self._fleet.known() if not self._fleet.serves(server))

    def silent(self) -> list[tuple[str, str]]:
        """Site and name of each planned server that is not alive, but for folders and those drained."""
        serving = {name for name, known in self.options.members.items() if not known.is_drained}
        return [key for key in self._fleet.silent() if key[1] not in self.options.taken - serving]

    def check_sites(self, sites: Sequence[str]) -> None:
        """Raise InputError for a site that is in neither heartbeats nor the last refresh."""
        known = {server.site for server in self._fleet.known()} | set(self.snapshot.sites) | {messages.OTHER}
        if unknown := sorted(set(sites) - known):
            raise InputError(f"there is no site {unknown[0]!r}; known are {', '.join(sorted(known))[:300]}")

    def heartbeat(self, cache: str, *, site: str | None = None, address: str | None = None) -> None:
        """Take a configured cache's heartbeat; it serves at once, unless it is drained. Raises InputError."""
        known = messages.member(self.options.members, cache, site=site, address=address)
        if known.is_drained:
            return
        self._hear(CacheServer(known.site, cache, known.address, float(known.size_bytes), self.now_s()))

    def _hear(self, server: CacheServer, *, at_once: bool = True) -> None:
        self._heard[server.key] = server
        self._dropped.pop(server.key, None)
        if self._fleet.hear(server) and at_once:
            self.tick()

    def admit(self, node: str, known: Member) -> None:
        """Take the heartbeat of a node that is not configured. Raises InputError if it takes another's place.

        At a site that no refresh names it serves at once, elsewhere after the refresh that does.
        """
        others = [other for other in self._fleet.known() if other.key != (known.site, node)]
        addresses = [
            *(other.address for other in others),
            *(other.address for other in self.options.members.values()),
        ]
        if messages.host_and_port(known.address) in map(messages.host_and_port, addresses):
            raise InputError(f"another cache has the address {known.address}")
        if sum(other.site == known.site for other in others) >= MOST_NODES:
            raise InputError(f"site {known.site} has {MOST_NODES} nodes, and no room for another")
        server = CacheServer(known.site, node, known.address, float(known.size_bytes), self.now_s())
        # What a live node says anew counts from the next tick on: a layout takes long.
        self._hear(server, at_once=node not in self._fleet.alive(known.site))

    def drop(self, site: str, id: str) -> bool:
        server = self._fleet.drop(site, id)
        if server is None:
            return False
        self._heard.pop(server.key, None)
        self._dropped[server.key] = server
        self.tick()
        return True

    def serve(self, client: str, cache_site: str | None) -> None:
        """Let a client site be served by the caches of a site; None: by its own."""
        rest = {name: site for name, site in self.serves.items() if name != client}
        self.serves = rest if cache_site is None else rest | {client: cache_site}

    def reassign(self, did: str, sites: tuple[str, ...] | None) -> None:
        """Place a dataset at sites by hand; None: by its popularity again."""
        rest = {name: placed for name, placed in self.reassigned.items() if name != did}
        self.reassigned = rest if sites is None else rest | {did: sites}
        self._answers.clear()

    def tick(self) -> None:
        if self._fleet.settle(self.now_s()):
            self._publish()

    def pending(self) -> Pending:
        """What has to be stored; it counts as stored, unless `give_back` gets it."""
        pending = Pending(self._heard, self._dropped, self._refresh)
        self._heard, self._dropped = {}, {}
        return pending

    def give_back(self, pending: Pending) -> None:
        """Keep what could not be stored for the next time."""
        self._heard = {**pending.heard, **self._heard}
        self._dropped = {k: v for k, v in pending.dropped.items() if k not in self._heard} | self._dropped

    def take(self, stored: Stored, snapshot: Snapshot | None) -> None:
        self._take_servers(stored.servers)
        self.serves = dict(stored.serves)
        if self.reassigned != stored.reassigned:
            self.reassigned = dict(stored.reassigned)
            self._answers.clear()
        if stored.refresh is not None and snapshot is not None:
            self._refresh, self.snapshot = stored.refresh.number, snapshot
            self._fleet.planned = snapshot.capacities
            self._answers.clear()
        self.tick()

    def _take_servers(self, stored: Sequence[CacheServer]) -> None:
        """Follow the stored heartbeats of configured caches and of federations; ignore all others."""
        now_s = self.now_s()
        # A heartbeat of the future was stored by another service whose clock is wrong: it would never end.
        by_now = [server for server in stored if server.seen_at_s <= now_s + self.options.liveness_s]
        believed = [known for server in by_now if (known := self._as_configured(server)) is not None]
        if not self._is_restored:
            self._is_restored = True
            self._fleet.restore(believed, now_s=now_s)
            return
        keys = {server.key for server in believed}
        for server in self._fleet.known():
            if server.key not in keys and server.key not in self._heard:
                self._fleet.drop(*server.key)
        for server in stored:
            if server.seen_at_s <= now_s - self.options.forget_s:
                self._dropped[server.key] = server
        for server in believed:
            if server.key not in self._dropped:
                self._fleet.hear(server)

    def _as_configured(self, server: CacheServer) -> CacheServer | None:
        known = self.options.members.get(server.id)
        if known is None and server.site in self.options.federations:
            return server
        if known is None or known.site != server.site or known.is_drained:
            return None
        return dataclasses.replace(server, address=known.address, size=float(known.size_bytes))

    def _publish(self) -> None:
        self.ranges = messages.json_answer(self._fleet.ranges(), max_age_s=RANGES_AGE_S)
        self._weights = self._fleet.weights()
        self._answers.clear()

    def _made(self, path: str) -> PreparedAnswer:
        n_text, _, did = path.partition("/")
        if not (did and n_text.isascii() and n_text.isdecimal() and len(n_text) <= 3):
            return self._bad_path
        try:
            sites = self._sites(messages.dataset_of(did))[: int(n_text) or None] or (messages.OTHER,)
        except InputError as error:
            return messages.json_answer({"error": str(error)}, max_age_s=0, status=400)
        ready = self._by_sites.get(sites)
        if ready is None:
            ready = messages.json_answer(sites, max_age_s=DATASET_AGE_S)
            _remember(self._by_sites, sites, ready)
        return ready

    def _sites(self, did: str) -> tuple[str, ...]:
        """Where a dataset is placed: by hand, else by the last refresh, else by hash. Raises InputError."""
        by_hand = self.reassigned.get(did)
        if by_hand is not None:
            return self._live(by_hand)
        if self._never.match(did):
            return ()
        row = self.snapshot.row(did)
        if row is None:
            return self._by_hash(messages.checked_name(did))
        if row[0] == NOWHERE:
            return ()
        return self._live(self.snapshot.sites_of(row)) or self._by_hash(did)

    def _by_hash(self, did: str) -> tuple[str, ...]:
        """By hash and size, the site of a dataset that no snapshot places, or whose sites are not alive."""
        if not self._weights:
            return ()
        names = list(self._weights)
        ranking = scores(np.array([key_of(did)], np.uint64), names, list(self._weights.values()))
        return (names[int(ranking[0].argmax())],)

    def _live(self, sites: Sequence[str]) -> tuple[str, ...]:
        return tuple(site for site in sites if site in self._weights)


def _remember(answers: dict[Key, PreparedAnswer], key: Key, ready: PreparedAnswer) -> None:
    if len(answers) >= KEPT_ANSWERS:
        answers.clear()
    answers[key] = ready
