"""What a broker answers, at a path, a URL or a schedd, as the entries of a queue.

JSON, ClassAds, CSV or descriptions of jobs, of HTCondor, ARC, PanDA, Rucio or ReqMgr2, or in the form of
`queue_entries`.
"""

import csv
import io
import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import requests

from features.common import deadline, strict_json
from features.common.errors import InputError, NotPlainError, ServiceError
from features.common.hosts import is_loopback
from features.common.input_files import InputFile, plain
from features.common.times import DAY_S
from jobs.loop.ingest.queues import arc, classads, htcondor, panda, reqmgr, rucio, schedd
from jobs.loop.ingest.queues.place import CROWDED, Place, Refused
from jobs.loop.ingest.sources.local import check_answers
from prefetch.xcache.rolling import PART

MOST_BYTES = 256 * 2**20
MOST_ENTRIES = 2_000_000
_MOST_COLUMNS = 100
_LINES = ".jsonl"
_LISTS = ("jobs", "tasks", "rules", "result")  # names under which a server's answer may hold its list
_NO_JOBS = "All queues are empty"
_EMPTY_LIST = re.compile(r"^\[\s*\]\s*$", re.MULTILINE)
_NEXT_LIST = re.compile(r"^\]\s*\n\[", re.MULTILINE)
Kind = Literal["auto", "entries", "htcondor", "arc", "panda", "rucio", "reqmgr"]
_READERS: dict[str, Callable[[Iterable[object], Place], Iterator[object]]] = {
    "entries": lambda raw, place: itertools.chain.from_iterable(_at_ours(entry, place) for entry in raw),
    "htcondor": htcondor.entries,
    "arc": arc.entries,
    "panda": panda.entries,
    "rucio": rucio.entries,
    "reqmgr": reqmgr.entries,
}
_OF_RUCIO = (
    *({"rse_expression"}, {"rule_id", "rse"}, {"event_type", "payload"}, {"request_type", "dest_rse_id"}),
    *({"filter", "replication_rules"},),
)
_LOOKED_AT = 1000


class _Unreadable(InputError):
    """A file is there, but the disk or its rights do not let it be read."""


def entries_of(raw: list[object], kind: Kind, place: Place) -> Iterable[object]:
    """The entries that `raw` stands for; `auto`: the kind is the one whose fields its first objects have."""
    read = _READERS[kind_of(raw) if kind == "auto" else kind]
    unread = [record for record in raw if isinstance(record, Refused)]
    return itertools.chain(unread, read((r for r in raw if not isinstance(r, Refused)), place))


def _at_ours(record: object, place: Place) -> Iterable[object]:
    if not isinstance(record, Mapping):
        return [record]
    site = record.get("site")
    return place.spread(record, [site], record) if isinstance(site, str) and site else [record]


def kind_of(raw: Iterable[object]) -> str:
    kinds = (_kind(record) for record in itertools.islice(raw, _LOOKED_AT) if isinstance(record, Mapping))
    return next(filter(None, kinds), "entries")


def _kind(record: Mapping[str, object]) -> str:
    names = {name.lower() for name in record if isinstance(name, str)}
    if "jobstatus" in names and names & {"clusterid", "globaljobid"}:
        return "htcondor"  # first: its users may add any other attribute to an ad
    if "job_id" in record:
        return "entries"
    if names & {"pandaid", "jeditaskid"}:
        return "panda"
    if arc.FORM in names and "inputs" in names:
        return "arc"
    if any(fields <= names for fields in _OF_RUCIO):
        return "rucio"
    return "reqmgr" if any(map(reqmgr.is_request, reqmgr.requests(record))) else ""


def read_answer(source: str, *, token: str, timeout_s: int, since_s: int = 0) -> list[object]:
    """The raw entries at a path, a URL or a schedd; a line that is no JSON stands as its text.

    JSON, ClassAds, CSV, xRSL or ADL; of a folder all files since `since_s`, or A-REX's jobs. `token` goes to
    URLs alone. Raises InputError, ServiceError.
    """
    if source.startswith(("http://", "https://")):
        answer, address = _asked(source, token, timeout_s), _without_query(source)
        return _few(_from_json(answer, address), address)
    if source.startswith(schedd.SCHEME):
        return _few(_lines(filter(str.strip, schedd.asked(source, timeout_s).split("\n"))), source)
    check_answers(source)
    path = Path(source)
    try:
        if path.is_dir():
            if arc.is_control(path):
                return _few(arc.waiting(path, partial(_below, path)), source)
            return list(_in_folder(path, since_s))
    except OSError as error:
        raise InputError(f"cannot read the queue {source}: {_why(error)}") from None
    text = _text(InputFile(path))
    return _few((_from_csv if path.suffix == ".csv" else _from_json)(text, source), source)


def _in_folder(folder: Path, since_s: int) -> Iterator[object]:
    """What the finished files of a folder hold, in order of their names.

    No day takes the room of others: of one with more than its share of `MOST_BYTES` the newest are read. A
    file that is damaged, or of something else, is refused alone. Raises InputError for one that the disk, or
    its rights, do not give: it may hold jobs that still wait.
    """
    files = sorted(p for p in folder.iterdir() if not p.name.startswith(".") and p.suffix != PART)
    states = {file: state for file in files if (state := file.lstat()).st_mtime >= since_s}
    days = Counter[int]()
    for state in states.values():
        days[int(state.st_mtime) // DAY_S] += state.st_size
    room = dict.fromkeys(days, _share(days.values(), MOST_BYTES))
    parts: dict[Path, int] = {}
    for file, state in sorted(states.items(), key=lambda item: -item[1].st_mtime):
        day = int(state.st_mtime) // DAY_S
        is_whole = state.st_size <= room[day]
        parts[file] = state.st_size if is_whole else room[day] if file.suffix == _LINES else 0
        room[day] -= parts[file]
    n_left = MOST_ENTRIES
    for file, state in states.items():
        try:
            text = _below(folder, file, parts[file]) if parts[file] else ""
            held = _from_json(text, "a file") if text else ()  # there may be no room for a line
        except _Unreadable:
            raise
        except NotPlainError as error:
            held = [Refused(f"not a plain file: {error.kind}", file.name)]
        except InputError as error:
            held = [Refused(str(error), file.name)]
        records = list(itertools.islice(held, n_left + 1))
        if parts[file] < state.st_size or len(records) > n_left:
            yield Refused(f"{CROWDED}its day's share of {MOST_BYTES >> 20} MiB", file.name)
        yield from records[:n_left]
        n_left -= min(n_left, len(records))


def _share(amounts: Iterable[int], most: int) -> int:
    """What each of `amounts` may have at most, so that together they have no more than `most`."""
    left, ordered = most, sorted(amounts)
    for n_left, amount in zip(range(len(ordered), 0, -1), ordered, strict=True):
        if amount * n_left > left:
            return left // n_left
        left -= amount
    return most


def _below(folder: Path, path: Path, most_bytes: int | None = None) -> str:
    return _text(InputFile(folder, str(path.relative_to(folder))), most_bytes)


def _text(file: InputFile, most_bytes: int | None = None) -> str:
    path, n_bytes = file.path, MOST_BYTES if most_bytes is None else most_bytes
    label = "a file" if file.below else f"the queue {path}"  # reasons are counted, and name no file
    try:
        with plain(file) as name, Path(name).open("rb") as opened:
            content = opened.read(n_bytes + 1)
        if len(content) > n_bytes and n_bytes < MOST_BYTES and path.suffix == _LINES:
            content = content[: content.rfind(b"\n", 0, n_bytes) + 1]
        elif len(content) > n_bytes:
            raise InputError(f"{label} is larger than {n_bytes >> 20} MiB; split the queue")
        return content.decode("utf-8-sig")
    except (FileNotFoundError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {label}: {_why(error)}") from None
    except OSError as error:
        raise _Unreadable(f"cannot read the queue {path}: {_why(error)}") from None


def _why(error: OSError | UnicodeDecodeError) -> str:
    if isinstance(error, UnicodeDecodeError):
        return f"not UTF-8: {error.reason}"
    return error.strerror or type(error).__name__


def _few(entries: Iterable[object], source: str) -> list[object]:
    first = list(itertools.islice(entries, MOST_ENTRIES + 1))
    if len(first) > MOST_ENTRIES:
        raise InputError(f"{source} holds more than {MOST_ENTRIES} entries; group like jobs by n_jobs")
    return first


def _from_json(text: str, source: str) -> Iterable[object]:
    if text.strip() == _NO_JOBS:
        return []
    if classads.is_classads(text):
        return classads.ads(text, source)
    if arc.is_description(text):
        return arc.jobs(text)
    try:
        content = _loaded(text)
    except ValueError:
        # Not `splitlines`: to that, characters within a string end a line too.
        lines = [line for line in text.split("\n") if line.strip()]
        if not lines or not lines[0].lstrip().startswith("{") or len(lines) == 1:
            raise InputError(f"{source} is not JSON; give a list of objects, or an object a line") from None
        return _lines(lines)
    jobs = content
    if isinstance(content, dict):
        jobs = next((content[name] for name in _LISTS if name in content), [content])
    if not isinstance(jobs, list):
        raise InputError(f"{source} holds no list of jobs; give a list of objects, or it as `jobs`")
    return jobs


def _loaded(text: str) -> object:
    try:
        return strict_json.loads(text)
    except ValueError:
        # `condor_q -global -json` answers a list per schedd.
        joined = _NEXT_LIST.sub(",", _EMPTY_LIST.sub("", text))
        if joined == text:
            raise
        return strict_json.loads(joined.strip() or "[]")


def _lines(lines: Iterable[str]) -> Iterator[object]:
    for line in lines:
        try:
            yield strict_json.loads(line)
        except ValueError:
            yield line


def _from_csv(text: str, source: str) -> Iterable[object]:
    try:
        reader = csv.DictReader(io.StringIO(text), strict=True)
        if not {"job_id"} <= set(reader.fieldnames or ()):
            raise InputError(f"{source} has no column job_id; its first line must name the columns")
        if len(reader.fieldnames or ()) > _MOST_COLUMNS:
            raise InputError(f"{source} has more than {_MOST_COLUMNS} columns; keep those that are described")
        return list(reader)
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
                url,
                headers=headers,
                auth=lambda request: request,  # else a login in .netrc would stand for the token
                timeout=timeout_s,
                stream=True,
                allow_redirects=False,
            ) as answer,
        ):
            if answer.status_code != 200:
                remedy = (
                    "set CACHECAST_QUEUE__TOKEN" if answer.status_code in (401, 403) else "is the URL right?"
                )
                raise ServiceError(f"the queue at {address} answers {answer.status_code}; {remedy}")
            return answer.content.decode("utf-8-sig")
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
