"""Entries of a queue: the inputs of waiting jobs, checked."""

import dataclasses
import datetime as dt
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Annotated

import pydantic

from features.common.errors import InputError
from features.common.times import parse_as_of
from jobs.loop.ingest.queues.place import CROWDED, Refused
from jobs.loop.ingest.sources import urls

FURTHEST_S = 90 * 86400  # a start further ahead is a mistake; no plan looks that far ahead
MOST_JOBS = 10**9  # largest group of jobs; sums of larger ones might overflow
MOST_INPUTS = 2_000_000  # of all entries together: each becomes a row in memory
MOST_OF_ONE = MOST_INPUTS // 4  # of one owner; of a work, or a job, whose owner is unknown
UNDER = "\n"  # between the account that a broker vouches for and the user that a job states
SAMPLE_CHARS = 200
_SOUND = re.compile(
    "not waiting|not a job:|not copied|not new|names no dataset|for other sites|for tape|of a cache|"
    "rse_expression|until: has passed|known_at: after"
)
"""Begins why a broker's answer, which is as it should be, has no waiting work of ours."""


def _moment(value: object) -> object:
    try:
        return parse_as_of(value if isinstance(value, str) else "")
    except InputError:
        raise ValueError("not a time; write for example 2026-03-01T04:00:00Z") from None


Moment = Annotated[int, pydantic.BeforeValidator(_moment)]
Name = Annotated[str, pydantic.Field(max_length=1024, pattern=r"^[^\x00-\x1f\x7f]+$")]
Input = Annotated[Name, pydantic.BeforeValidator(lambda v: urls.bare(v) if isinstance(v, str) else v)]
Site = Annotated[str, pydantic.Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]


class Entry(pydantic.BaseModel):
    """One job, or a group of equal jobs; empty and other fields are left out. Times are seconds since 1970.

    `work`: its name in every queue that knows of it; `certainty`: that the job reads it here; unknown: None.
    `owner`: who submitted it, an account and maybe its user (`UNDER`); it is not kept.
    """

    job_id: Annotated[Name, pydantic.BeforeValidator(lambda v: str(v) if isinstance(v, int) else v)]
    dataset: Input | None = None
    file: Input | None = None
    files: tuple[Input, ...] = ()
    n_jobs: Annotated[int, pydantic.Field(ge=1, le=MOST_JOBS)] = 1
    expected_start: Moment | None = None
    known_at: Moment | None = None
    site: Site | None = None
    work: Name | None = None
    certainty: Annotated[float | None, pydantic.Field(gt=0, le=1, allow_inf_nan=False)] = None
    until: Moment | None = None
    owner: Annotated[str | None, pydantic.BeforeValidator(lambda v: v if isinstance(v, str) else None)] = None

    @property
    def inputs(self) -> list[tuple[str, bool]]:
        files = [*self.files, *([] if self.file is None else [self.file])]
        return [*([] if self.dataset is None else [(self.dataset, True)]), *((name, False) for name in files)]


_Key = tuple[str, bool, str, str | None]


@dataclasses.dataclass
class Checked:
    """Rows of `features.schema.QUEUE`, and counts; `n_duplicates`: inputs named twice in an entry.

    `n_faulty`: refused entries that are not sound; `samples`: the first refused entry of each reason.
    """

    rows: dict[_Key, dict[str, object]] = dataclasses.field(default_factory=dict)
    n_entries: int = 0
    n_jobs: int = 0
    n_duplicates: int = 0
    n_faulty: int = 0
    refused: Counter[str] = dataclasses.field(default_factory=Counter)
    samples: dict[str, str] = dataclasses.field(default_factory=dict)

    def refuse(self, reason: str, raw: object) -> None:
        self.refused[reason] += 1
        self.n_faulty += _SOUND.match(reason) is None
        if reason not in self.samples:
            sample = (raw if isinstance(raw, Refused) else Refused(reason, raw)).sample
            if isinstance(raw, Mapping):
                sample = {name: raw[name] for name in Entry.model_fields if name in raw and name != "owner"}
            text = sample if isinstance(sample, str) else json.dumps(sample, default=str)
            self.samples[reason] = urls.blotted(text)[:SAMPLE_CHARS]


class _Accounts:
    """Accepted entries by account, and what each account may name at most: where room ends, half as much."""

    def __init__(self) -> None:
        self._entries: dict[str, list[tuple[int, list[_Key]]]] = {}
        self._heirs: dict[_Key, list[str]] = {}
        self._n_names, self._most = Counter[str](), MOST_INPUTS

    def add(self, account: str, n_jobs: int, keys: list[_Key], new: list[_Key]) -> None:
        self._entries.setdefault(account, []).append((n_jobs, new))
        self._n_names[account] += len(new)
        for key in {*keys}.difference(new):
            self._heirs.setdefault(key, []).append(account)

    def have_room(self, of: Checked, account: str, n_names: int) -> bool:
        """Whether `n_names` more of an account fit, after the last entries of those with most make room."""
        while len(of.rows) + n_names > MOST_INPUTS and self._n_names[account] + n_names <= self._most // 2:
            self._most //= 2
            for other, entries in self._entries.items():
                while self._n_names[other] > self._most:
                    n_jobs, keys = entries.pop()
                    of.n_jobs -= n_jobs
                    self._n_names[other] -= len(keys)
                    for key in keys:
                        if heirs := self._heirs.get(key):
                            self.add(heirs.pop(), 0, [key], [key])
                        else:
                            del of.rows[key]
                    of.refuse(f"{CROWDED}{MOST_INPUTS} of all", {"job_id": keys[0][0] if keys else None})
        return len(of.rows) + n_names <= MOST_INPUTS and self._n_names[account] + n_names <= self._most


def check_entries(raw: Iterable[object], *, as_of_s: int, stale_s: int, site: str | None = None) -> Checked:
    """The entries of a queue read at `as_of_s`; `site`: of entries that name none.

    Known from `as_of_s` if they say nothing (later: refused), valid for `stale_s` after that or their start.
    Beyond `MOST_OF_ONE` of an owner, or `MOST_INPUTS`, the last of those with most are refused.
    """
    result, named, by = Checked(), Counter[str](), _Accounts()
    for stated in raw:
        result.n_entries += 1
        fault, entry = _entry(stated, as_of_s)
        if entry is None:
            result.refuse(fault, stated)
            continue
        owner = entry.owner or entry.work or entry.job_id
        keys = [(entry.job_id, is_dataset, name, entry.site or site) for name, is_dataset in entry.inputs]
        new = [key for key in dict.fromkeys(keys) if key not in result.rows]
        of_one, account = named[owner] + len(new) > MOST_OF_ONE, owner.partition(UNDER)[0]
        if of_one or not by.have_room(result, account, len(new)):
            who = f"{MOST_OF_ONE} of one owner" if of_one else f"{MOST_INPUTS} of all"
            result.refuse(CROWDED + who, {"job_id": entry.job_id, "work": entry.work})
            continue
        named[owner] += len(new)
        result.n_jobs += entry.n_jobs
        result.n_duplicates += len(keys) - len(new)
        result.rows |= {key: _row(entry, key, as_of_s, stale_s) for key in new}
        by.add(account, entry.n_jobs, keys, new)
    return result


def _entry(raw: object, as_of_s: int) -> tuple[str, Entry | None]:
    if isinstance(raw, Refused):
        return raw.reason, None
    if not isinstance(raw, Mapping):
        return "not an object with fields", None
    try:
        stated = {name: raw[name] for name in Entry.model_fields if raw.get(name) not in ("", None)}
        entry = Entry.model_validate(stated)
    except pydantic.ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = next((str(part) for part in first["loc"]), "entry")
        return f"{field}: {first['msg'].removeprefix('Value error, ')}", None
    if not entry.inputs:
        return "neither dataset nor files", None
    if entry.known_at is not None and entry.known_at > as_of_s:
        return "known_at: after the time at which the queue was read", None
    if entry.expected_start is not None and entry.expected_start > as_of_s + FURTHEST_S:
        return "expected_start: more than 90 days ahead", None
    if entry.until is not None and entry.until <= as_of_s:
        return "until: has passed", None
    return "", entry


def _row(entry: Entry, key: _Key, as_of_s: int, stale_s: int) -> dict[str, object]:
    starts_s = entry.expected_start
    expires_s = max(as_of_s, starts_s or 0) + stale_s
    return {
        "job_id": key[0],
        "input": key[2],
        "is_dataset": key[1],
        "n_jobs": entry.n_jobs,
        "starts_at": None if starts_s is None else _at(starts_s),
        "known_at": _at(as_of_s if entry.known_at is None else entry.known_at),
        "expires_at": _at(expires_s if entry.until is None else min(expires_s, entry.until)),
        "site": key[3],
        "cache": None,
        "work": entry.work,
        "certainty": entry.certainty,
    }


def _at(moment_s: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(moment_s, dt.UTC)
