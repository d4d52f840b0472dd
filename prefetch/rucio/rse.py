"""A cache as an RSE: set up so that it cannot be misused, checked, and its volatile replicas kept in step.

Rucio does not refuse replication rules on a volatile RSE: they would send transfers to the cache. So the RSE
is not writable, which rules respect, and not deletable, which the reaper respects (a volatile replica is
expired at once). Its protocol only reads, and is no source of third-party copies.

`ReportedReplicas` keeps, beside the push journal, what was reported of a cache and whether Rucio accepted it.
A replica is `adding` or `removing` until Rucio's own answer confirms it; then it is `there`, or its row gone.
`unknown` is a file that Rucio does not know. The broker's topic keeps nothing for an absent consumer, so what
is not confirmed is reported again.
"""

import dataclasses
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import sqlalchemy as sa

from features.common.arrays import pages
from features.common.errors import ServiceError
from prefetch.databases import Database, upsert
from prefetch.lfn import Did
from prefetch.rucio.broker import Broker
from prefetch.rucio.session import Session, did_of, metadata, replicas

State = Literal["adding", "there", "removing", "unknown"]
_PATIENCE_S = 60

_replicas = sa.Table(
    "rucio_replicas",
    sa.MetaData(),
    sa.Column("rse", sa.String(255), primary_key=True),
    sa.Column("scope", sa.String(255), primary_key=True),
    sa.Column("name", sa.String(1024), primary_key=True),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("told_at_s", sa.Double, nullable=False),
)


class ReportedReplicas:
    """What was reported, kept in the database at `url`: an SQLAlchemy URL, or the path of an SQLite file."""

    def __init__(self, url: str) -> None:
        self._database = Database(
            url, _replicas.metadata, setting="push.journal", what="push journal", patience_s=_PATIENCE_S
        )

    def close(self) -> None:
        self._database.close()

    def states(self, rse: str) -> dict[Did, str]:
        query = sa.select(_replicas.c.scope, _replicas.c.name, _replicas.c.state).where(
            _replicas.c.rse == rse
        )
        with self._database.reading() as connection:
            return {Did(row.scope, row.name): row.state for row in connection.execute(query)}

    def note(self, rse: str, dids: Iterable[Did], state: State, *, now_s: float) -> None:
        new = {"rse": rse, "state": state, "told_at_s": now_s}
        with self._database.writing() as connection:
            upsert(connection, _replicas, ({**did._asdict(), **new} for did in dids))

    def forget(self, rse: str, dids: Iterable[Did]) -> None:
        these = {name: _replicas.c[name] == sa.bindparam(f"of_{name}") for name in ("rse", "scope", "name")}
        with self._database.writing() as connection:
            for rows in pages({"of_rse": rse, "of_scope": s, "of_name": n} for s, n in dids):
                connection.execute(sa.delete(_replicas).where(*these.values()), rows)


_POLL_S = 0.5


class ReplicaChanges(NamedTuple):
    """What to report to Rucio, in order of the names; `forget`: what it never knew and the cache lost."""

    add: list[Did]
    remove: list[Did]
    forget: list[Did]


@dataclasses.dataclass(frozen=True)
class SyncSummary:
    """One cache's replicas in Rucio after a sync.

    `held`: complete files in the cache; `unnamed`: of them those whose path gives no DID. `added`, `removed`:
    confirmed by Rucio. `unknown`: files that Rucio does not know. `unconfirmed`: reported, but not yet seen
    in Rucio; the next sync reports them again.
    """

    cache: str
    rse: str
    held: int
    unnamed: int
    added: int
    removed: int
    unknown: int
    unconfirmed: int


def changes(
    held: Iterable[Did], reported: Mapping[Did, str], unreadable: Iterable[Did] = ()
) -> ReplicaChanges:
    """What to report so that Rucio has the files `held` and no others; `reported`: what was reported before.

    `unreadable` files are there, but may be incomplete: they are neither added nor withdrawn.
    """
    held_dids = set(held)
    add = {did for did in held_dids if reported.get(did) not in ("there", "unknown")}
    gone = reported.keys() - held_dids - set(unreadable)
    forget = {did for did in gone if reported[did] == "unknown"}
    return ReplicaChanges(sorted(add), sorted(gone - forget), sorted(forget))


class Sync:
    """Keeps one RSE in step with what a cache holds."""

    def __init__(self, rse: str, *, reported: ReportedReplicas, broker: Broker, session: Session) -> None:
        self._rse, self._reported, self._broker, self._session = rse, reported, broker, session

    def recheck(self, held_lately: Iterable[Did]) -> None:
        """Forget replicas that Rucio no longer has, and files that it did not know, to report them again.

        Of `held_lately` those that Rucio has were reported, also if the journal of then is lost.
        """
        known = self._reported.states(self._rse)
        there = {did for did, state in known.items() if state == "there"}
        unreported = set(held_lately) - known.keys()
        present = self._present([*there, *unreported])
        self._reported.note(self._rse, unreported & present, "there", now_s=time.time())
        unknown = (did for did, state in known.items() if state == "unknown")
        self._reported.forget(self._rse, [*(there - present), *unknown])

    def report(self, pending: ReplicaChanges, *, now_s: float) -> None:
        """Publish the changes and record them. Raises ServiceError; what was published is then recorded."""
        self._reported.forget(self._rse, pending.forget)
        # Noted before: if this dies in between, what Rucio may have got is not forgotten.
        self._reported.note(self._rse, pending.remove, "removing", now_s=now_s)
        self._reported.note(self._rse, pending.add, "adding", now_s=now_s)
        if pending.remove:
            self._broker.publish("delete_replicas", self._rse, pending.remove)
        if pending.add:
            self._broker.publish("add_replicas", self._rse, pending.add)

    def confirm(self, *, wait_s: float) -> dict[str, int]:
        """Ask Rucio until it shows all that was reported, for at most `wait_s`; counts as in SyncSummary."""
        deadline = time.monotonic() + wait_s
        counts = {"added": 0, "removed": 0}
        while True:
            pending = {
                d: s for d, s in self._reported.states(self._rse).items() if s in ("adding", "removing")
            }
            present = self._present(list(pending))
            added = [did for did, state in pending.items() if state == "adding" and did in present]
            removed = [did for did, state in pending.items() if state == "removing" and did not in present]
            self._reported.note(self._rse, added, "there", now_s=time.time())
            self._reported.forget(self._rse, removed)
            counts["added"] += len(added)
            counts["removed"] += len(removed)
            confirmed = {*added, *removed}
            left = [did for did in pending if did not in confirmed]
            if not left or time.monotonic() >= deadline:
                break
            time.sleep(_POLL_S)
        adding = [did for did in left if pending[did] == "adding"]
        known = set(map(did_of, metadata(self._session, adding)[0]))
        unknown = [did for did in adding if did not in known]
        self._reported.note(self._rse, unknown, "unknown", now_s=time.time())
        n_unknown = sum(state == "unknown" for state in self._reported.states(self._rse).values())
        return counts | {"unknown": n_unknown, "unconfirmed": len(left) - len(unknown)}

    def _present(self, dids: Sequence[Did]) -> set[Did]:
        return {did for did, at in replicas(self._session, dids, self._rse) if self._rse in at}


_AVAILABILITY = {"availability_read": True, "availability_write": False, "availability_delete": False}
_READ_ONLY = {
    "lan": {"read": 1, "write": 0, "delete": 0},
    "wan": {"read": 1, "write": 0, "delete": 0, "third_party_copy_read": 0, "third_party_copy_write": 0},
}
_FORM = {"volatile": (bool,), "protocols": (list,), **dict.fromkeys(_AVAILABILITY, (bool,))}
_MOST_SHOWN = 3
_AVAILABLE = {
    "availability_read": {True: "readable"},
    "availability_write": {False: "not writable"},
    "availability_delete": {False: "not deletable"},
}


@dataclasses.dataclass(frozen=True)
class RseDoor:
    """Where the cache is read: `algorithm` (hash or identity) makes the path below `prefix`."""

    host: str
    port: int
    prefix: str
    algorithm: str


@dataclasses.dataclass(frozen=True)
class RseCheck:
    """The result of one check: `state` is ok or bad; `detail` says what was found and what to do."""

    rse: str
    what: str
    state: str
    detail: str


def set_up(session: Session, rse: str, door: RseDoor | None) -> list[str]:
    """Make `rse`, or make it safe again; return what was done, which is nothing the second time.

    `door`: None leaves out the protocol: Rucio then shows what the cache holds, without URLs. Raises
    ServiceError if there is an RSE of that name that is not volatile.
    """
    done = []
    if not _exists(session, rse):
        session.do(f"add RSE {rse}", lambda client: client.add_rse(rse, volatile=True, **_AVAILABILITY))
        done.append("added, volatile")
    properties = _rse(session, rse)
    if not properties["volatile"]:
        raise ServiceError(
            f"RSE {rse} is there and holds files of its own (it is not volatile); choose another"
        )
    wrong = {key: value for key, value in _AVAILABILITY.items() if properties[key] != value}
    if wrong:
        session.do(f"update RSE {rse}", lambda client: client.update_rse(rse, wrong))
        done.append("made " + ", ".join(_AVAILABLE[key][value] for key, value in wrong.items()))
    if door is not None and not properties["protocols"]:
        _add_protocol(session, rse, door)
        done.append(f"protocol root://{door.host}:{door.port}/{door.prefix}, read only")
    return done


def _add_protocol(session: Session, rse: str, door: RseDoor) -> None:
    attribute = "lfn2pfn_algorithm"
    session.do("attribute", lambda client: client.add_rse_attribute(rse, attribute, door.algorithm))
    protocol = {
        "scheme": "root",
        "hostname": door.host,
        "port": door.port,
        "prefix": door.prefix,
        "impl": "rucio.rse.protocols.xrootd.Default",
        "domains": _READ_ONLY,
    }
    session.do("protocol", lambda client: client.add_protocol(rse, protocol))


def check(session: Session, rse: str) -> list[RseCheck]:
    """Everything by which an RSE of a cache could be misused, or is. Raises ServiceError."""
    if not _exists(session, rse):
        return [RseCheck(rse, "exists", "bad", "no such RSE: cachecast rucio setup-rse makes it")]
    properties, rules = _rse(session, rse), _rules(session, rse)
    attributes = session.ask("attributes", lambda client: [dict(client.list_rse_attributes(rse))])[0]
    allowed = [of for protocol in properties["protocols"] for of in protocol["domains"].values()]
    offers = sorted({what for of in allowed for what, priority in of.items() if what != "read" and priority})
    setup = "cachecast rucio setup-rse mends it"
    in_force = f"{len(rules)} rules keep files here, as {', '.join(sorted(rules)[:_MOST_SHOWN])}"
    checks = (
        ("volatile", properties["volatile"], "Rucio takes it for storage of its own; choose another RSE"),
        ("not deletable", not properties["availability_delete"], f"the reaper may work here; {setup}"),
        ("not writable", not properties["availability_write"], f"rules may choose it; {setup}"),
        ("readable", properties["availability_read"], f"clients pass it over; {setup}"),
        ("not greedy", not attributes.get("greedyDeletion"), "delete its attribute greedyDeletion"),
        ("read only", not offers, f"its protocols offer {', '.join(offers)}: add them anew, to read only"),
        ("no rules", not rules, f"{in_force}: delete them, and exclude it in their expression"),
    )
    return [
        RseCheck(rse, what, "ok" if is_so else "bad", "" if is_so else remedy)
        for what, is_so, remedy in checks
    ]


def _exists(session: Session, rse: str) -> bool:
    return bool(session.ask("RSE", lambda client: [r for r in client.list_rses() if r["rse"] == rse]))


def _rules(session: Session, rse: str) -> set[str]:
    """The ids of rules that lock files at `rse`, or name it."""
    locks = session.ask(
        "locks", lambda client: client.get_dataset_locks_by_rse(rse), form={"rule_id": (object,)}
    )
    naming = session.ask(
        "rules", lambda client: client.list_replication_rules({"rse_expression": rse}), form={"id": (object,)}
    )
    return {str(lock["rule_id"]) for lock in locks} | {str(rule["id"]) for rule in naming}


def _rse(session: Session, rse: str) -> dict[str, Any]:
    answer: dict[str, Any] = session.ask("RSE", lambda client: [client.get_rse(rse)], form=_FORM)[0]
    for protocol in answer["protocols"]:
        domains = protocol.get("domains") if isinstance(protocol, dict) else None
        if not isinstance(domains, dict) or not all(isinstance(domain, dict) for domain in domains.values()):
            raise session.strange("RSE", "a protocol without domains")
    return answer
