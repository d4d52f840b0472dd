"""Sets up a cache as an RSE that cannot be misused, and checks it.

Rucio does not refuse replication rules on a volatile RSE: they would send transfers to the cache. So the RSE
is not writable, which rules respect, and not deletable, which the reaper respects (a volatile replica is
expired at once). Its protocol only reads, and is no source of third-party copies.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from features.common.errors import ServiceError
from prefetch.rucio.session import Session

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
    offers = sorted({offer for protocol in properties["protocols"] for offer in _offers(protocol)})
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
        "rules",
        lambda client: client.list_replication_rules({"rse_expression": rse}),
        form={"id": (object,)},
    )
    return {str(lock["rule_id"]) for lock in locks} | {str(rule["id"]) for rule in naming}


def _rse(session: Session, rse: str) -> dict[str, Any]:
    answer: dict[str, Any] = session.ask("RSE", lambda client: [client.get_rse(rse)], form=_FORM)[0]
    for protocol in answer["protocols"]:
        domains = protocol.get("domains") if isinstance(protocol, dict) else None
        if not isinstance(domains, dict) or not all(isinstance(domain, dict) for domain in domains.values()):
            raise session.strange("RSE", "a protocol without domains")
    return answer


def _offers(protocol: Mapping[str, Any]) -> Iterator[str]:
    """What a protocol offers beyond reading."""
    for operations in protocol["domains"].values():
        yield from (what for what, priority in operations.items() if what != "read" and priority)
