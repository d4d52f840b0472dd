"""What callers send, checked before anything else sees it, and replies that are made once and sent often."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple, TypedDict

import pydantic

from features.common.errors import InputError, bounded
from prefetch.placement.names import checked_address, checked_name, checked_site

MAX_INPUTS = 10_000
_MAX_NUMBER = 1e18


def _checked(check: Callable[[str], str]) -> pydantic.AfterValidator:
    def convert(text: str) -> str:
        try:
            return check(text)
        except InputError as error:
            raise ValueError(str(error)) from None

    return pydantic.AfterValidator(convert)


SiteName = Annotated[str, _checked(checked_site)]
FileName = Annotated[str, _checked(checked_name)]
Address = Annotated[str, _checked(checked_address)]
Seconds = Annotated[float, pydantic.Field(ge=0, le=_MAX_NUMBER, allow_inf_nan=False)]


class Heartbeat(pydantic.BaseModel):
    """A cache server reports that it is alive; site and address, if given, are the configured ones.

    A node that is not configured gives its address and its size in bytes.
    """

    id: SiteName
    site: SiteName | None = None
    address: Address | None = None
    size: Any = None


class PrefixAsked(pydantic.BaseModel):
    """A client asks through which server to read a file."""

    client: SiteName
    filename: FileName


class Serve(pydantic.BaseModel):
    """Clients of one site are served by the caches of another."""

    client: SiteName
    cache_site: SiteName


class Unserve(pydantic.BaseModel):
    """Clients of a site are served by its own caches again."""

    client: SiteName


class Input(pydantic.BaseModel):
    """A file or dataset that a job reads, with its size in bytes where the caller knows it."""

    did: FileName
    size_bytes: Annotated[int, pydantic.Field(ge=0, le=10**18)] | None = None


class ScoreAsked(pydantic.BaseModel):
    """A batch system asks where a job should run. `waited_s`: how long the job has been idle, s."""

    # An error per input would take longer than their ranking.
    inputs: Annotated[
        list[FileName | Input], pydantic.Field(min_length=1, max_length=MAX_INPUTS, fail_fast=True)
    ]
    waited_s: Seconds = 0.0
    max_wait_s: Seconds | None = None


# In the place of FastAPI's own parsing, which would do this work in the event loop.
_DEFINED = "#/paths/~1score/post/requestBody/content/application~1json/schema/$defs/{model}"
_SCORE_SCHEMA = ScoreAsked.model_json_schema(ref_template=_DEFINED)
SCORE_BODY: dict[str, Any] = {
    "requestBody": {"required": True, "content": {"application/json": {"schema": _SCORE_SCHEMA}}}
}
"""The body of `/score` in the OpenAPI document."""


def score_asked(body: bytes) -> ScoreAsked:
    """The parsed body of `/score`. Takes up to 0.1 s: call it outside the event loop. Raises InputError."""
    try:
        return ScoreAsked.model_validate_json(body)
    except pydantic.ValidationError as error:
        raise InputError(first_fault(error.errors(include_url=False, include_input=False)[0])) from None


def first_fault(fault: Mapping[str, Any]) -> str:
    """The fault that pydantic found, and where in the body it is."""
    return bounded(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}")


class Start(TypedDict):
    """The message that begins a response."""

    type: str
    status: int
    headers: list[tuple[bytes, bytes]]


class Body(TypedDict):
    """The message that carries its body."""

    type: str
    body: bytes


class Answer(NamedTuple):
    """A reply: its two messages, its ETag, and the message sent instead if the client has it already."""

    start: Start
    body: Body
    etag: bytes
    unchanged: Start


NO_BODY = Body(type="http.response.body", body=b"")


Header = tuple[bytes, bytes]


def json_answer(value: object, *, max_age_s: int, status: int = 200, more: Sequence[Header] = ()) -> Answer:
    """`value` as a JSON reply. Caches on the way may keep it for `max_age_s` seconds; 0: they must not.

    `more`: further headers.
    """
    body = json.dumps(value, separators=(",", ":")).encode()
    tag = etag(body)
    keep = b"public, max-age=%d" % max_age_s if max_age_s else b"no-store"
    shared = [(b"etag", tag), (b"cache-control", keep)]
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)), *shared, *more]
    return Answer(
        _start(status, headers), Body(type="http.response.body", body=body), tag, _start(304, shared)
    )


def etag(content: bytes) -> bytes:
    """The tag that changes with `content`."""
    return b'"' + hashlib.sha256(content).hexdigest()[:24].encode() + b'"'


def _start(status: int, headers: list[tuple[bytes, bytes]]) -> Start:
    return Start(type="http.response.start", status=status, headers=headers)
