"""Entries of a queue, the inputs of waiting jobs: read from a JSON or CSV file or a URL, and checked."""

from __future__ import annotations

import csv
import dataclasses
import datetime as dt
import io
import itertools
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import pydantic
import requests

from features.common import deadline, strict_json
from features.common.errors import InputError, ServiceError
from features.common.hosts import is_loopback
from features.common.input_files import plain
from features.common.times import parse_as_of
from jobs.loop.ingest.queues import classads
from jobs.loop.ingest.queues.place import Refused

MOST_BYTES = 256 * 2**20
MOST_ENTRIES = 2_000_000
MOST_COLUMNS = 100


FURTHEST_S = 90 * 86400
"""A start further ahead is a mistake; no plan looks that far ahead."""

MOST_JOBS = 10**9
"""Largest group of jobs; sums of larger ones might overflow."""

MOST_INPUTS = 2_000_000
"""Of all entries together: each becomes a row in memory."""

SAMPLE_CHARS = 200

_SOUND = re.compile(
    "not waiting|not a job:|not copied|not new|names no dataset|for other sites|for tape|of a cache|"
    "rse_expression|until: has passed"
)
"""Begins why a broker's answer, which is as it should be, has no waiting work of ours."""

LISTS = ("jobs", "tasks", "rules", "result")
"""Names under which a server's answer may hold its list."""

_NO_JOBS = "All queues are empty"
_EMPTY_LIST = re.compile(r"^\[\s*\]\s*$", re.MULTILINE)
_NEXT_LIST = re.compile(r"^\]\s*\n\[", re.MULTILINE)


def _moment(value: object) -> object:
    if not isinstance(value, str):
        raise ValueError("not a time; write for example 2026-03-01T04:00:00Z")
    try:
        return parse_as_of(value)
    except InputError:
        raise ValueError("not a time; write for example 2026-03-01T04:00:00Z") from None


def _nothing_if_empty(value: object) -> object:
    return None if value == "" else value


Moment = Annotated[int | None, pydantic.BeforeValidator(lambda v: None if v in ("", None) else _moment(v))]
Name = Annotated[str, pydantic.Field(min_length=1, max_length=1024, pattern=r"^[^\x00-\x1f\x7f]+$")]
Owner = Annotated[
    Annotated[str, pydantic.Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")] | None,
    pydantic.BeforeValidator(_nothing_if_empty),
]


class Entry(pydantic.BaseModel):
    """One job, or a group of equal jobs; other fields are ignored. Times are seconds since 1970.

    `work`: its name in every queue that knows of it; `certainty`: that the job reads it here; unknown: None.
    """

    job_id: Annotated[Name, pydantic.BeforeValidator(lambda v: str(v) if isinstance(v, int) else v)]
    dataset: Annotated[Name | None, pydantic.BeforeValidator(_nothing_if_empty)] = None
    file: Annotated[Name | None, pydantic.BeforeValidator(_nothing_if_empty)] = None
    files: tuple[Name, ...] = ()
    n_jobs: Annotated[
        int, pydantic.Field(ge=1, le=MOST_JOBS), pydantic.BeforeValidator(lambda v: 1 if v == "" else v)
    ] = 1
    expected_start: Moment = None
    known_at: Moment = None
    site: Owner = None
    work: Annotated[Name | None, pydantic.BeforeValidator(_nothing_if_empty)] = None
    certainty: Annotated[
        float | None,
        pydantic.Field(gt=0, le=1, allow_inf_nan=False),
        pydantic.BeforeValidator(_nothing_if_empty),
    ] = None
    until: Moment = None

    @property
    def inputs(self) -> list[tuple[str, bool]]:
        """Names of its inputs, and whether each is a dataset."""
        files = [*self.files, *([] if self.file is None else [self.file])]
        return [*([] if self.dataset is None else [(self.dataset, True)]), *((name, False) for name in files)]


@dataclasses.dataclass
class Checked:
    """The entries of a queue: rows of `features.schema.QUEUE`, and counts of refused entries.

    `n_duplicates`: inputs that an entry named twice; `n_faulty`: refused entries that are not sound;
    `samples`: the first refused entry of each reason.
    """

    rows: dict[tuple[str, bool, str, str | None], dict[str, object]] = dataclasses.field(default_factory=dict)
    n_entries: int = 0
    n_jobs: int = 0
    n_duplicates: int = 0
    n_faulty: int = 0
    refused: Counter[str] = dataclasses.field(default_factory=Counter)
    samples: dict[str, str] = dataclasses.field(default_factory=dict)

    def refuse(self, reason: str, raw: object) -> None:
        """Count a refused entry."""
        self.refused[reason] += 1
        self.n_faulty += _SOUND.match(reason) is None
        if reason not in self.samples:
            sample = raw.sample if isinstance(raw, Refused) else raw
            text = sample if isinstance(sample, str) else json.dumps(sample, default=str)
            self.samples[reason] = text[:SAMPLE_CHARS]


def check_entries(raw: Iterable[object], *, as_of_s: int, stale_s: int, site: str | None = None) -> Checked:
    """The entries of a queue read at `as_of_s`; `site`: of entries that name none.

    An entry without `known_at` is known from `as_of_s` on; a later one is refused. It is valid until
    `stale_s` after `as_of_s`, or after its expected start. Raises InputError for more than `MOST_INPUTS`.
    """
    result = Checked()
    for stated in raw:
        result.n_entries += 1
        fault, entry = _entry(stated, as_of_s)
        if entry is None:
            result.refuse(fault, stated)
            continue
        if len(result.rows) + len(entry.inputs) > MOST_INPUTS:
            raise InputError(
                f"the queue names more than {MOST_INPUTS} inputs; name datasets, not their files"
            )
        result.n_jobs += entry.n_jobs
        for name, is_dataset in entry.inputs:
            key = (entry.job_id, is_dataset, name, entry.site or site)
            result.n_duplicates += key in result.rows
            result.rows.setdefault(key, _row(entry, key, as_of_s, stale_s))
    return result


def _entry(raw: object, as_of_s: int) -> tuple[str, Entry | None]:
    if isinstance(raw, Refused):
        return raw.reason, None
    if not isinstance(raw, Mapping):
        return "not an object with fields", None
    try:
        entry = Entry.model_validate(raw)
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


def _row(
    entry: Entry, key: tuple[str, bool, str, str | None], as_of_s: int, stale_s: int
) -> dict[str, object]:
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


def read_entries(source: str, *, token: str, timeout_s: int) -> list[object]:
    """The raw entries at a path or URL; a line that is no JSON stands as its text.

    JSON: a list of objects, an object with such a list as `jobs`, or an object a line; CSV: with a header.
    `token` goes to URLs alone. Raises InputError, ServiceError.
    """
    if source.startswith(("http://", "https://")):
        return _from_json(_asked(source, token, timeout_s), _without_query(source))
    path = Path(source)
    try:
        with plain(path) as name, Path(name).open("rb") as file:
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise InputError(f"{source} is larger than {MOST_BYTES >> 20} MiB; split the queue")
        text = content.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read the queue {source}: {_why(error)}") from None
    return _from_csv(text, source) if path.suffix == ".csv" else _from_json(text, source)


def _why(error: OSError | UnicodeDecodeError) -> str:
    return error.strerror or type(error).__name__ if isinstance(error, OSError) else str(error)


def _few(entries: Iterable[object], source: str) -> list[object]:
    first = list(itertools.islice(entries, MOST_ENTRIES + 1))
    if len(first) > MOST_ENTRIES:
        raise InputError(f"{source} holds more than {MOST_ENTRIES} entries; group like jobs by n_jobs")
    return first


def _from_json(text: str, source: str) -> list[object]:
    if text.strip() == _NO_JOBS:
        return []
    if classads.is_classads(text):
        return _few(classads.ads(text, source), source)
    try:
        content = _loaded(text)
    except ValueError:
        # Not `splitlines`: to that, characters within a string end a line too.
        lines = [line for line in text.split("\n") if line.strip()]
        if not lines or not lines[0].lstrip().startswith("{") or len(lines) == 1:
            raise InputError(f"{source} is not JSON; give a list of objects, or an object a line") from None
        return _few(_lines(lines), source)
    jobs = _listed(content) if isinstance(content, dict) else content
    if not isinstance(jobs, list):
        raise InputError(f"{source} holds no list of jobs; give a list of objects, or it as `jobs`")
    return _few(jobs, source)


def _loaded(text: str) -> object:
    try:
        return strict_json.loads(text)
    except ValueError:
        # `condor_q -global -json` answers a list per schedd.
        joined = _NEXT_LIST.sub(",", _EMPTY_LIST.sub("", text))
        if joined == text:
            raise
        return strict_json.loads(joined)


def _listed(content: dict[str, object]) -> object:
    return next((content[name] for name in LISTS if name in content), [content])


def _lines(lines: list[str]) -> Iterator[object]:
    for line in lines:
        try:
            yield strict_json.loads(line)
        except ValueError:
            yield line


def _from_csv(text: str, source: str) -> list[object]:
    try:
        reader = csv.DictReader(io.StringIO(text), strict=True)
        if not {"job_id"} <= set(reader.fieldnames or ()):
            raise InputError(f"{source} has no column job_id; its first line must name the columns")
        if len(reader.fieldnames or ()) > MOST_COLUMNS:
            raise InputError(f"{source} has more than {MOST_COLUMNS} columns; keep those that are described")
        rows = ({name: value for name, value in row.items() if name is not None} for row in reader)
        return _few(rows, source)
    except csv.Error as error:
        raise InputError(f"{source} is not CSV: {error}") from None


def _asked(url: str, token: str, timeout_s: int) -> str:
    try:
        address, parts = _without_query(url), urlsplit(url)
    except ValueError:
        raise InputError("the queue's URL is none; write for example https://host:8443/jobs") from None
    if parts.username is not None:
        raise InputError(f"a URL must not hold a user: {address}; set CACHECAST_QUEUE__TOKEN")
    if token and parts.scheme != "https" and not is_loopback(parts.hostname or ""):
        raise InputError(f"a token is not sent over plain http: {address}; give an https URL")
    headers = {"Accept": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    try:
        with (
            deadline.bounded(requests.Session()) as session,
            session.get(
                url, headers=headers, timeout=timeout_s, stream=True, allow_redirects=False
            ) as answer,
        ):
            if answer.status_code != 200:
                remedy = (
                    "set CACHECAST_QUEUE__TOKEN" if answer.status_code in (401, 403) else "is the URL right?"
                )
                raise ServiceError(f"the queue at {address} answers {answer.status_code}; {remedy}")
            return answer.content.decode("utf-8")
    except UnicodeDecodeError:
        raise InputError(f"the queue at {address} does not answer UTF-8") from None
    except deadline.EndlessError as error:
        raise ServiceError(f"the queue at {address}: {error}") from None
    except requests.RequestException as error:
        raise ServiceError(f"the queue at {address} does not answer: {type(error).__name__}") from None


def _without_query(url: str) -> str:
    """The URL without its query, which may hold a secret."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname or ''}{f':{parts.port}' if parts.port else ''}{parts.path}"
