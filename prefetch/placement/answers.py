"""Replies made once and sent many times: the ASGI messages themselves, with ETag and Cache-Control."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import NamedTuple, TypedDict


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
    """A reply: its two messages, its ETag, and what is sent instead to those who have it already."""

    start: Start
    body: Body
    etag: bytes
    unchanged: Start


NO_BODY = Body(type="http.response.body", body=b"")


Header = tuple[bytes, bytes]


def json_answer(value: object, *, max_age_s: int, status: int = 200, more: Sequence[Header] = ()) -> Answer:
    """`value` as compact JSON, ready to be sent; caches on the way may keep it for `max_age_s`, 0: not.

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
