"""Reader of queues of jobs: a JSON or CSV file, or a URL that answers JSON.

Nothing of an entry is checked here but that it can be told from the next one.
"""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import requests

from features.common import deadline, strict_json
from features.common.errors import InputError, ServiceError
from features.common.hosts import is_loopback
from features.common.input_files import plain

MOST_BYTES = 256 * 2**20
MOST_ENTRIES = 2_000_000
MOST_COLUMNS = 100


def entries(source: str, *, token: str, timeout_s: int) -> list[object]:
    """The raw entries at a path or URL; a line that is no JSON stands as its text.

    JSON: a list of objects, an object with such a list as `jobs`, or an object a line; CSV: with a header.
    `token` goes to URLs alone. Raises InputError, ServiceError.
    """
    if source.startswith(("http://", "https://")):
        return _from_json(_asked(source, token, timeout_s), _shown(source))
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
    found = list(itertools.islice(entries, MOST_ENTRIES + 1))
    if len(found) > MOST_ENTRIES:
        raise InputError(f"{source} holds more than {MOST_ENTRIES} entries; group like jobs by n_jobs")
    return found


def _from_json(text: str, source: str) -> list[object]:
    try:
        content = strict_json.loads(text)
    except ValueError:
        # Not `splitlines`: to that, characters within a string end a line too.
        lines = [line for line in text.split("\n") if line.strip()]
        if not lines or not lines[0].lstrip().startswith("{") or len(lines) == 1:
            raise InputError(f"{source} is not JSON; give a list of objects, or an object a line") from None
        return _few(_lines(lines), source)
    jobs = content.get("jobs", [content]) if isinstance(content, dict) else content
    if not isinstance(jobs, list):
        raise InputError(f"{source} holds no list of jobs; give a list of objects, or it as `jobs`")
    return _few(jobs, source)


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
        shown, parts = _shown(url), urlsplit(url)
    except ValueError:
        raise InputError("the queue's URL is none; write for example https://host:8443/jobs") from None
    if parts.username is not None:
        raise InputError(f"a URL must not hold a user: {shown}; set CACHECAST_QUEUE__TOKEN")
    if token and parts.scheme != "https" and not is_loopback(parts.hostname or ""):
        raise InputError(f"a token is not sent over plain http: {shown}; give an https URL")
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
                raise ServiceError(f"the queue at {shown} answers {answer.status_code}; {remedy}")
            return answer.content.decode("utf-8")
    except UnicodeDecodeError:
        raise InputError(f"the queue at {shown} does not answer UTF-8") from None
    except deadline.EndlessError as error:
        raise ServiceError(f"the queue at {shown}: {error}") from None
    except requests.RequestException as error:
        raise ServiceError(f"the queue at {shown} does not answer: {type(error).__name__}") from None


def _shown(url: str) -> str:
    """The URL without its query, which may hold a secret."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname or ''}{f':{parts.port}' if parts.port else ''}{parts.path}"
