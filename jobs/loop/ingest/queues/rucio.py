"""What Rucio brings to a region: it will probably be read there.

JSON as the server lists it (`/rules/`, `/locks/…`, `/requests/list`, `/subscriptions/`: the models
ReplicationRule, DatasetLock, ReplicaLock, Request and Subscription), and messages of Hermes (`event_type`,
`payload`; `core/request.py`, `core/did.py` and `core/rule.py`, and the reaper).
"""

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from features.common.times import as_of_label
from jobs.loop.ingest.queue_entries import MOST_INPUTS
from jobs.loop.ingest.queues.place import CROWDED, Place, Refused, folded, moment_of, texts
from jobs.loop.ingest.queues.subscriptions import Created, UnmetError, met_by

CERTAINTY = 0.5  # that what is brought is read there: assumed
NEW_S = 7 * 86400  # a rule that is older brings nothing new
STAGED_S = 6 * 3600  # from a request until a file is staged from tape, if not stated: assumed
_LATEST_S = 2**32  # what is made later is refused anyway
_STATES = ("ok", "o", "replicating", "r", "stuck", "s", "inject", "i")
_COMING = ("queued", "waiting", "preparing", "submitting", "submitted")
_MOVES = ("transfer", "stagein")
_GONE = "deletion-done"
_LOCKED = "datasetlock_ok"
_CREATED = ("create_dts", "create_cnt", "register_cnt")
_RSE = r"[A-Za-z0-9]+(?:[_-][A-Za-z0-9]+)*"
RSES = rf"{_RSE}(?:\|{_RSE})*"  # an expression that lists RSEs
TAPE = re.compile(r"(?i)tape|mss$")
_FILES = ("file", "f")
_DONE = "done"
_NOT_COPIED = "not copied: waits for approval, is suspended or of an unknown state"
_Fields = Mapping[str, object]
_Did = tuple[str, str]


class _Copy(NamedTuple):
    """A DID that a rule, lock, request or message brings to `rses`.

    `is_move`: of a file, by a request or a message, of which the last counts; `due_s`: when it will be there,
    from a tape; `fault`: why it is brought no more; `owner`: the account, if it is known.
    """

    raw: object
    did: _Did
    is_file: bool
    rses: tuple[str, ...]
    work: str
    made_s: int | None
    until_s: int | None = None
    due_s: int | None = None
    fault: str = ""
    is_move: bool = False
    owner: object = None

    @property
    def rank(self) -> tuple[int, bool, int, str]:
        """Which of two messages is the later: of one second, that which ends a move."""
        return self.made_s or 0, bool(self.fault), -(self.due_s or 0), self.fault


def entries(raw: Iterable[object], place: Place) -> Iterator[object]:
    """An entry per new rule, lock and moved file, not of a cache's RSE or tape; the last message counts.

    New datasets are brought by subscriptions that they meet, and by rules of their container.
    """
    rules: dict[_Did, list[_Copy]] = {}
    moved: dict[tuple[_Did, tuple[str, ...]], _Copy] = {}
    of_rule: dict[tuple[_Did, tuple[str, ...]], str] = {}
    works: set[str] = set()
    created, subscriptions = [], []
    for record in raw:
        fields = folded(record)
        if fields is not None and "replication_rules" in fields:
            subscriptions.append((record, fields))
            continue
        read = "not a rule or lock" if fields is None else _read(record, fields)
        if isinstance(read, str):
            yield Refused(read, record)
        elif isinstance(read, Created):
            created.append(read)
        elif read.is_move and not place.concerns(read.rses[0]):
            yield Refused("for other sites", record)
        elif read.is_move:
            key = (read.did, read.rses)
            moved[key] = max(read, moved.get(key, read), key=lambda copy: copy.rank)
            of_rule[key] = max(of_rule.get(key, ""), read.work)
        else:
            if fields is not None and "rse_expression" in fields and not (read.fault or _fault(read, place)):
                rules.setdefault(read.did, []).append(read)
                works.add(read.work)
            yield from _brought(read, place)
    for key, copy in moved.items():
        if of_rule[key] in works:
            yield Refused("not new: of a rule that is named", copy.raw)
        else:
            work = of_rule[key] or f"rucio:{copy.rses[0]}"
            yield from _brought(copy._replace(work=work), place)
    yield from _subscribed(created, subscriptions, rules, place)


def _read(record: object, fields: _Fields) -> _Copy | Created | str:
    is_message = "event_type" in fields
    named = (folded(fields.get("payload")) or {}) if is_message else fields
    did, made_s = _did(named), moment_of(fields.get("created_at"))
    if did is None:
        return "not a rule or lock: no scope or no name"
    if is_message:
        kind = str(fields["event_type"]).lower()
        return (_new if kind in _CREATED else _event)(record, did, named, kind, made_s)
    if "request_type" in fields:
        kind = f"{fields['request_type']}-{fields.get('state')}".lower()
        return _event(record, did, fields, kind, moment_of(fields.get("requested_at")) or made_s)
    return _rule(record, did, fields, made_s)


def _did(fields: _Fields) -> _Did | None:
    scope, name = fields.get("scope"), fields.get("name")
    return (scope, name) if isinstance(scope, str) and isinstance(name, str) and scope and name else None


def _rule(record: object, did: _Did, fields: _Fields, made_s: int | None) -> _Copy | str:
    rule, state = fields.get("rule_id", fields.get("id")), str(fields.get("state")).lower()
    if not isinstance(rule, str):
        return "not a rule or lock: no id of the rule"
    is_coming = state not in ("ok", "o")
    fault = "" if state in _STATES else _NOT_COPIED
    if made_s is None and not is_coming:
        fault = "not new: no created_at, and its files are there"
    # A lock that names no kind is of a file where it has a size and no length.
    kind = str(fields.get("did_type") or ("file" if "bytes" in fields and "length" not in fields else ""))
    return _Copy(
        record,
        did,
        kind.lower() in _FILES,
        tuple(texts(fields.get("rse_expression") or fields.get("rse"), "|")),
        f"rule:{rule}",
        made_s,
        until_s=moment_of(fields.get("expires_at")),
        due_s=_due(made_s, fields) if is_coming and _is_staged(fields) else None,
        fault=fault,
        owner=fields.get("account"),
    )


def _is_staged(fields: _Fields) -> bool:
    sources = (fields.get(name) for name in ("source_replica_expression", "src-rse", "source_rse"))
    is_tape = str(fields.get("src-type")).lower() == "tape" or any(
        isinstance(source, str) and TAPE.search(source) for source in sources
    )
    return is_tape or str(fields.get("activity")).lower() == "staging"


def _due(made_s: int | None, fields: _Fields) -> int | None:
    estimated_s = moment_of(fields.get("estimated_transferred_at"))
    return estimated_s or (None if made_s is None else min(made_s, _LATEST_S) + STAGED_S)


def _event(record: object, did: _Did, fields: _Fields, kind: str, made_s: int | None) -> _Copy | str:
    """A request, or a message of one, of a lock that is complete, or of a file that is gone."""
    move, _, state = kind.partition("-")
    rse = next((fields[name] for name in ("dst-rse", "dest_rse", "rse") if fields.get(name)), None)
    is_move = move in _MOVES
    if not is_move and kind not in (_GONE, _LOCKED):
        return "not new: a message of something else"
    if not isinstance(rse, str):
        return "not a rule or lock: no RSE"
    rule = next((fields[name] for name in ("rule-id", "rule_id") if isinstance(fields.get(name), str)), None)
    fault = ""
    if kind == _GONE:
        fault = "not copied: deleted"
    elif is_move and state not in (*_COMING, _DONE):
        fault = "not copied: its transfer has failed or waits for somebody"
    is_staged = state in _COMING and (move == "stagein" or _is_staged(fields))
    return _Copy(
        record,
        did,
        kind != _LOCKED,
        (rse,),
        f"rule:{rule}" if rule and rule != "None" else "",
        made_s,
        due_s=_due(made_s, fields) if is_staged else None,
        fault=fault,
        is_move=kind != _LOCKED,
    )


def _new(record: object, did: _Did, payload: _Fields, kind: str, made_s: int | None) -> Created | str:
    account = str(payload.get("account"))
    if kind != "register_cnt":
        return Created(record, did, account, "DATASET" if kind == "create_dts" else "CONTAINER", made_s)
    child = _did({"scope": payload.get("childscope"), "name": payload.get("childname")})
    if child is None:
        return "not a rule or lock: no scope or no name"
    return Created(record, child, account, str(payload.get("childtype")).upper(), made_s, parent=did)


def _brought(copy: _Copy, place: Place) -> Iterator[object]:
    if fault := copy.fault or _fault(copy, place):
        yield Refused(fault, copy.raw)
        return
    entry: dict[str, object] = {"job_id": copy.work, "work": copy.work, "certainty": CERTAINTY}
    entry["owner"] = copy.owner
    entry["file" if copy.is_file else "dataset"] = ":".join(copy.did)
    if copy.until_s is not None:
        entry["until"] = as_of_label(copy.until_s)
    entry |= place.starting(copy.due_s) | place.known(copy.made_s)
    sites = [place.site_of(rse) for rse in copy.rses]
    yield from place.spread(entry, sites, copy.raw)


def _fault(copy: _Copy, place: Place) -> str:
    if not re.fullmatch(RSES, "|".join(copy.rses)):
        return "rse_expression: not a list of RSEs"
    if any(map(TAPE.search, copy.rses)):
        return "for tape"
    if set(copy.rses) & set(place.rses):
        return "of a cache's own RSE"
    is_old = copy.made_s is not None and copy.made_s < place.as_of_s - NEW_S
    return "not new: older than 7 days" if is_old else ""


def _subscribed(
    created: list[Created],
    subscriptions: list[tuple[object, dict[str, object]]],
    rules: Mapping[_Did, list[_Copy]],
    place: Place,
) -> Iterator[object]:
    """What new DIDs will be brought by, before they have a rule.

    Any account may make a container of many rules: these take no room from subscriptions.
    """
    met: set[int] = set()
    crowded = f"{CROWDED}{MOST_INPUTS} of all"
    n_left = MOST_INPUTS
    for number, new in enumerate(created):
        by = rules.get(new.parent, []) if new.parent else []
        if by:
            met.add(number)
        if len(by) > n_left:
            yield Refused(crowded, new.raw)
            continue
        n_left -= len(by)
        for rule in by:
            yield from _brought(rule._replace(raw=new.raw, did=new.did, is_file=False), place)
    n_left = MOST_INPUTS
    for record, fields in subscriptions:
        try:
            numbers, each_rses = met_by(fields, created)
        except UnmetError as error:
            yield Refused(str(error), record)
            continue
        met.update(numbers)
        if len(numbers) * len(each_rses) > n_left:
            yield Refused(crowded, record)
            continue
        n_left -= len(numbers) * len(each_rses)
        work = f"subscription:{fields.get('account')}:{fields.get('name')}"
        for new, rses in itertools.product([created[number] for number in numbers], each_rses):
            yield from _brought(_Copy(new.raw, new.did, False, rses, work, new.made_s), place)
    for number, new in enumerate(created):
        if number not in met:
            yield Refused("not copied: no rule or subscription for it", new.raw)
