"""Rucio's new rules and locks: what a rule brings to a region will probably be read there.

JSON as the server lists them (`/rules/`, `/locks/…`): models ReplicationRule, DatasetLock and ReplicaLock.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from features.common.times import as_of_label
from jobs.loop.ingest.queues.place import Place, Refused, folded, moment_of

CERTAINTY = 0.5
"""That what a new rule brings is read there: assumed."""

NEW_S = 7 * 86400
"""A rule that is older brings nothing new."""

_STATES = ("ok", "o", "replicating", "r", "stuck", "s")
_RSE = re.compile(r"[A-Za-z0-9]+([_-][A-Za-z0-9]+)*")
_TAPE = re.compile(r"(?i)tape|mss$")
_FILES = ("file", "f")


def entries(raw: Iterable[object], place: Place) -> Iterator[object]:
    """An entry per rule, or lock of one, that is new and not of a cache's own RSE or of a tape."""
    for record in raw:
        fields = folded(record)
        fault = "not a rule or lock" if fields is None else _fault(fields, place)
        if fields is None or fault:
            yield Refused(fault, record)
            continue
        yield from place.spread(_entry(fields, place), _sites(_rses(fields), place), record)


def _fault(fields: Mapping[str, object], place: Place) -> str:
    if not all(isinstance(fields.get(name), str) and fields[name] for name in ("scope", "name")):
        return "not a rule or lock: no scope or no name"
    if not isinstance(fields.get("rule_id", fields.get("id")), str):
        return "not a rule or lock: no id of the rule"
    if str(fields.get("state")).lower() not in _STATES:
        return "not copied: waits for approval, is suspended or of an unknown state"
    rses = _rses(fields)
    if not rses or not all(map(_RSE.fullmatch, rses)):
        return "rse_expression: not a list of RSEs"
    if any(map(_TAPE.search, rses)):
        return "for tape"
    if set(rses) & set(place.rses):
        return "of a cache's own RSE"
    made_s = moment_of(fields.get("created_at"))
    if made_s is None and str(fields.get("state")).lower() in ("ok", "o"):
        return "not new: no created_at, and its files are there"
    return "not new: older than 7 days" if made_s is not None and made_s < place.as_of_s - NEW_S else ""


def _rses(fields: Mapping[str, object]) -> list[str]:
    return [part.strip() for part in str(fields.get("rse_expression") or fields.get("rse") or "").split("|")]


def _sites(rses: list[str], place: Place) -> list[str]:
    """`rses`, and of one called as a site of ours and its kind of storage (`T2_DE_EDGE_Disk`) the site."""
    of_site = {rse: next((s for s in place.sites if rse.startswith((f"{s}_", f"{s}-"))), rse) for rse in rses}
    return [of_site[rse] for rse in rses]


def _entry(fields: Mapping[str, object], place: Place) -> dict[str, object]:
    name, rule = f"{fields['scope']}:{fields['name']}", f"rule:{fields.get('rule_id', fields.get('id'))}"
    # A lock that names no kind is of a file where it has a size and no length.
    kind = str(fields.get("did_type") or ("file" if "bytes" in fields and "length" not in fields else ""))
    entry: dict[str, object] = {"job_id": rule, "work": rule, "certainty": CERTAINTY}
    entry["file" if kind.lower() in _FILES else "dataset"] = name
    until_s = moment_of(fields.get("expires_at"))
    entry |= {} if until_s is None else {"until": as_of_label(until_s)}
    return entry | place.known(moment_of(fields.get("created_at")))
